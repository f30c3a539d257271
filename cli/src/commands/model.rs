//! The synthetic populations of `simulate` and `central`, and their flags.

use clap::{Args, ValueEnum};
use eigenveil_estimation::models::Model;

use crate::{
    args::{NormArg, NormArgs},
    error::{CliError, Result},
};

/// A synthetic population with a known principal subspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelArg {
    /// N(0, I + spike·VVᵀ), V a uniformly random p × k frame
    Spiked,
    /// The same with V supported on --s random rows
    Sparse,
    /// Section 6 of Wang & Xu: N(0, λ/(5p(λ+1))·VVᵀ + 1/(5p(λ+1))·I) with λ = 1, clipped at radius 1
    WangXu,
    /// --inliers of the rows near a random subspace, N(0, VVᵀ/k + ν²I/p), the others N(0, I/p)
    Haystack,
    /// Example 4.1 of Liu et al.: x = ±v + σ·N(0, I), v one of the k columns of V, clipped at radius 1.5
    PlusMinus,
}

impl ModelArg {
    /// The given norm, otherwise the model's: two models are stated for rows in the unit ball, not on its surface.
    pub(super) fn default_norm(self, given: NormArgs) -> NormArgs {
        let radius = match self {
            Self::WangXu => None,
            // The signal then has length 2/3, which clipping does not reach.
            Self::PlusMinus => Some(1.5),
            Self::Spiked | Self::Sparse | Self::Haystack => return given,
        };
        if given.norm.is_some() {
            return given;
        }
        NormArgs {
            norm: Some(NormArg::Clip),
            radius: given.radius.or(radius),
        }
    }
}

/// Parameters of the models.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct ModelArgs {
    /// Variance along V, for --model spiked and sparse
    #[arg(long, value_name = "X", default_value_t = 20.0)]
    spike: f64,
    /// Share of inliers of the model haystack
    #[arg(long, value_name = "X", default_value_t = 0.5, conflicts_with = "rows")]
    inliers: f64,
    /// ν: root mean square distance of its inliers from the subspace
    #[arg(long, value_name = "X", default_value_t = 0.0, conflicts_with = "rows")]
    inlier_noise: f64,
    /// σ of the model plus-minus: noise on every entry of a row
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.01,
        conflicts_with = "rows"
    )]
    sign_noise: f64,
}

/// The model of these flags.
/// Wrong usage if `--s` is missing or does not belong to the model.
pub(super) fn model_of(
    model: ModelArg,
    p: usize,
    k: usize,
    s: Option<usize>,
    of_model: ModelArgs,
) -> Result<Model> {
    let ModelArgs {
        spike,
        inliers,
        inlier_noise,
        sign_noise,
    } = of_model;
    match (model, s) {
        (ModelArg::Spiked, None) => Ok(Model::spiked(p, k, spike)),
        (ModelArg::Haystack, None) => Ok(Model::haystack(p, k, inliers, inlier_noise)),
        (ModelArg::PlusMinus, None) => Ok(Model::plus_minus(p, k, sign_noise)),
        (ModelArg::Spiked | ModelArg::Haystack | ModelArg::PlusMinus, Some(_)) => {
            Err(CliError::usage("--s belongs to --model sparse or wang-xu"))
        }
        (ModelArg::Sparse, Some(s)) => Ok(Model::sparse(p, k, s, spike)),
        (ModelArg::Sparse, None) => Err(CliError::usage(
            "--model sparse needs --s, the number of nonzero rows of V",
        )),
        (ModelArg::WangXu, s) => Ok(Model::wang_xu(p, k, s, 1.0)),
    }
}
