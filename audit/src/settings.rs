//! What is audited: a mechanism and its claim, the pairs to try, and how many trials of each.

use eigenveil_shared::{
    Error, Result,
    mechanism::{
        Calibration, Mechanism, MechanismKind,
        table::{MAX_TABLE_DIMENSION, MAX_TABLE_ROWS},
    },
    names, optional_word,
    preprocess::Weights,
    privacy::Budget,
    site_study::{DEFAULT_SITE_MECHANISM, SiteStudyDesign, SiteStudyParams, SiteTerms},
    study::{StudyDesign, StudyParams},
    word,
};
use serde::{Deserialize, Serialize};

use crate::{PairKind, Randomness, bounds::check_gaussian, table_pairs::LARGEST_TABLE};

/// Default trials per row.
pub const TRIALS: usize = 100_000;

/// Default confidence of a verdict.
pub const CONFIDENCE: f64 = 0.95;

/// Minimum trials per row: with fewer, no event proves an ε of 5.
pub const MIN_TRIALS: usize = 1_000;

/// Maximum trials per row: the observations of one pair are held in memory, about 100 bytes per trial.
pub const MAX_TRIALS: usize = 10_000_000;

/// Maximum training trials of each row for the transcript statistic.
const MAX_TRAINING_TRIALS: usize = 50_000;

/// How the bound is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Black box: [`event_bound`](crate::event_bound).
    Event,
    /// Assumes Gaussian noise: [`mu_bound`](crate::mu_bound).
    MuGdp,
}

impl Method {
    /// The tightest method whose assumptions this mechanism satisfies by construction.
    pub fn for_mechanism(mechanism: &Mechanism) -> Self {
        if check_gaussian(mechanism).is_ok() {
            Self::MuGdp
        } else {
            Self::Event
        }
    }

    /// Whether the bound assumes a noise distribution.
    pub const fn is_model_based(self) -> bool {
        matches!(self, Self::MuGdp)
    }
}

names! {
    pub Method { Event = "event", MuGdp = "mu-gdp" } else |text, names| Error::invalid_request(format!(
        "there is no method {text:?}; use {}",
        names.join(" or ")
    ));
}

/// Settings of an audit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditSettings {
    /// The mechanism; `None`: `double-cap`, of tables `discrete-gaussian`.
    #[serde(default, deserialize_with = "optional_word")]
    pub mechanism: Option<MechanismKind>,
    /// How its noise is chosen.
    #[serde(default, deserialize_with = "word")]
    pub calibration: Calibration,
    /// Dimension p of a row.
    #[serde(rename = "p")]
    pub dimension: usize,
    /// Most rows of a table: what is audited is the report of a site's table. `None`: the report of a single row.
    pub max_rows: Option<u64>,
    /// The claimed ε.
    pub epsilon: f64,
    /// The claimed δ; `None`: the mechanism's default.
    pub delta: Option<f64>,
    /// Trials under each row of each pair, [`MIN_TRIALS`] to [`MAX_TRIALS`].
    #[serde(default = "default_trials")]
    pub trials: usize,
    /// Seed of the random pair, and of the trials with [`Randomness::Seeded`].
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Source of the trials' randomness.
    #[serde(default, deserialize_with = "word")]
    pub randomness: Randomness,
    /// Pairs to try; if empty, all that fit.
    #[serde(default, rename = "pair")]
    pub pairs: Vec<PairKind>,
    /// The bound; `None`: [`Method::for_mechanism`].
    pub method: Option<Method>,
    /// Confidence of the verdict, from ½ to below 1: a correct mechanism is refuted at most once in 1/(1 − confidence)
    /// audits.
    #[serde(default = "default_confidence")]
    pub confidence: f64,
}

fn default_trials() -> usize {
    TRIALS
}

fn default_seed() -> u64 {
    1
}

fn default_confidence() -> f64 {
    CONFIDENCE
}

impl AuditSettings {
    /// All pairs of rows that fit, the mechanism's own method and calibration, repeatable trials from seed 1.
    pub fn new(mechanism: MechanismKind, dimension: usize, budget: Budget, trials: usize) -> Self {
        Self {
            mechanism: Some(mechanism),
            calibration: Calibration::default(),
            dimension,
            max_rows: None,
            epsilon: budget.epsilon(),
            delta: Some(budget.delta()),
            trials,
            seed: default_seed(),
            randomness: Randomness::Seeded,
            pairs: Vec::new(),
            method: None,
            confidence: CONFIDENCE,
        }
    }

    fn mechanism(&self) -> MechanismKind {
        let default = match self.max_rows {
            None => MechanismKind::default(),
            Some(_) => DEFAULT_SITE_MECHANISM,
        };
        self.mechanism.unwrap_or(default)
    }

    /// The requested pairs, each once, in a fixed order.
    pub(crate) fn selected_pairs(&self) -> Vec<PairKind> {
        let largest = match self.max_rows {
            None => self.mechanism().max_dimension(),
            Some(_) => MAX_TABLE_DIMENSION,
        };
        let mut pairs = PairKind::ALL.to_vec();
        pairs.retain(|pair| {
            if self.pairs.is_empty() {
                self.is_of_unit(pair) && pair.fits(largest, self.dimension)
            } else {
                self.pairs.contains(pair)
            }
        });
        pairs
    }

    /// Whether a pair is of tables where tables are audited, and of rows where rows are.
    fn is_of_unit(&self, pair: &PairKind) -> bool {
        pair.is_of_tables() == self.max_rows.is_some()
    }

    /// Training trials of each row, in addition to the test trials.
    pub(crate) fn training_trials(&self) -> usize {
        (self.trials / 4).min(MAX_TRAINING_TRIALS)
    }

    /// Total number of draws of the audit, for a progress bar.
    pub fn draws(&self) -> u64 {
        (2 * self.selected_pairs().len() * (self.trials + self.training_trials())) as u64
    }

    fn budget(&self) -> Result<Budget> {
        self.mechanism().budget(self.epsilon, self.delta)
    }

    /// The study whose devices produce the reports of this pair of rows.
    pub(crate) fn study(&self, pair: PairKind) -> Result<StudyParams> {
        StudyParams::freeze(StudyDesign {
            norm: pair.norm(),
            features: pair.features(self.dimension),
            centring: pair.centring(),
            weights: pair.weights().map(|_| Weights::default()),
            calibration: self.calibration,
            ..StudyDesign::new(self.mechanism(), self.dimension, self.budget()?)
        })
    }

    /// The study whose sites produce the reports of this pair of tables.
    pub(crate) fn site_study(&self, pair: PairKind, max_rows: u64) -> Result<SiteStudyParams> {
        let terms = SiteTerms {
            rows_per_person: pair.rows_per_person(),
            ..SiteTerms::new(max_rows)
        };
        SiteStudyParams::freeze(SiteStudyDesign {
            norm: pair.norm(),
            features: pair.features(self.dimension),
            centring: pair.centring(),
            mechanism: self.mechanism(),
            ..SiteStudyDesign::new(self.dimension, self.budget()?, terms)
        })
    }

    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |detail| Err(Error::invalid_request(detail));
        if !(MIN_TRIALS..=MAX_TRIALS).contains(&self.trials) {
            return invalid(format!(
                "{} trials; an audit takes {MIN_TRIALS} to {MAX_TRIALS} under each row",
                self.trials
            ));
        }
        if !(self.confidence >= 0.5 && self.confidence < 1.0) {
            return invalid(format!(
                "the confidence is {}; it must be at least 0.5 and below 1, such as {CONFIDENCE}",
                self.confidence
            ));
        }
        if let Some(max_rows) = self.max_rows {
            let unused = [("calibration", self.calibration != Calibration::Analytic)];
            Error::reject_if_given(&unused, "tables have the analytic noise")?;
            if !(LARGEST_TABLE..=MAX_TABLE_ROWS).contains(&max_rows) {
                return invalid(format!(
                    "`max_rows` is {max_rows}; it must be {LARGEST_TABLE}, the rows of the audit's own tables, to {MAX_TABLE_ROWS}"
                ));
            }
        }
        if let Some(other) = self.pairs.iter().find(|pair| !self.is_of_unit(pair)) {
            return invalid(match self.max_rows {
                None => {
                    format!("the pair {other} is of tables; give `max_rows`, the most rows of one")
                }
                Some(_) => format!("the pair {other} is of single rows; leave `max_rows` out"),
            });
        }
        Ok(())
    }
}
