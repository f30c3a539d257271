//! The estimate as a document: what the server computes, the analyst fetches and pages show.

use serde::{Deserialize, Serialize};

use super::site_estimate::SitesEstimate;
use crate::{
    error::Result, mechanism::NoiseModel, parameters::Parameters, preprocess::Row,
    privacy::PrivacyStatement, sparse::SparseSettings,
};

/// Number of components wanted: a fixed number, or as many as lie before the last sure gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ComponentCount {
    /// Up to the last gap between eigenvalues that noise does not explain (`docs/derivations/eigengap.md`).
    #[default]
    Auto,
    /// Exactly this many components.
    Fixed(usize),
}

impl Serialize for ComponentCount {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ComponentCount::Auto => serializer.serialize_str("auto"),
            ComponentCount::Fixed(k) => serializer.serialize_u64(*k as u64),
        }
    }
}

impl<'de> Deserialize<'de> for ComponentCount {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "k must be a whole number of at least 1, or \"auto\""
        )]
        enum Either {
            Number(usize),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(k) => Ok(ComponentCount::Fixed(k)),
            Either::Text(text) if text == "auto" => Ok(ComponentCount::Auto),
            Either::Text(text) => Err(serde::de::Error::custom(format!(
                "k is {text:?}; it must be a whole number or \"auto\""
            ))),
        }
    }
}

/// How firm a chosen k is: of studies of the same people, each with noise of its own and as many components above the
/// floor, the shares that would choose one component fewer, as many and one more, by what the gaps between the
/// eigenvalues leave open (`docs/derivations/eigengap.md`, "How firm k is"). The others would choose another k.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CountShares {
    /// k − 1.
    pub one_fewer: f64,
    /// k.
    pub same: f64,
    /// k + 1.
    pub one_more: f64,
}

/// Where a component stands relative to the noise floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Above the floor's threshold: noise alone would hardly ever reach it.
    Above,
    /// Between the noise's edge and the threshold: it may be real, it may be noise. Or above the threshold in a
    /// direction that the error bars leave open by more than 45°, outside of every [`ComponentGroup`].
    At,
    /// Inside the noise: the direction is not evidence of anything.
    Below,
}

names! {
    pub Verdict { Above = "above", At = "at", Below = "below" };
}

impl Verdict {
    /// The verdict for people.
    pub fn in_words(self) -> &'static str {
        match self {
            Verdict::Above => "above the noise floor",
            Verdict::At => "at the noise floor",
            Verdict::Below => "below the noise floor",
        }
    }
}

/// One estimated principal component.
// Older documents have more keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Component {
    /// Unit vector of length p; the loading of largest magnitude is positive.
    pub loadings: Vec<f64>,
    /// Variance of the component with the noise removed: its eigenvalue of `E[xxᵀ]` (with private centring, of the
    /// covariance), in squared units of the prepared rows; never negative. For an invisible component, the mean level
    /// of the bulk. If [`Estimate::total_variance`] is `null`, the bulk is taken as 0, the smallest it can be.
    pub variance: f64,
    /// Standard error of `variance`, the same as `debiased_eigenvalue_se`; `null` where that is `null`.
    pub variance_se: Option<f64>,
    /// Raw eigenvalue of the noisy moment (`vᵀS̃v` for a sparse estimate), noise included; lower with `double-cap`,
    /// whose reports have no trace, by the component's share of it.
    pub eigenvalue: f64,
    /// Estimate of the noiseless eigenvalue above the bulk, `θ̂`; `null` where the component is not visible.
    pub debiased_eigenvalue: Option<f64>,
    /// Expected squared cosine between the estimated and the true component: the smaller of what the noise floor
    /// predicts and what the error bar allows, `1 − direction_se²`; of a component in a group, the group's. All of them
    /// add up to what [`Estimate::expected_error`] leaves, k − E²/2, at most. `null` where it is not known: of a
    /// component that is not visible, of a direction that the error bar leaves open by more than 45°, and for sparse
    /// components without `refit`.
    pub alignment: Option<f64>,
    /// Where the component stands relative to the noise floor; in a group, where the group stands.
    pub verdict: Verdict,
    /// `variance` over [`Estimate::total_variance`], or over the sum of all variances of the spectrum where noise has
    /// made that larger: shares add up to 1 at most. `null` where the total is.
    pub explained_variance_ratio: Option<f64>,
    /// Standard error of `eigenvalue`, by the jackknife over the buckets. `null` with fewer than four non-empty
    /// buckets or one that holds more than half of the reports, and above p = 2,000 or (from p = 300) k = 32,
    /// where it would take too long. A sparse component takes its selected rows as given.
    pub eigenvalue_se: Option<f64>,
    /// Standard error of `debiased_eigenvalue`: `eigenvalue_se` times the slope of the debiasing, the noise floor
    /// held fixed. `null` where either is.
    pub debiased_eigenvalue_se: Option<f64>,
    /// Standard error of `alignment` where that is the noise floor's: `eigenvalue_se` times its slope, the floor held
    /// fixed. `null` where it is more than a number between 0 and 1 can have.
    pub alignment_se: Option<f64>,
    /// Root mean squared sine of the direction's error, by the jackknife, including the loss by the choice of a sparse
    /// component's rows; at most 1. `null` where `eigenvalue_se` is, and for sparse components without `refit`.
    pub direction_se: Option<f64>,
}

/// Components that stand above the noise and cannot be told apart: the space they span is a finding, the single
/// directions are not. Adjacent components form a group if the error bars of their eigenvalues overlap, or if they
/// change places between the buckets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ComponentGroup {
    /// Number of its first component, from 1.
    pub first: usize,
    /// Number of its last one.
    pub last: usize,
    /// Verdict on the space: that of its components, or `at` where the error bars leave the space open by more than
    /// 45°.
    pub verdict: Verdict,
    /// Sum of the components' variances.
    pub variance: f64,
    /// Share of the total variance; `null` where that is.
    pub explained_variance_ratio: Option<f64>,
    /// Mean squared cosine of the space with the true one: the smaller of what the noise floor expects and what
    /// `subspace_se` leaves, and no more than the expected error does; `null` where that of its components is.
    pub alignment: Option<f64>,
    /// Root mean squared sine of the space's error, over its dimensions, by the jackknife; `null` without error bars.
    pub subspace_se: Option<f64>,
}

impl ComponentGroup {
    /// "2–4".
    pub fn range(&self) -> String {
        format!("{}–{}", self.first, self.last)
    }
}

/// Whether the buckets of reports agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BucketVerdict {
    /// Noise and sampling explain the differences.
    Agree,
    /// Noise and sampling do not explain the differences: a poisoned or broken batch may be in the sums.
    Disagree,
}

/// The estimate compared with the median of the buckets' means (`docs/estimation.md`, "Do the buckets agree?").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BucketAgreement {
    /// Buckets compared: those with 64 reports or more.
    pub buckets: usize,
    /// Largest deviation of a bucket from the median of means, in robust standard deviations, over all directions
    /// tried.
    pub statistic: f64,
    /// Threshold that the statistic of honest reports exceeds with probability `false_alarm_rate` at most.
    pub threshold: f64,
    /// Probability of `disagree` where all reports are honest.
    pub false_alarm_rate: f64,
    /// Whether the statistic exceeds the threshold.
    pub verdict: BucketVerdict,
    /// Buckets whose deviation exceeds the threshold.
    pub suspicious_buckets: usize,
    /// Mean less median of means along the direction of the largest deviation, in units of the moment.
    pub shift: f64,
}

/// Whether rows in the unit ball, perturbed by the study's mechanism, can have made the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Feasibility {
    /// Some rows can, which does not prove that they did.
    Feasible,
    /// No rows can: reports that no device made are in the sums.
    Infeasible,
}

/// Result of the check whether any rows could have produced these reports. Directions are found in the even-numbered
/// buckets; along these directions, the reports in the odd-numbered buckets are compared with the most that the
/// mechanism allows for any rows (`docs/estimation.md`, "Could real rows have produced these reports?").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FeasibilityCheck {
    /// Reports looked at: those in the buckets of odd number.
    pub reports: u64,
    /// Largest probability of `infeasible` if a device made every report.
    pub false_alarm_rate: f64,
    /// The verdict.
    pub verdict: Feasibility,
    /// How much of the rows' squared length lies along the directions.
    pub length: SquaredNormCheck,
    /// How many seeds lie close to the directions; `null` without seeds.
    pub seeds: Option<SeedCheck>,
}

/// Mean squared length of the rows along the leading directions, which is at most 1: the sum of their eigenvalues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SquaredNormCheck {
    /// Leading directions taken together: the number for which `found` comes nearest to `limit`, or exceeds it most.
    pub directions: usize,
    /// `Σ vᵀS̃v` over them.
    pub found: f64,
    /// Limit that honest reports exceed with a probability of at most half the false-alarm rate.
    pub limit: f64,
}

/// Seeds whose direction lies close to one of the directions, or to the space that the leading ones span. The mechanism
/// gives no set of seeds more than e^ε/Z times the probability that a random seed has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SeedCheck {
    /// The direction tested (from 1) or, if `is_subspace`, the number of leading directions: of all sets of seeds
    /// examined, the one least likely to hold as many as it does.
    pub direction: usize,
    /// Whether the seeds lie close to the space of the first `direction` directions rather than to one direction.
    pub is_subspace: bool,
    /// Probability that a random seed lies as close.
    pub null_probability: f64,
    /// Seeds that lie as close.
    pub found: u64,
    /// Largest number to be expected if devices made every report, whatever the rows.
    pub expected: f64,
    /// Fewest seeds that honest reports reach with a probability of at most half the false-alarm rate, over all sets
    /// examined.
    pub limit: u64,
    /// Number of seeds looked at, where it is a sample: `found`, `expected` and `limit` are of these. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<u64>,
}

/// The closed-form noise floor of the moment (`docs/derivations/floor.md`, "A flat bulk").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NoiseFloor {
    /// Centre `b` of the noise bulk, `(tr S̃ − Σθ̂)/p` over the eigenvalues counted as components.
    pub center: f64,
    /// Half-radius `r_b`; the bulk of pure noise ends near `b + χ + 2 r_b` (χ = c/n for `double-cap`, else 0).
    pub radius: f64,
    /// Upper edge of the noise bulk.
    pub edge: f64,
    /// Threshold above which an eigenvalue counts as a component: `edge + 2 r_b p^(−2/3)`.
    pub threshold: f64,
    /// How many eigenvalues exceed the threshold.
    pub components_above: usize,
    /// The floor in units of [`Component::variance`]; `null` in documents of older programs.
    pub variance: Option<VarianceFloor>,
}

/// The noise floor in units of variance, eigenvalues of `E[xxᵀ]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VarianceFloor {
    /// Mean over the directions that cannot be seen.
    pub level: f64,
    /// Variance of a component whose eigenvalue shows at the upper edge of the noise bulk.
    pub edge: f64,
    /// Threshold above which a variance counts: that of a component whose eigenvalue shows at the threshold.
    pub threshold: f64,
}

/// The population's spectrum as the reports show it, from which the expected error, its range and plans are computed
/// (`docs/derivations/eigengap.md`). Eigenvalues are those of `E[xxᵀ]`, with private centring of the covariance; of a
/// sparse estimate, those within its selected rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SpectrumEstimate {
    /// Eigenvalues of the components that stand above the noise floor, descending.
    pub standing: Vec<f64>,
    /// Variances of the components between the noise's edge and the threshold, if they are real.
    pub doubtful: Vec<f64>,
    /// Excess `m_v²/a²` of the noise along each direction of `standing` and `doubtful` under private centring;
    /// otherwise empty.
    pub excess_along_mean: Vec<f64>,
    /// Number of the other directions, those not in `standing`.
    pub rest_count: usize,
    /// The mean of their eigenvalues.
    pub rest_mean: f64,
    /// Half-width of the interval around `rest_mean` over which these eigenvalues are assumed to be evenly spread.
    pub rest_half_width: f64,
    /// Largest of these eigenvalues, inferred from the next noisy eigenvalue, or from the noise's edge if that is
    /// larger.
    pub unseen: f64,
    /// Upper limit of `unseen`: its value if noise lowered the noisy eigenvalue by as much as happens in one study of
    /// twenty.
    pub unseen_limit: f64,
    /// Noise of one report.
    pub noise: NoiseModel,
    /// Addition to the error of a sparse estimate by the choice of features; absent for plain PCA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<SelectionLoss>,
}

/// Additions to half the squared error of a sparse estimate by the choice of features: mean squared sines of all
/// components, times n over the variance of one report's noise off the diagonal (`docs/derivations/selection.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SelectionLoss {
    /// The estimate itself.
    pub central: f64,
    /// The addition if every feature was chosen correctly, but for those that are seen to be missing.
    pub low: f64,
    /// The addition if noise alone chose the features, or if as much is missing as noise may hide.
    pub high: f64,
}

/// How the Fantope solver ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SparseOutcome {
    /// The settings asked for.
    pub settings: SparseSettings,
    /// λ in force, in units of the moment's entries.
    pub lambda: f64,
    /// Whether gap and residuals reached the tolerance; if not, a warning says why it stopped: the iteration
    /// cap, or a gap that means nothing beside the noise.
    pub converged: bool,
    /// ADMM iterations made.
    pub iterations: usize,
    /// Duality gap at the feasible X.
    pub duality_gap: f64,
    /// Final primal residual ‖X−Y‖_F.
    pub primal_residual: f64,
    /// Final dual residual ρ‖Y−Y_prev‖_F.
    pub dual_residual: f64,
    /// Rows selected (indices of features with a nonzero loading), ascending.
    pub support: Vec<usize>,
    /// Whether the components are PCA refitted on the support.
    pub refit: bool,
    /// How λ was chosen with `cv`; `null` otherwise.
    pub cross_validation: Option<CrossValidation>,
    /// The solutions over a grid of λ with `path`; `null` otherwise.
    pub path: Option<LambdaPath>,
}

/// The solutions over a geometric grid of λ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LambdaPath {
    /// Smallest λ at which no two rows share a component: the grid starts here.
    pub lambda_max: f64,
    /// λ `auto`.
    pub lambda_auto: f64,
    /// Grid value nearest to `lambda_auto` on a logarithmic scale; the estimate's components are those at this λ.
    pub lambda_chosen: f64,
    /// Sum of the k leading eigenvalues of the moment: the most variance that k components can capture.
    pub max_captured_variance: f64,
    /// The solutions, from the largest λ down.
    pub points: Vec<PathPoint>,
}

/// The solution at one λ of a path; gaps there are 1e-3 at best.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PathPoint {
    /// λ, in units of the moment's entries.
    pub lambda: f64,
    /// Rows selected.
    pub support_size: usize,
    /// `Σ vᵀS̃v` of the components (refitted with `refit`), noise included.
    pub captured_variance: f64,
    /// Relative duality gap reached.
    pub relative_gap: f64,
    /// Whether it met the path's stopping rule.
    pub converged: bool,
    /// Rows selected here and not at the λ before, ascending.
    pub entering: Vec<usize>,
    /// Rows selected at the λ before and not here, ascending.
    pub leaving: Vec<usize>,
    /// Euclidean norm of each row of the loadings, p numbers; `null` above p = 100.
    pub row_norms: Option<Vec<f64>>,
}

/// How cross-validation over the buckets chose λ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CrossValidation {
    /// Folds made of the buckets.
    pub folds: usize,
    /// λ of the best score.
    pub lambda_best: f64,
    /// The largest λ whose score is behind the best by at most one standard error.
    pub lambda_1se: f64,
    /// The values tried, from the largest down.
    pub grid: Vec<ScoredLambda>,
}

/// One value of λ that cross-validation tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ScoredLambda {
    /// λ, for all reports.
    pub lambda: f64,
    /// Mean over the folds of the held-out `Σ vᵀS̃v`.
    pub score: f64,
    /// By how much the score is behind the best one.
    pub score_deficit: f64,
    /// Standard error of `score_deficit`.
    pub standard_error: f64,
}

/// The subspace estimate of a study, or of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// Version of this document.
    pub version: u32,
    /// Name of the study.
    pub name: String,
    /// The study's frozen parameters (preprocessing is needed to project new rows).
    pub params: Parameters,
    /// Fingerprint of the parameters, lower-case hex.
    pub fingerprint: String,
    /// Reports summed; a seed that came more than once counts once.
    pub n: u64,
    /// Reports left out of `n` because another one with their seed is in it.
    pub duplicate_seeds: u64,
    /// Dimension of the components.
    pub p: usize,
    /// Components given.
    pub k: usize,
    /// The request for components.
    pub requested_k: ComponentCount,
    /// The components, leading first.
    pub components: Vec<Component>,
    /// Groups of components that cannot be told apart, leading first.
    pub groups: Vec<ComponentGroup>,
    /// Mean of the prepared rows, in their units; `null` unless the study has private centring (second
    /// moments alone do not show it). With it, the components are those of the covariance around it.
    pub mean: Option<Vec<f64>>,
    /// The noise's standard deviation of an entry of `mean`.
    pub mean_standard_error: Option<f64>,
    /// The mean decoded report: packed upper triangle, row by row, of the dimension p, with private centring p + 1 (the
    /// constant is last). Absent unless the request asked for the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_report: Option<Vec<f64>>,
    /// Variance for each of `eigenvalues`, defined as [`Component::variance`].
    pub variances: Vec<f64>,
    /// Raw eigenvalues of the noisy moment, descending. All of them, except in a sparse estimate from seeds read twice
    /// (by default from p = 1,500): there, the leading ones, more than stand above the noise, as Ritz values, which are
    /// never above the true ones.
    pub eigenvalues: Vec<f64>,
    /// Mean squared norm of the prepared rows: `tr S̃`, an estimate, with Gaussian noise; with `double-cap`,
    /// whose reports have no trace, the 1 that `normalize` fixes, and `null` where the preprocessing fixes
    /// nothing.
    pub total_variance: Option<f64>,
    /// The noise floor.
    pub floor: NoiseFloor,
    /// The spectrum that the errors below are computed from; `null` for a sparse estimate with no more
    /// rows than components, or without `refit`.
    pub spectrum: Option<SpectrumEstimate>,
    /// Whether no gap between eigenvalues is large enough to say where the components end (`k = auto` only): k is the
    /// best guess, and the upper end of `expected_error_range` is the cautious number.
    pub k_is_open: bool,
    /// How firm k is; absent for a fixed k, and where no component stands above the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k_shares: Option<CountShares>,
    /// Root mean square of ‖V̂V̂ᵀ−VVᵀ‖_F over repetitions of the study; an invisible component counts as fully wrong.
    /// `null` for a sparse estimate without `refit`, and without components.
    pub expected_error: Option<f64>,
    /// Range that contains the true `expected_error` in nine studies of ten; `null` where that is.
    pub expected_error_range: Option<(f64, f64)>,
    /// The most that exchanging one report for another can move the moment, in spectral norm: c/n with `double-cap`,
    /// twice the limit of the norm test over n with the others; of a study of sites what the test of a report leaves to
    /// the largest of these tables.
    pub influence: f64,
    /// How the sparse solver ended; `null` for plain PCA.
    pub sparse: Option<SparseOutcome>,
    /// Whether the buckets of reports agree with each other; `null` with fewer than four buckets of 64 reports or more,
    /// and above p = 2,000, where it would take too long.
    pub bucket_agreement: Option<BucketAgreement>,
    /// Whether rows in the unit ball can have made the reports; `null` with fewer than 64 reports in the buckets of
    /// even or of odd number, and for sparse estimates from seeds read twice.
    pub feasibility: Option<FeasibilityCheck>,
    /// The sites behind it; absent where each report is of one row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<SitesEstimate>,
    /// The promise to each participant.
    pub privacy: PrivacyStatement,
    /// Plain-words warnings; empty when there is nothing to warn of.
    pub warnings: Vec<String>,
    /// Their stable codes, in the same order.
    pub warning_codes: Vec<String>,
    /// Seconds of computation.
    pub seconds: f64,
}

impl Estimate {
    /// How many components have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let verdicts = self.components.iter().map(|component| component.verdict);
        verdicts.filter(|other| *other == verdict).count()
    }

    /// The verdicts in one clause.
    pub fn verdict_in_words(&self) -> String {
        let above = Verdict::Above.in_words();
        match self.k {
            0 => format!("no component stands {above}"),
            k => format!("{} of {k} components {above}", self.count(Verdict::Above)),
        }
    }

    /// The verdicts in sentences, for somebody who has not asked for components before.
    pub fn verdict_in_sentences(&self) -> Vec<String> {
        let mut sentences = vec![match (self.count(Verdict::Above), self.k) {
            (_, 0) => "No component stands above the noise: there is nothing to show yet. More participants, or a larger ε, are needed.".to_owned(),
            (0, _) => "No component stands clearly above the noise: do not read anything into the loadings.".to_owned(),
            (1, 1) => "The component stands clearly above the noise.".to_owned(),
            (above, k) if above == k => format!("All {k} components stand clearly above the noise."),
            (1, k) => format!("1 of {k} components stands clearly above the noise."),
            (above, k) => format!("{above} of {k} components stand clearly above the noise."),
        }];
        match self.count(Verdict::At) {
            0 => {}
            at => sentences.push(format!(
                "{at} {} {}: perhaps real, but poorly recovered.",
                if at == 1 { "is" } else { "are" },
                Verdict::At.in_words()
            )),
        }
        match self.count(Verdict::Below) {
            0 => {}
            below => sentences.push(format!("{below} cannot be distinguished from noise.")),
        }
        sentences
    }

    /// How sure it is where the components end, in sentences; none for a fixed k.
    pub fn count_in_sentences(&self) -> Vec<String> {
        let k = self.k;
        let mut sentences = Vec::new();
        if self.k_is_open {
            sentences.push(format!(
                "No gap between the components is large enough to say where they end: k = {k} is a guess, and the upper end of the error's range is the cautious number."
            ));
        }
        if let Some(shares) = self.k_shares {
            let counts = [
                (k.saturating_sub(1), shares.one_fewer),
                (k + 1, shares.one_more),
            ];
            let others = counts.map(|(other, share)| match share {
                0.005.. => format!(", {} k = {other}", about(share)),
                _ => String::new(),
            });
            let rest = match 1.0 - shares.one_fewer - shares.same - shares.one_more {
                rest @ 0.005.. => format!(", {} another", about(rest)),
                _ => String::new(),
            };
            sentences.push(format!(
                "Of such studies of the same people {} would choose k = {k}{}{rest}.",
                about(shares.same),
                others.concat()
            ));
        }
        sentences
    }

    /// Reports of one row each whose mean has as much noise: n, where each report is of one row.
    pub fn n_eff(&self) -> f64 {
        let sites = self.sites.as_ref();
        sites.map_or(self.n as f64, |sites| sites.n_eff)
    }

    /// Whether the sizes of its parts agree with the stated `p` and `k`: a document may come from anywhere.
    pub fn is_consistent(&self) -> bool {
        let loadings = self.components.iter().map(|component| &component.loadings);
        let of_sites = self.sites.as_ref();
        self.p == self.params.dimension()
            && self.k == self.components.len()
            && of_sites.is_none_or(|sites| sites.is_consistent(self.p, self.k))
            && loadings
                .chain(&self.mean)
                .all(|vector| vector.len() == self.p)
    }

    /// The scores of raw rows of p values on each of the k components, after the study's preprocessing and less the
    /// estimated mean if there is one.
    ///
    /// # Errors
    /// Those of preparing a row, which name its number from 0 and no value.
    pub fn scores(&self, rows: impl IntoIterator<Item = Row>) -> Result<Vec<Vec<f64>>> {
        let preprocessor = self.params.preprocessor()?;
        let of_row = |(index, row)| {
            let row = preprocessor.prepare_features_nth(index, &row)?;
            let mut centred = row.as_slice().to_vec();
            for (x, mean) in centred.iter_mut().zip(self.mean.iter().flatten()) {
                *x -= mean;
            }
            let score = |component: &Component| {
                component
                    .loadings
                    .iter()
                    .zip(&centred)
                    .map(|(v, x)| v * x)
                    .sum()
            };
            Ok(self.components.iter().map(score).collect())
        };
        rows.into_iter().enumerate().map(of_row).collect()
    }

    /// Share of the participants (of a study of sites: of the sites) who, acting together, could have made this component
    /// from nothing: each sends the report that passes all checks and reaches furthest along it. At most 1; `None` where
    /// the component is not visible.
    pub fn share_that_could_make(&self, component: &Component) -> Option<f64> {
        // With private centring a report is lifted by 1 + a², and the constant's part of it reaches along the mean.
        let lift = match (self.params.preprocessing().ok()?.centring, &self.mean) {
            (Some(a), Some(mean)) => {
                let entries = mean.iter().zip(&component.loadings);
                let along: f64 = entries.map(|(m, v)| m * v).sum();
                (1.0 + a * a) * (1.0 + along * along / (a * a))
            }
            _ => 1.0,
        };
        let size = component.debiased_eigenvalue?;
        let params = match (&self.params, &self.sites) {
            (Parameters::Sites(params), sites) => {
                let reach = -params.mechanism().least_eigenvalue();
                return sites.as_ref()?.share_that_could_add(size / lift, reach);
            }
            (params, _) => params.rows().ok()?,
        };
        let reach = params.mechanism().report_reach(params.report_dimension());
        let share = size / (lift * reach);
        share.is_finite().then_some(share.clamp(0.0, 1.0))
    }

    /// The correction to a direction's raw `vᵀS̃v` that gives an eigenvalue of `E[xxᵀ]`: its share of the trace that
    /// the reports do not show (all of it with `double-cap`). If the total variance is not known, the bulk is taken as
    /// zero.
    pub fn missing_trace_per_direction(&self) -> f64 {
        match self.total_variance {
            Some(total) => {
                // Only seeds are ever read twice, and they have no trace.
                let all = self.eigenvalues.len() == self.p;
                let trace = if all {
                    self.eigenvalues.iter().sum()
                } else {
                    0.0
                };
                (total - trace) / self.p as f64
            }
            None => -self.floor.center,
        }
    }

    /// Whether the reports do not show E‖x‖², so that each variance is the least that it can be: the bulk is taken as 0.
    pub fn variances_are_lower_bounds(&self) -> bool {
        self.total_variance.is_none()
    }

    /// Standard error of a component's variance; `None` where that is a lower bound.
    pub fn variance_error(&self, component: &Component) -> Option<f64> {
        let is_known = !self.variances_are_lower_bounds();
        component.variance_se.filter(|_| is_known)
    }

    /// The group of component `index`, from 0.
    pub fn group_of(&self, index: usize) -> Option<&ComponentGroup> {
        let number = index + 1;
        let mut groups = self.groups.iter();
        groups.find(|group| (group.first..=group.last).contains(&number))
    }

    /// Names of the p features: the study's, or x1, x2, …
    pub fn feature_names(&self) -> Vec<String> {
        self.params
            .feature_names()
            .unwrap_or_else(|| (1..=self.p).map(|i| format!("x{i}")).collect())
    }
}

/// A simulated share in whole percent, never certain.
fn about(share: f64) -> String {
    match share {
        0.995.. => "more than 99 %".to_owned(),
        ..0.005 => "less than 1 %".to_owned(),
        _ => format!("about {:.0} %", 100.0 * share),
    }
}

/// Whether a spreadsheet may take this text for a formula: it begins with `=`, `+`, `-`, `@`, a tab or a carriage
/// return and is no number (OWASP, "CSV Injection"). A table that contains such a text is written with all texts in
/// quotes, and the text itself unchanged: import its column as text.
///
/// ```
/// use eigenveil_shared::estimate::may_be_formula;
/// for formula in ["=HYPERLINK(\"http://x\")", "+a", "-a", "@SUM(A1)", "\t=1", "\r=1"] {
///     assert!(may_be_formula(formula));
/// }
/// assert!(!may_be_formula("age") && !may_be_formula("-1.5"));
/// ```
pub fn may_be_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err()
}
