//! How often the 95 % intervals of the moment, of correlations and of regressions hold the truth.

use std::sync::Arc;

use eigenveil_estimation::{
    simulate::{RowSource, SimulatedParticipants},
    statistics::{Correlation, MomentEstimate, Refusal, Z_95},
};
use eigenveil_figures::{Axis, Series};
use eigenveil_shared::{
    Result,
    mechanism::{MechanismKind, NoiseModel},
    packed::PackedSymmetric,
    preprocess::{DEFAULT_CENTRING, Norm, Row},
    study::{StudyDesign, StudyParams},
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha20Rng, seq::index};

use super::expected_error::standardized;
use crate::{
    Cell, Data, Exhibit, Minutes, Paper, PaperVerdict, Point, Record, RunPlan, RunSize, Table,
    number::digits, runs::noisy_moment, sweep,
};

/// People, each column divided by its standard deviation around its mean.
const TABLE: &str = "breast_cancer.npy";
const EPSILON: f64 = 4.0;
/// Nine rows of ten are shorter.
const RADIUS: f64 = 7.5;
/// Regressions of one feature on others, chosen anew in each study.
const REGRESSIONS: usize = 10;
const PREDICTORS: usize = 3;
/// Correlations in the table of the largest.
const LARGEST: usize = 10;
/// Shares of intervals that hold the truth, at least: what 200 studies of correlated intervals can tell from 0.95, and
/// where most are refused, which selects by noise.
const MIN_COVERAGE: f64 = 0.93;
const MIN_COVERAGE_SELECTED: f64 = 0.85;
/// Share of statistics that are given from which they are most, and from which anything is said of them.
const MOST: f64 = 0.5;
const MIN_GIVEN: f64 = 0.02;

/// A population with a study's parameters, and its true moment.
struct Setting {
    rows: Arc<Vec<Row>>,
    params: StudyParams,
    truth: MomentEstimate,
}

impl Setting {
    fn new(rows: Arc<Vec<Row>>, norm: Norm, centring: Option<f64>) -> Result<Self> {
        let p = rows[0].values().len();
        let mechanism = MechanismKind::DoubleCap;
        let budget = mechanism.budget(EPSILON, None)?;
        let params = StudyParams::freeze(StudyDesign {
            norm,
            centring,
            ..StudyDesign::new(mechanism, p, budget)
        })?;
        let truth = true_moment(&rows, &params)?;
        Ok(Self {
            rows,
            params,
            truth,
        })
    }
}

/// The moment of so many reports that their noise is gone.
fn true_moment(rows: &[Row], params: &StudyParams) -> Result<MomentEstimate> {
    let dimension = params.report_dimension();
    let mut mean = PackedSymmetric::zeros(dimension);
    let mut squared_length = 0.0;
    for row in rows {
        let row = params.preprocessor().prepare(row)?;
        mean.add_outer(row.as_slice(), 1.0 / rows.len() as f64);
        squared_length += row.as_slice().iter().map(|x| x * x).sum::<f64>();
    }
    if matches!(params.noise_model(), NoiseModel::DoubleCap { .. }) {
        let share = squared_length / (rows.len() * dimension) as f64;
        for i in 0..dimension {
            let mut axis = vec![0.0; dimension];
            axis[i] = 1.0;
            mean.add_outer(&axis, -share);
        }
    }
    MomentEstimate::new(&mean, 1 << 60, params)
}

/// A correlation of two features.
type Statistic = fn(&MomentEstimate, usize, usize) -> std::result::Result<Correlation, Refusal>;

#[derive(Default)]
struct Count {
    given: f64,
    held: f64,
}

impl Count {
    fn add(&mut self, holds: bool) {
        self.given += 1.0;
        self.held += f64::from(u8::from(holds));
    }

    fn share(&self) -> f64 {
        self.held / self.given
    }
}

/// One study. Shares of the intervals that hold the truth: of entries and variances around the unprojected and around
/// the projected (shown) values. Correlations, regressions and the largest as shares of all that there are, given and
/// held, because in some studies none is given.
fn study(setting: &Setting, n: u64, repeat: u64) -> Result<Vec<Point>> {
    let mut rng = ChaCha20Rng::seed_from_u64(repeat);
    let (source, params) = (RowSource::Rows(&setting.rows), &setting.params);
    let people = SimulatedParticipants::draw(&source, 1, params, &mut rng)?;
    let (moment, _) = noisy_moment(params, &people, n, &mut rng)?;
    let estimate = MomentEstimate::new(moment.mean_report(), n, params)?;
    let (p, truth) = (estimate.dimension(), setting.truth.raw());
    let errors = estimate.standard_errors();
    let matrix = estimate.projected().unwrap_or(estimate.raw());
    let of_entries = |values: &DMatrix<f64>, diagonal: bool| {
        let mut count = Count::default();
        for (i, j) in (0..p).flat_map(|i| (i..p).map(move |j| (i, j))) {
            if (i == j) == diagonal {
                count.add((values[(i, j)] - truth[(i, j)]).abs() <= Z_95 * errors[(i, j)]);
            }
        }
        count.share()
    };
    let mut values = vec![
        of_entries(estimate.raw(), false),
        of_entries(matrix, false),
        of_entries(estimate.raw(), true),
        of_entries(matrix, true),
    ];

    let pairs = (p * (p - 1) / 2) as f64;
    for statistic in [
        MomentEstimate::raw_correlation as Statistic,
        MomentEstimate::correlation,
    ] {
        let mut count = Count::default();
        // Those that are given, each with what it is of.
        let mut given: Vec<(Correlation, f64)> = Vec::new();
        for (i, j) in (0..p).flat_map(|i| (i + 1..p).map(move |j| (i, j))) {
            if let Ok(correlation) = statistic(&estimate, i, j) {
                let of = truth[(i, j)] / (truth[(i, i)] * truth[(j, j)]).sqrt();
                count.add(correlation.low <= of && of <= correlation.high);
                given.push((correlation, of));
            }
        }
        given.sort_by(|(a, _), (b, _)| b.value.abs().total_cmp(&a.value.abs()));
        given.truncate(LARGEST);
        let mut largest = Count::default();
        let mut excess = 0.0;
        for (correlation, of) in &given {
            largest.add(correlation.low <= *of && *of <= correlation.high);
            excess += (correlation.value - of) * correlation.value.signum();
        }
        let all = LARGEST as f64;
        values.extend([count.given / pairs, count.held / pairs]);
        values.extend([largest.given / all, largest.held / all, excess / all]);
    }

    let mut regressions = Count::default();
    for _ in 0..REGRESSIONS {
        let features = index::sample(&mut rng, p, PREDICTORS + 1).into_vec();
        let (y, on) = (features[0], &features[1..]);
        // The truth itself is refused where predictors depend on each other.
        if let (Ok(estimate), Ok(truth)) = (
            estimate.regression(y, on),
            setting.truth.raw_regression(y, on),
        ) {
            for (coefficient, of) in estimate.coefficients.iter().zip(&truth.coefficients) {
                regressions.add(coefficient.low <= of.value && of.value <= coefficient.high);
            }
        }
    }
    let all = (REGRESSIONS * PREDICTORS) as f64;
    values.extend([regressions.given / all, regressions.held / all]);
    Ok(vec![Point::single(values)])
}

fn plan(data: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    let rows = Arc::new(standardized(&data.raw(TABLE)?));
    let sizes: &[u64] = size.choose(&[10_000, 100_000], &[10_000, 100_000, 1_000_000]);
    let clip = Norm::Clip { radius: RADIUS };
    for (norm, name, centring, centred) in [
        (Norm::Normalize, "normalize", None, "public"),
        (
            Norm::Normalize,
            "normalize",
            Some(DEFAULT_CENTRING),
            "private",
        ),
        (clip, "clip", Some(DEFAULT_CENTRING), "private"),
    ] {
        let setting = Arc::new(Setting::new(Arc::clone(&rows), norm, centring)?);
        for &n in sizes {
            let setting = Arc::clone(&setting);
            plan.cells.push(Cell::new(
                [&name, &centred, &n],
                size.choose(60, 200),
                move |repeat| study(&setting, n, repeat),
            ));
        }
    }
    Ok(plan)
}

/// Share of the given ones that hold the truth; `None` where too few are given to say.
fn held(record: &Record, what: &str) -> Option<f64> {
    let given = record.number(&format!("{what}_given_mean"));
    let held = record.number(&format!("{what}_held_mean"));
    (given >= MIN_GIVEN).then_some(held / given)
}

fn refused(record: &Record, what: &str) -> f64 {
    1.0 - record.number(&format!("{what}_given_mean"))
}

fn check_claims(table: &Table) -> PaperVerdict {
    let least = |shares: Vec<f64>| shares.into_iter().fold(f64::INFINITY, f64::min);
    let of_entries = |columns: [&str; 2]| {
        let records = table.records().iter();
        let shares = records.flat_map(|r| columns.map(|column| r.number(column)));
        least(shares.collect())
    };
    let of_given = |whats: &[&str], most: bool| {
        let records = table.records().iter();
        let is = |r: &Record, what: &str| (1.0 - refused(r, what) >= MOST) == most;
        let shares = records.flat_map(|r| {
            let judged = whats.iter().filter(|what| is(r, what));
            judged.filter_map(|what| held(r, what)).collect::<Vec<_>>()
        });
        least(shares.collect())
    };
    let mut verdict = PaperVerdict::default();
    for (claim, share, limit) in [
        (
            "95 % intervals of entries and variances around unprojected values hold the truth",
            of_entries(["entries_raw_mean", "variances_raw_mean"]),
            MIN_COVERAGE,
        ),
        (
            "those around the projected values, which are shown, do",
            of_entries(["entries_mean", "variances_mean"]),
            MIN_COVERAGE,
        ),
        (
            "those of correlations and regressions do, where most are given",
            of_given(&["correlations", "regressions"], true),
            MIN_COVERAGE,
        ),
        (
            "those of the ten largest correlations do",
            of_given(&["largest"], true),
            MIN_COVERAGE,
        ),
        (
            "where most are refused, those that are given do in 85 of a hundred",
            of_given(&["correlations", "regressions", "largest"], false),
            MIN_COVERAGE_SELECTED,
        ),
    ] {
        let evidence = format!("least share {}", digits(share, 3));
        verdict = verdict.with_claim(claim, share >= limit, evidence);
    }
    verdict
}

fn to_svg(table: &Table) -> String {
    let mut lines = Vec::new();
    for (norm, centring) in [
        ("normalize", "public"),
        ("normalize", "private"),
        ("clip", "private"),
    ] {
        let wanted = [("bound_rows", norm), ("centring", centring)];
        let records = table.matching(&wanted);
        let points = records.filter_map(|r| Some((r.number("n"), held(r, "correlations")?)));
        lines.push(Series::new(format!("{norm}, {centring}"), points));
    }
    sweep::chart(
        "95 % intervals of correlations that hold the truth",
        Axis::log("participants"),
        Axis::linear("share"),
        lines,
        [("95 %".to_owned(), 0.95)],
    )
}

fn to_markdown(table: &Table) -> String {
    let rows = table.records().iter().map(|r| {
        let share = |column: &str| digits(r.number(column), 3);
        let cell = |what: &str| {
            let shown = held(r, what).map_or("–".to_owned(), |share| digits(share, 3));
            format!("{shown} ({} %)", digits(100.0 * refused(r, what), 2))
        };
        // Per correlation of the largest.
        let excess = |what: &str| {
            let given = r.number(&format!("{what}_given_mean"));
            let excess = r.number(&format!("{what}_excess_mean")) / given;
            digits(if given >= MIN_GIVEN { excess } else { f64::NAN }, 2)
        };
        format!(
            "{} | {} | {} | {} · {} | {} · {} | {} | {} | {} | {} · {}",
            r.text("bound_rows"),
            r.text("centring"),
            r.text("n"),
            share("entries_raw_mean"),
            share("entries_mean"),
            share("variances_raw_mean"),
            share("variances_mean"),
            cell("correlations"),
            cell("regressions"),
            cell("largest"),
            excess("largest_raw"),
            excess("largest"),
        )
    });
    let heads = "bound rows | centring | n | entries: unprojected · shown | variances: unprojected · shown | correlations (refused) | regressions (refused) | ten largest (refused) | too large by: unprojected · shown";
    sweep::grid(heads, rows)
}

pub(crate) const MOMENT_COVERAGE: Exhibit = Exhibit {
    id: "own-moment-coverage",
    item: "intervals of the moment (ours)",
    caption: "how often 95 % intervals of entries, correlations and regressions hold the truth",
    minutes: Minutes::new(0.2, 7.0),
    data: &[TABLE],
    key_columns: "bound_rows centring n",
    measures: "entries_raw entries variances_raw variances \
        correlations_raw_given correlations_raw_held largest_raw_given largest_raw_held largest_raw_excess \
        correlations_given correlations_held largest_given largest_held largest_excess regressions_given regressions_held",
    plan,
    check_claims,
    to_svg,
    to_markdown,
    ..Exhibit::of_paper(Paper::Ours)
};
