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
    /// [`Model::random_sign`].
    PlusMinus,
}

/// Parameters of the models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSettings {
    /// Variance along V of spiked and sparse populations; 20 without.
    pub spike: Option<f64>,
    /// Share of inliers of a haystack; 0.5 without.
    pub inliers: Option<f64>,
    /// ν: root mean square distance of its inliers from the subspace; 0 without.
    pub inlier_noise: Option<f64>,
    /// σ of plus-minus: noise on every entry of a row; 0.01 without.
    pub sign_noise: Option<f64>,
}

impl ModelSettings {
    /// # Errors
    /// `invalid-request` for a parameter of another model than this one, or of any without a model, and for a value
    /// outside its limits.
    pub(crate) fn check(&self, model: Option<ModelKind>) -> Result<()> {
        let used: &[&str] = match model {
            Some(ModelKind::Spiked | ModelKind::Sparse) => &["spike"],
            Some(ModelKind::Haystack) => &["inliers", "inlier_noise"],
            Some(ModelKind::PlusMinus) => &["sign_noise"],
            Some(ModelKind::WangXu) | None => &[],
        };
        let positive = |x: f64| x.is_finite() && x > 0.0;
        let share = |x: f64| x > 0.0 && x <= 1.0;
        let noise = |x: f64| x.is_finite() && x >= 0.0;
        let (of_spike, of_share) = ("a positive finite number", "above 0 and at most 1");
        let of_noise = "a finite number, 0 or more";
        for (field, value, holds, limits) in [
            (
                "spike",
                self.spike,
                self.spike.is_none_or(positive),
                of_spike,
            ),
            (
                "inliers",
                self.inliers,
                self.inliers.is_none_or(share),
                of_share,
            ),
            (
                "inlier_noise",
                self.inlier_noise,
                self.inlier_noise.is_none_or(noise),
                of_noise,
            ),
            (
                "sign_noise",
                self.sign_noise,
                self.sign_noise.is_none_or(noise),
                of_noise,
            ),
        ] {
            let unused = value.is_some() && !used.contains(&field);
            Error::reject_if_given(&[(field, unused)], "it is a parameter of another `model`")?;
            if let (Some(value), false) = (value, holds) {
                let wrong = format!("`{field}` is {value}; it must be {limits}");
                return Err(Error::invalid_request(wrong).with_field(field));
            }
        }
        Ok(())
    }
}

impl ModelKind {
    /// The model of these settings.
    ///
    /// # Errors
    /// `invalid-request` if `s` is missing, and for `s`, parameters of another model and values outside their limits.
    pub fn model(
        self,
        p: usize,
        k: usize,
        s: Option<usize>,
        settings: ModelSettings,
    ) -> Result<Model> {
        settings.check(Some(self))?;
        let spike = settings.spike.unwrap_or(20.0);
        let wrong = |detail: &str| Err(Error::invalid_request(detail).with_field("s"));
        match (self, s) {
            (Self::Spiked, None) => Ok(Model::spiked(p, k, spike)),
            (Self::Haystack, None) => {
                let inliers = settings.inliers.unwrap_or(0.5);
                let noise = settings.inlier_noise.unwrap_or(0.0);
                Ok(Model::haystack(p, k, inliers, noise))
            }
            (Self::PlusMinus, None) => {
                let noise = settings.sign_noise.unwrap_or(0.01);
                Ok(Model::random_sign(p, k, noise))
            }
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

/// The norm of these settings, by default that of the model: two models are stated for rows in the unit ball, not on
/// its surface.
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
