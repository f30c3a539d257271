//! Every algorithm by name.

use eigenveil_shared::{Error, ErrorCode, Result};

use crate::{
    Amin, AnalyzeGauss, ModSulq, Pca, PrivatePowerIteration, SparsePca, Wishart,
    baseline::{Baseline, Card},
    dp_pca::DpPca,
    oja::Oja,
    power::{NoisyPower, PrivatePower, Shape, StreamingPower},
    robust::{Glad, Reaper},
    stochastic::{DpSpca, DpVrpca},
};

/// Parameters that algorithms share, each optional; an algorithm refuses those it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Iterations, or steps.
    pub iterations: Option<usize>,
    /// Epochs of a method that has them.
    pub epochs: Option<usize>,
    /// Rows in a batch or block.
    pub batch: Option<usize>,
    /// Step size, or the constant of a schedule of step sizes.
    pub step: Option<f64>,
    /// Columns of the iterate of a block method, from k to p.
    pub columns: Option<usize>,
    /// Threshold that a row's gradient is clipped to, in (0, 1].
    pub clip: Option<f64>,
    /// Penalty λ of a sparse method.
    pub lambda: Option<f64>,
    /// Rows of the subspace that a sparse method keeps.
    pub support: Option<usize>,
    /// `dp-pca`: components one after another instead of all at once.
    pub deflation: bool,
    /// `dp-pca`'s constants, as in [`Constants`](crate::dp_pca::Constants): ζ,
    pub zeta: Option<f64>,
    /// K,
    pub tail_scale: Option<f64>,
    /// a,
    pub tail_power: Option<f64>,
    /// groups per threshold,
    pub groups: Option<f64>,
    /// rows of a group.
    pub group_rows: Option<usize>,
    /// Iterations before the step halves.
    pub stage: Option<usize>,
    /// Standard deviation of explicit noise on a mean gradient.
    pub sigma: Option<f64>,
}

impl Options {
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            iterations: self.iterations,
            columns: self.columns,
        }
    }

    /// Refuses options that are set but not in `taken` (names as of the flags).
    ///
    /// # Errors
    /// `invalid-request` names the option and the algorithm.
    pub fn only(&self, algorithm: &str, taken: &[&str]) -> Result<()> {
        let set = [
            ("iterations", self.iterations.is_some()),
            ("epochs", self.epochs.is_some()),
            ("batch", self.batch.is_some()),
            ("step", self.step.is_some()),
            ("columns", self.columns.is_some()),
            ("clip", self.clip.is_some()),
            ("lambda", self.lambda.is_some()),
            ("support", self.support.is_some()),
            ("deflation", self.deflation),
            ("zeta", self.zeta.is_some()),
            ("tail-scale", self.tail_scale.is_some()),
            ("tail-power", self.tail_power.is_some()),
            ("groups", self.groups.is_some()),
            ("group-rows", self.group_rows.is_some()),
            ("stage", self.stage.is_some()),
            ("sigma", self.sigma.is_some()),
        ];
        let refused = set.iter().find(|(name, set)| *set && !taken.contains(name));
        if let Some((name, _)) = refused {
            let has = if taken.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", taken.join(", "))
            };
            return Err(Error::new(
                ErrorCode::InvalidRequest,
                format!("{algorithm} has no parameter {name}; leave it out ({has})"),
            ));
        }
        Ok(())
    }
}

/// An algorithm and how it is made.
pub struct Entry {
    /// What there is to say of it.
    pub card: &'static Card,
    /// The algorithm with these parameters.
    pub build: fn(&Options) -> Result<Box<dyn Baseline>>,
}

impl Entry {
    /// Of an algorithm that has no parameters.
    pub(crate) const fn without_parameters<B: Baseline + Default + 'static>(
        card: &'static Card,
    ) -> Self {
        Self {
            card,
            build: |options| {
                let algorithm = B::default();
                options.only(algorithm.card().name, &[])?;
                Ok(Box::new(algorithm))
            },
        }
    }
}

/// Every algorithm, in the order of the documentation.
pub const ALGORITHMS: &[Entry] = &[
    Pca::ENTRY,
    SparsePca::ENTRY,
    NoisyPower::ENTRY,
    StreamingPower::ENTRY,
    PrivatePower::ENTRY,
    Oja::PLAIN_ENTRY,
    Oja::PRIVATE_ENTRY,
    Oja::MINIBATCH_ENTRY,
    DpPca::ENTRY,
    DpSpca::ENTRY,
    DpVrpca::ENTRY,
    AnalyzeGauss::ENTRY,
    ModSulq::ENTRY,
    PrivatePowerIteration::ENTRY,
    Wishart::ENTRY,
    Amin::ENTRY,
    Glad::GGD_ENTRY,
    Glad::NGGD_ENTRY,
    Glad::SGGD_ENTRY,
    Glad::NSGGD_ENTRY,
    Glad::DP_GGD_ENTRY,
    Glad::DP_SGGD_ENTRY,
    Reaper::GD_ENTRY,
    Reaper::SGD_ENTRY,
    Reaper::MD_ENTRY,
    Reaper::SMD_ENTRY,
];

/// The error of a number of steps beside a number of rows a step.
pub(crate) fn both_set() -> Error {
    Error::new(
        ErrorCode::InvalidRequest,
        "iterations and batch are both set; each follows from n and the other: leave one out",
    )
}

/// The algorithm of this name.
///
/// # Errors
/// `invalid-request` lists the names there are.
pub fn find(name: &str) -> Result<&'static Entry> {
    ALGORITHMS
        .iter()
        .find(|entry| entry.card.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = ALGORITHMS.iter().map(|entry| entry.card.name).collect();
            Error::new(
                ErrorCode::InvalidRequest,
                format!(
                    "there is no algorithm {name:?}; use one of {}",
                    names.join(", ")
                ),
            )
        })
}
