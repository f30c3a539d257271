//! The spectrum of public rows, as `prepare` prints it, and what a study of people like them would get.

use eigenveil_estimation::{
    centring::planned_noise,
    floor::SpectrumRange,
    planning::{PlanResult, PlanTarget, meet, spectrum_from_eigenvalues},
};
use eigenveil_shared::{Result, preprocess::Norm, study::StudyParams};

use super::visitor::{Fields, wrong};

/// People whose prepared rows have this spectrum.
pub(super) struct Population {
    spectrum: SpectrumRange,
    mean_length: f64,
}

impl Population {
    /// The people of the form, for a study that asks for `k` components; `None` if the form has no spectrum.
    pub(super) fn read(fields: &Fields, params: &StudyParams, k: usize) -> Result<Option<Self>> {
        let text = fields.get("spectrum");
        if text.is_empty() {
            return Ok(None);
        }
        let numbers = text.split([',', ';', ' ', '\t', '\r', '\n']);
        let numbers = numbers.filter(|number| !number.is_empty());
        let eigenvalues = numbers.map(|number| {
            let value = number.parse::<f64>();
            value.map_err(|_| wrong("spectrum", number, "numbers such as 0.3,0.2,0.05"))
        });
        let eigenvalues: Vec<f64> = eigenvalues.collect::<Result<_>>()?;
        let preprocessing = params.preprocessing();
        let mean_length = match preprocessing.centring {
            Some(_) => fields.number("mean_length")?,
            None => 0.0,
        };
        let squared_length = match preprocessing.norm {
            Norm::Normalize => 1.0,
            Norm::Clip { .. } | Norm::Require { .. } => fields.number("mean_squared_length")?,
        };
        let total_variance = squared_length - mean_length * mean_length;
        let p = params.dimension();
        let spectrum = spectrum_from_eigenvalues(p, k, &eigenvalues, Some(total_variance));
        Ok(Some(Self {
            spectrum: spectrum.map_err(|error| error.with_field("spectrum"))?,
            mean_length,
        }))
    }

    /// The plan of a study with these parameters for `n` of them.
    pub(super) fn with_participants(&self, params: &StudyParams, n: u64) -> Option<PlanResult> {
        let total_variance = self.spectrum.central.total();
        let noise = planned_noise(params, total_variance, self.mean_length).ok()?;
        let target = PlanTarget::Participants(n.max(1));
        meet(&self.spectrum, &noise, target).ok()
    }
}
