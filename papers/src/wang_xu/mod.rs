//! Wang & Xu, *PCA in the Local Differential Privacy Model*: Algorithms 1 and 2, as published and with accounted noise.

mod figure_4;
mod figures_1_2_3;
mod tables_1_2;

pub(crate) use figure_4::FIGURE_4;
pub(crate) use figures_1_2_3::{FIGURE_1, FIGURE_2, FIGURE_3};
pub(crate) use tables_1_2::{TABLE_1, TABLE_2};

use eigenveil_estimation::fantope::{automatic_lambda, lambda::KAPPA};
use eigenveil_figures::LineStyle;
use eigenveil_shared::{
    Result,
    mechanism::{Calibration, MechanismKind, NoiseModel},
    names,
    preprocess::Norm,
    study::StudyParams,
};

/// δ of the low-dimensional experiments; the paper states none for the others, which use the same here.
const DELTA: f64 = 1e-4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportKind {
    /// `σ² = 2 ln(1.25/δ)/ε²`, as Algorithms 1 and 2 print it.
    AsPublished,
    /// The mechanism with the smallest σ that keeps (ε, δ) between any two rows of the unit ball.
    Accounted,
    /// The mechanism we use instead: pure ε.
    DoubleCap,
}

names! {
    ReportKind { AsPublished = "as-published", Accounted = "accounted", DoubleCap = "double-cap" };
}

impl ReportKind {
    const STYLES: [(Self, LineStyle); 3] = [
        (Self::AsPublished, LineStyle::Dotted),
        (Self::Accounted, LineStyle::Dashed),
        (Self::DoubleCap, LineStyle::Solid),
    ];

    /// The parameters of a study of p columns.
    fn params(self, p: usize, epsilon: f64, norm: Norm) -> Result<StudyParams> {
        let (mechanism, calibration, delta) = match self {
            Self::AsPublished => (
                MechanismKind::SymmetricGaussian,
                Calibration::AsPublished,
                Some(DELTA),
            ),
            Self::Accounted => (
                MechanismKind::SymmetricGaussian,
                Calibration::Analytic,
                Some(DELTA),
            ),
            Self::DoubleCap => (MechanismKind::DoubleCap, Calibration::Analytic, None),
        };
        crate::runs::params(p, norm, mechanism, calibration, epsilon, delta)
    }
}

/// Largest eigenvalue of the noise of the mean of n reports, `2 s √(p/n)` for entries of standard deviation s off the
/// diagonal.
fn noise_edge(params: &StudyParams, p: usize, n: u64) -> f64 {
    let sd = params.noise_model().off_diagonal_sd();
    2.0 * sd * (p as f64 / n as f64).sqrt()
}

/// λ of the order that Theorem 4 asks for, `σ·√(log p/n)`: the size of the largest entry of the noise, whose constant the
/// paper leaves open.
fn theorem_4_lambda(noise: &NoiseModel, p: usize, n: u64) -> Result<f64> {
    Ok(automatic_lambda(noise, p, n as f64, false)? / KAPPA)
}
