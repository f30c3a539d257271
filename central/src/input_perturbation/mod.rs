//! One noisy copy of `Σxxᵀ`, then plain PCA.

mod gaussian;
mod wishart;

pub use gaussian::{AnalyzeGauss, ModSulq};
pub use wishart::Wishart;

pub(crate) use {
    gaussian::{ANALYZE_GAUSS, MOD_SULQ},
    wishart::INFO as WISHART,
};

use eigenveil_estimation::linalg::top_k;
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use crate::{fit::Fit, privacy::RunGuarantee, rows::Rows};

fn fit_from_sum(
    rows: &Rows,
    sum: &DMatrix<f64>,
    k: usize,
    privacy: Option<RunGuarantee>,
    diagnostics: Vec<(&'static str, f64)>,
) -> Result<Fit> {
    Ok(Fit {
        subspace: top_k(sum, k)?.vectors,
        n: rows.n() as u64,
        privacy,
        trace: Vec::new(),
        diagnostics,
    })
}
