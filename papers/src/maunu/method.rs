//! The six private algorithms of the paper, with their iterations and noise.

use std::sync::{Arc, OnceLock};

use eigenveil_central::{
    CentralCalibration, Fit, Generator, Privacy, Request, Rows,
    robust::{Calibrated, Glad, GladVariant, Reaper, ReaperVariant},
};
use eigenveil_shared::Result;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Variant {
    Glad(GladVariant),
    Reaper(ReaperVariant),
}

pub(super) const DP_GGD: Variant = Variant::Glad(GladVariant::DpGgd);
pub(super) const DP_SGGD: Variant = Variant::Glad(GladVariant::DpSggd);
pub(super) const DP_GD: Variant = Variant::Reaper(ReaperVariant::Gd);
pub(super) const DP_SGD: Variant = Variant::Reaper(ReaperVariant::Sgd);
pub(super) const DP_MD: Variant = Variant::Reaper(ReaperVariant::Md);
pub(super) const DP_SMD: Variant = Variant::Reaper(ReaperVariant::Smd);

impl Variant {
    /// The six, full-batch variants first.
    pub(super) const ALL: [Self; 6] = [DP_GGD, DP_GD, DP_MD, DP_SGGD, DP_SGD, DP_SMD];

    /// As in the CSV.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Glad(variant) => variant.info().name,
            Self::Reaper(variant) => variant.info().name,
        }
    }

    pub(super) fn is_sampled(self) -> bool {
        match self {
            Self::Glad(variant) => variant.is_sampled(),
            Self::Reaper(variant) => variant.is_sampled(),
        }
    }

    /// The columns of a table that select its lines at this calibration.
    pub(super) fn lines(self, rule: CentralCalibration) -> [(&'static str, &'static str); 2] {
        [("algorithm", self.name()), ("calibration", rule.as_str())]
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
    /// With the paper's batches and stages of 50 iterations.
    pub(super) fn from_paper(variant: Variant, iterations: usize) -> Self {
        Self {
            variant,
            iterations,
            batch: None,
            stage: Some(50),
        }
    }

    fn glad(&self, variant: GladVariant) -> Glad {
        Glad {
            iterations: Some(self.iterations),
            batch: self.batch,
            halve_step_every: self.stage,
            ..Glad::new(variant)
        }
    }

    fn reaper(&self, variant: ReaperVariant) -> Reaper {
        Reaper {
            iterations: Some(self.iterations),
            batch: self.batch,
            ..Reaper::new(variant)
        }
    }

    /// One run with calibrated noise.
    pub(super) fn fit(
        &self,
        rows: &Rows,
        request: &Request<'_>,
        noise: Option<&Calibrated>,
        rng: &mut Generator,
    ) -> Result<Fit> {
        match self.variant {
            Variant::Glad(variant) => self.glad(variant).fit_calibrated(rows, request, noise, rng),
            Variant::Reaper(variant) => {
                let run = self.reaper(variant);
                Ok(run.fit_calibrated(rows, request, noise, rng)?.1)
            }
        }
    }
}

/// The noise of a run, calibrated when the first repeat needs it: for batches that takes seconds.
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
        let found = self.found.get_or_init(|| match self.method.variant {
            Variant::Glad(variant) => {
                self.method
                    .glad(variant)
                    .calibrate(self.n, self.p, &self.privacy)
            }
            Variant::Reaper(variant) => {
                self.method.reaper(variant).calibrate(self.n, &self.privacy)
            }
        });
        found.as_ref().map(Option::as_ref).map_err(Clone::clone)
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
        // REAPER's two geometries release the same; so does GGD in all dimensions up to where its start changes.
        let released = |m: &Method, p: usize| {
            let start = matches!(m.variant, Variant::Glad(_)).then_some(p > 2_000);
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
