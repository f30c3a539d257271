//! The six private algorithms of the paper, with their iterations and noise.

use std::sync::{Arc, OnceLock};

use eigenveil_central::{
    CentralCalibration, Fit, Generator, Options, Privacy, Request, Rows,
    parameter::{BATCH, HALVE_STEP_EVERY, ITERATIONS},
    robust::{Calibrated, Robust, Variant as Algorithm},
};
use eigenveil_shared::Result;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Variant(pub(super) Algorithm);

pub(super) const DP_GGD: Variant = Variant(Algorithm::DpGgd);
pub(super) const DP_SGGD: Variant = Variant(Algorithm::DpSggd);
pub(super) const DP_GD: Variant = Variant(Algorithm::Gd);
pub(super) const DP_SGD: Variant = Variant(Algorithm::Sgd);
pub(super) const DP_MD: Variant = Variant(Algorithm::Md);
pub(super) const DP_SMD: Variant = Variant(Algorithm::Smd);

impl Variant {
    /// The six, full-batch variants first.
    pub(super) const ALL: [Self; 6] = [DP_GGD, DP_GD, DP_MD, DP_SGGD, DP_SGD, DP_SMD];

    /// The name in the CSV.
    pub(super) fn name(self) -> &'static str {
        self.0.info().name
    }

    pub(super) fn is_sampled(self) -> bool {
        self.0.is_sampled()
    }

    /// Whether its step size is halved in stages, as in GGD.
    pub(super) fn has_stages(self) -> bool {
        self.0.info().parameters.contains(&HALVE_STEP_EVERY)
    }

    /// The columns of a table that select its lines at this calibration.
    pub(super) fn lines(
        self,
        calibration: CentralCalibration,
    ) -> [(&'static str, &'static str); 2] {
        [
            ("algorithm", self.name()),
            ("calibration", calibration.as_str()),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Method {
    pub(super) variant: Variant,
    /// T.
    pub(super) iterations: usize,
    /// Mean size of a batch; `None`: the paper's `max(N√(ε/4T), 1)`.
    pub(super) batch: Option<usize>,
    /// Iterations before GGD's step halves; `None`: the default.
    pub(super) stage: Option<usize>,
}

impl Method {
    /// The method with the paper's batches, and stages of 50 iterations.
    pub(super) fn from_paper(variant: Variant, iterations: usize) -> Self {
        Self {
            variant,
            iterations,
            batch: None,
            stage: Some(50),
        }
    }

    fn algorithm(&self) -> Result<Robust> {
        let mut options = Options::default().with(ITERATIONS, self.iterations);
        if let Some(batch) = self.batch.filter(|_| self.variant.is_sampled()) {
            options = options.with(BATCH, batch);
        }
        if let Some(stage) = self.stage.filter(|_| self.variant.has_stages()) {
            options = options.with(HALVE_STEP_EVERY, stage);
        }
        Robust::new(self.variant.0, &options)
    }

    /// One run with calibrated noise.
    pub(super) fn fit(
        &self,
        rows: &Rows,
        request: &Request<'_>,
        noise: Option<&Calibrated>,
        rng: &mut Generator,
    ) -> Result<Fit> {
        Ok(self
            .algorithm()?
            .fit_calibrated(rows, request, noise, rng)?
            .0)
    }
}

/// The noise of a run, calibrated when the first repeat needs it, because the calibration for batches takes seconds.
pub(super) struct Noise {
    method: Method,
    n: usize,
    p: usize,
    pub(super) privacy: Privacy,
    found: OnceLock<Result<Option<Calibrated>>>,
}

impl Noise {
    /// The noise; `None` without privacy.
    pub(super) fn calibrated(&self) -> Result<Option<&Calibrated>> {
        let calibrate = || {
            self.method
                .algorithm()?
                .calibrate(self.n, self.p, &self.privacy)
        };
        let calibration = self.found.get_or_init(calibrate);
        calibration
            .as_ref()
            .map(Option::as_ref)
            .map_err(Clone::clone)
    }
}

/// Noise calibrated once for all cells whose runs release the same quantities.
#[derive(Default)]
pub(super) struct NoiseCache(Vec<Arc<Noise>>);

impl NoiseCache {
    /// The noise of runs of this method over n rows of dimension p.
    pub(super) fn shared(
        &mut self,
        method: Method,
        (n, p): (usize, usize),
        privacy: Privacy,
    ) -> Arc<Noise> {
        // The two geometries of REAPER release the same quantities; so does GGD in all dimensions below that at which
        // its start changes.
        let released = |m: &Method, p: usize| {
            let start = m.variant.has_stages().then_some(p > 2_000);
            (m.variant.is_sampled(), start, m.iterations, m.batch)
        };
        let same = |noise: &&Arc<Noise>| {
            (noise.n, noise.privacy) == (n, privacy)
                && released(&noise.method, noise.p) == released(&method, p)
        };
        if let Some(noise) = self.0.iter().find(same) {
            return Arc::clone(noise);
        }
        let noise = Arc::new(Noise {
            method,
            n,
            p,
            privacy,
            found: OnceLock::new(),
        });
        self.0.push(Arc::clone(&noise));
        noise
    }
}
