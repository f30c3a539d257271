//! The six private algorithms of the paper, with their iterations and their noise.

use std::sync::{Arc, OnceLock};

use eigenveil_central::{
    CentralCalibration, Fit, Generator, Neighbours, Privacy, Request, Rows,
    robust::{Calibrated, Glad, GladVariant, Reaper, ReaperVariant},
};
use eigenveil_shared::Result;

/// Which algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    Glad(GladVariant),
    Reaper(ReaperVariant),
}

pub(super) const DP_GGD: Form = Form::Glad(GladVariant::DpGgd);
pub(super) const DP_SGGD: Form = Form::Glad(GladVariant::DpSggd);
pub(super) const DP_GD: Form = Form::Reaper(ReaperVariant::Gd);
pub(super) const DP_SGD: Form = Form::Reaper(ReaperVariant::Sgd);
pub(super) const DP_MD: Form = Form::Reaper(ReaperVariant::Md);
pub(super) const DP_SMD: Form = Form::Reaper(ReaperVariant::Smd);

impl Form {
    /// The six, those over all rows first.
    pub(super) const ALL: [Self; 6] = [DP_GGD, DP_GD, DP_MD, DP_SGGD, DP_SGD, DP_SMD];

    /// As it stands in a CSV.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Glad(GladVariant::Ggd) => "ggd",
            Self::Glad(GladVariant::Nggd { .. }) => "nggd",
            Self::Glad(GladVariant::Sggd) => "sggd",
            Self::Glad(GladVariant::Nsggd { .. }) => "nsggd",
            Self::Glad(GladVariant::DpGgd) => "dp-ggd",
            Self::Glad(GladVariant::DpSggd) => "dp-sggd",
            Self::Reaper(ReaperVariant::Gd) => "dp-gd-reap",
            Self::Reaper(ReaperVariant::Sgd) => "dp-sgd-reap",
            Self::Reaper(ReaperVariant::Md) => "dp-md-reap",
            Self::Reaper(ReaperVariant::Smd) => "dp-smd-reap",
        }
    }

    /// Whether a step sees a batch.
    pub(super) fn is_sampled(self) -> bool {
        matches!(self, DP_SGGD | DP_SGD | DP_SMD)
            || matches!(
                self,
                Self::Glad(GladVariant::Sggd) | Self::Glad(GladVariant::Nsggd { .. })
            )
    }
}

/// An algorithm with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Method {
    pub(super) form: Form,
    /// T.
    pub(super) iterations: usize,
    /// Mean size of a batch; `None`: the paper's `max(N√(ε/4T), 1)`.
    pub(super) batch: Option<usize>,
    /// Iterations before GGD's step halves; `None`: the usual.
    pub(super) stage: Option<usize>,
}

impl Method {
    /// With the paper's batches, and its stages of 50.
    pub(super) fn printed(form: Form, iterations: usize) -> Self {
        Self {
            form,
            iterations,
            batch: None,
            stage: Some(50),
        }
    }

    fn glad(&self, form: GladVariant) -> Glad {
        Glad {
            iterations: Some(self.iterations),
            batch: self.batch,
            halve_step_every: self.stage,
            ..Glad::new(form)
        }
    }

    fn reaper(&self, form: ReaperVariant) -> Reaper {
        Reaper {
            iterations: Some(self.iterations),
            batch: self.batch,
            ..Reaper::new(form)
        }
    }

    /// One run, with noise that was found for it.
    pub(super) fn fit(
        &self,
        rows: &Rows,
        request: &Request<'_>,
        noise: Option<&Calibrated>,
        rng: &mut Generator,
    ) -> Result<Fit> {
        match self.form {
            Form::Glad(form) => self.glad(form).fit_calibrated(rows, request, noise, rng),
            Form::Reaper(form) => {
                let run = self.reaper(form);
                Ok(run.fit_calibrated(rows, request, noise, rng)?.1)
            }
        }
    }
}

/// A budget for neighbours of which one row is replaced.
pub(super) fn private(
    epsilon: f64,
    delta: f64,
    calibration: CentralCalibration,
) -> Result<Privacy> {
    crate::runs::private(epsilon, delta, Neighbours::Replace, calibration)
}

/// The noise of a run, found when the first repeat asks for it: for batches that takes seconds.
pub(super) struct Noise {
    method: Method,
    n: usize,
    p: usize,
    pub(super) privacy: Privacy,
    found: OnceLock<Result<Option<Calibrated>>>,
}

impl Noise {
    /// The noise; none without privacy.
    pub(super) fn calibrated(&self) -> Result<Option<&Calibrated>> {
        let found = self.found.get_or_init(|| match self.method.form {
            Form::Glad(form) => self
                .method
                .glad(form)
                .calibrate(self.n, self.p, &self.privacy),
            Form::Reaper(form) => self.method.reaper(form).calibrate(self.n, &self.privacy),
        });
        found.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }
}

/// Noise that is found once for all cells of a plan whose runs release the same.
#[derive(Default)]
pub(super) struct Noises(Vec<Arc<Noise>>);

impl Noises {
    /// The noise of runs of this method over n rows of dimension p.
    pub(super) fn shared(
        &mut self,
        method: Method,
        (n, p): (usize, usize),
        privacy: Privacy,
    ) -> Arc<Noise> {
        // REAPER's two geometries, and GGD's dimensions up to where its start changes, release the same.
        let released = |m: &Method, p: usize| {
            let start = matches!(m.form, Form::Glad(_)).then_some(p > 2_000);
            (m.form.is_sampled(), start, m.iterations, m.batch)
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
