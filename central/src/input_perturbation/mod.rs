//! One noisy copy of `Σxxᵀ`, then plain PCA.

mod gaussian;
mod wishart;

pub(crate) use {
    gaussian::{ANALYZE_GAUSS, MOD_SULQ},
    wishart::INFO as WISHART,
};

use eigenveil_estimation::linalg::top_k;
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use crate::{
    fit::{Fit, Request},
    input::rows::Rows,
    privacy::{Privacy, PrivacyTarget, RunGuarantee},
};

/// The top-k eigenvectors of the sum, with noise that `perturb` adds in a private run; it returns the guarantee and a
/// diagnostic.
fn fit_from_sum(
    rows: &Rows,
    request: &Request<'_>,
    perturb: impl FnOnce(
        PrivacyTarget,
        &mut DMatrix<f64>,
    ) -> Result<(RunGuarantee, (&'static str, f64))>,
) -> Result<Fit> {
    let mut sum = rows.sum_of_outer_products();
    let (mut privacy, mut diagnostics) = (None, Vec::new());
    if let Privacy::Private(target) = request.privacy {
        let (promised, diagnostic) = perturb(target, &mut sum)?;
        privacy = Some(promised);
        diagnostics.push(diagnostic);
    }
    Ok(Fit {
        privacy,
        diagnostics,
        ..Fit::plain(top_k(&sum, request.k)?.vectors, rows.n() as u64)
    })
}
