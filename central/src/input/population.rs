//! Synthetic populations by name, and how their rows are bounded.

use eigenveil_estimation::models::Model;
use eigenveil_shared::{
    Error, Result,
    preprocess::{BoundRows, Norm},
};
use serde::Deserialize;

/// A synthetic population with a known principal subspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelKind {
    /// [`Model::spiked`].
    Spiked,
    /// [`Model::sparse`].
    Sparse,
    /// [`Model::wang_xu`] with λ = 1.
    WangXu,
    /// [`Model::haystack`].
    Haystack,
    /// [`Model::plus_minus`].
    PlusMinus,
}

/// Parameters of the models.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSettings {
    /// Variance along V of spiked and sparse populations.
    pub spike: f64,
    /// Share of inliers of a haystack.
    pub inliers: f64,
    /// ν: root mean square distance of its inliers from the subspace.
    pub inlier_noise: f64,
    /// σ of plus-minus: noise on every entry of a row.
    pub sign_noise: f64,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            spike: 20.0,
            inliers: 0.5,
            inlier_noise: 0.0,
            sign_noise: 0.01,
        }
    }
}

impl ModelKind {
    /// The model of these settings.
    ///
    /// # Errors
    /// `invalid-request` if `s` is missing or does not belong to the model.
    pub fn model(
        self,
        p: usize,
        k: usize,
        s: Option<usize>,
        settings: ModelSettings,
    ) -> Result<Model> {
        let ModelSettings {
            spike,
            inliers,
            inlier_noise,
            sign_noise,
        } = settings;
        let wrong = |detail: &str| Err(Error::invalid_request(detail).of_field("s"));
        match (self, s) {
            (Self::Spiked, None) => Ok(Model::spiked(p, k, spike)),
            (Self::Haystack, None) => Ok(Model::haystack(p, k, inliers, inlier_noise)),
            (Self::PlusMinus, None) => Ok(Model::plus_minus(p, k, sign_noise)),
            (Self::Spiked | Self::Haystack | Self::PlusMinus, Some(_)) => {
                wrong("`s` belongs to `model` sparse or wang-xu")
            }
            (Self::Sparse, Some(s)) => Ok(Model::sparse(p, k, s, spike)),
            (Self::Sparse, None) => {
                wrong("`model` sparse needs `s`, the number of nonzero rows of V")
            }
            (Self::WangXu, s) => Ok(Model::wang_xu(p, k, s, 1.0)),
        }
    }
}

/// The norm of these settings, by default that of the model: two models are stated for rows in the unit ball, not on its
/// surface.
///
/// # Errors
/// `invalid-request` for a radius that the norm does not use.
pub(crate) fn norm(
    model: Option<ModelKind>,
    bound_rows: Option<BoundRows>,
    radius: Option<f64>,
) -> Result<Norm> {
    let (bound_rows, default) = match (bound_rows, model) {
        (Some(given), _) => (given, 1.0),
        (None, Some(ModelKind::WangXu)) => (BoundRows::Clip, 1.0),
        // The signal then has length 2/3, which clipping does not reach.
        (None, Some(ModelKind::PlusMinus)) => (BoundRows::Clip, 1.5),
        (None, _) => (BoundRows::Normalize, 1.0),
    };
    bound_rows.norm(radius, default)
}
