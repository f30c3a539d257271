//! The synthetic populations of `simulate` and `central`, and their flags.

use clap::{Args, ValueEnum};
use eigenveil_central::{ModelKind, ModelSettings};

/// A synthetic population with a known principal subspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelArg {
    /// N(0, I + spike·VVᵀ), V a uniformly random p × k frame
    Spiked,
    /// A spiked population with V supported on --s random rows
    Sparse,
    /// Section 6 of Wang & Xu: N(0, λ/(5p(λ+1))·VVᵀ + 1/(5p(λ+1))·I) with λ = 1, clipped at radius 1
    WangXu,
    /// --inliers of the rows near a random subspace, N(0, VVᵀ/k + ν²I/p), the others N(0, I/p)
    Haystack,
    /// Example 4.1 of Liu et al.: x = ±v + σ·N(0, I), v one of the k columns of V, clipped at radius 1.5
    PlusMinus,
}

impl From<ModelArg> for ModelKind {
    fn from(arg: ModelArg) -> Self {
        match arg {
            ModelArg::Spiked => Self::Spiked,
            ModelArg::Sparse => Self::Sparse,
            ModelArg::WangXu => Self::WangXu,
            ModelArg::Haystack => Self::Haystack,
            ModelArg::PlusMinus => Self::PlusMinus,
        }
    }
}

/// Parameters of the models.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct ModelArgs {
    /// Variance along V, for --model spiked and sparse [default: 20]
    #[arg(long, value_name = "X")]
    spike: Option<f64>,
    /// Share of inliers of the model haystack [default: 0.5]
    #[arg(long, value_name = "X")]
    inliers: Option<f64>,
    /// ν: root mean square distance of its inliers from the subspace [default: 0]
    #[arg(long, value_name = "X")]
    inlier_noise: Option<f64>,
    /// σ of the model plus-minus: noise on every entry of a row [default: 0.01]
    #[arg(long, value_name = "X")]
    sign_noise: Option<f64>,
}

impl From<ModelArgs> for ModelSettings {
    fn from(args: ModelArgs) -> Self {
        Self {
            spike: args.spike,
            inliers: args.inliers,
            inlier_noise: args.inlier_noise,
            sign_noise: args.sign_noise,
        }
    }
}
