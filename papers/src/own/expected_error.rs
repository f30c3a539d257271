//! What a study says of its own error, against the error that it has: the expected error with its range at n, 4n and
//! 16n, and `k = auto`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use eigenveil_estimation::{
    components::principal_components,
    floor::{SURE_GAP, SpectrumRange, gap_after, gap_between},
    linalg::symmetric_eigenvalues,
    metrics::projector_distance,
    simulate::{NoisePath, Participants, RowSource, noisy_sum},
};
use eigenveil_figures::{Axis, LineStyle, Series};
use eigenveil_shared::{
    Result,
    estimate::ComponentCount,
    mechanism::MechanismKind::{self, DoubleCap, IsotropicGaussian},
    preprocess::{DEFAULT_CENTRING, Norm, Row},
    study::{StudyDesign, StudyParams},
};
use rand::{SeedableRng, rngs::ChaCha20Rng};

use crate::{
    Cell, Data, Exhibit, Minutes, Paper, Point, Record, RunPlan, RunSize, Table, Verdict,
    number::digits, sweep,
};

/// Tables of people, each column divided by its standard deviation around its mean; those that are not there are left
/// out, but for the first two.
const TABLES: [&str; 7] = [
    "breast_cancer.npy",
    "digits.npy",
    "wine.npy",
    "iris.npy",
    "diabetes.npy",
    "classification.npy",
    "a9a_s.npy",
];
/// Components asked for: 1 to this many.
const MAX_COMPONENTS: usize = 9;
/// The study's own n, and other numbers that it is used to plan for.
const FACTORS: [u64; 3] = [1, 4, 16];
/// Classes by the gap after component k in units of 2√V: from each of these on.
const GAPS: [f64; 4] = [0.0, 2.45, 4.0, 8.0];
/// Share of the ranges that hold the true error, at least.
const MIN_COVERAGE: f64 = 0.9;
/// Deviation of the root mean square of what `k = auto` says from that of its errors, at most.
const MAX_DEVIATION: f64 = 0.15;
/// Share of open studies, at most, where that is claimed.
const MAX_OPEN: f64 = 0.1;

/// A population with a study's parameters.
struct Setting {
    rows: Vec<Row>,
    params: StudyParams,
    runs: u64,
    /// Root mean squared error for each k by the number of participants, when it was first needed.
    truth: Mutex<BTreeMap<u64, Arc<Vec<f64>>>>,
}

impl Setting {
    fn k(&self) -> usize {
        MAX_COMPONENTS.min(self.params.dimension() - 1)
    }

    fn participants(&self, rng: &mut ChaCha20Rng) -> Result<Participants<'_>> {
        Participants::draw(&RowSource::Rows(&self.rows), self.k(), &self.params, rng)
    }

    /// Root mean squared error of `n` participants, for k = 1, 2, ….
    fn truth(&self, n: u64) -> Result<Arc<Vec<f64>>> {
        // Held while it is computed: everybody needs it.
        let mut known = self.truth.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(truth) = known.get(&n) {
            return Ok(Arc::clone(truth));
        }
        let mut squares = vec![0.0; self.k()];
        for run in 0..self.runs {
            let mut rng = ChaCha20Rng::seed_from_u64(1_000_000 + run);
            let people = self.participants(&mut rng)?;
            let path = NoisePath::FromSum;
            let (moment, _) = noisy_sum(&self.params, &people, n, path, &mut rng, &mut |_| Ok(()))?;
            let found = eigenveil_estimation::pca::pca(&moment.dense(), self.k())?;
            for k in 1..=self.k() {
                let (ours, true_ones) = (found.vectors.columns(0, k), people.truth().columns(0, k));
                let error = projector_distance(&ours.into_owned(), &true_ones.into_owned())?;
                squares[k - 1] += error * error / self.runs as f64;
            }
        }
        let truth: Arc<Vec<f64>> = Arc::new(squares.into_iter().map(f64::sqrt).collect());
        known.insert(n, Arc::clone(&truth));
        Ok(truth)
    }
}

/// One pilot: for each class of gaps the number of its components, of them those whose range holds the truth at n, 4n
/// and 16n, and the sum of the logarithms of expected over true error at n and 16n.
fn pilot(setting: &Setting, n: u64, repeat: u64) -> Result<Vec<Point>> {
    let mut rng = ChaCha20Rng::seed_from_u64(repeat);
    let people = setting.participants(&mut rng)?;
    let path = NoisePath::FromSum;
    let (moment, _) = noisy_sum(&setting.params, &people, n, path, &mut rng, &mut |_| Ok(()))?;
    let found = principal_components(&moment, ComponentCount::Fixed(setting.k()), "")?;
    let mut classes = [[0.0; 6]; GAPS.len()];
    if let Some(spectrum) = &found.floor_report.spectrum {
        for k in 1..=setting.k().min(spectrum.standing.len()) {
            let range = SpectrumRange::of(spectrum, n as f64, k)?;
            let gap = gap_after(spectrum, n as f64, k)?;
            let class = GAPS.iter().rposition(|&least| gap >= least).unwrap_or(0);
            classes[class][0] += 1.0;
            for (i, factor) in FACTORS.iter().enumerate() {
                let said = range.error(moment.noise(), (factor * n) as f64)?;
                let truth = setting.truth(factor * n)?[k - 1];
                classes[class][1 + i] +=
                    f64::from(u8::from(said.low <= truth && truth <= said.high));
                match factor {
                    1 => classes[class][4] += (said.central / truth).ln(),
                    16 => classes[class][5] += (said.central / truth).ln(),
                    _ => {}
                }
            }
        }
    }
    let points = GAPS.iter().zip(classes).map(|(gap, sums)| Point {
        at: Some(*gap),
        values: sums.to_vec(),
    });
    Ok(points.collect())
}

/// One study with `k = auto`: k, whether it is open, the squares of what it says and of its error, whether its end is
/// sure, and whether there is nothing to end at.
fn automatic(setting: &Setting, n: u64, repeat: u64) -> Result<Vec<Point>> {
    let mut rng = ChaCha20Rng::seed_from_u64(repeat);
    let people = setting.participants(&mut rng)?;
    let path = NoisePath::FromSum;
    let (moment, clean) = noisy_sum(&setting.params, &people, n, path, &mut rng, &mut |_| Ok(()))?;
    let found = principal_components(&moment, ComponentCount::Auto, "")?;
    let k = found.vectors.ncols();
    let error = match k {
        0 => 0.0,
        _ => {
            let truth = Participants::draw(
                &RowSource::Rows(&setting.rows),
                k,
                &setting.params,
                &mut rng,
            )?;
            projector_distance(&found.vectors, truth.truth())?
        }
    };
    // A sure end, and whether the true gap there is below 2√V: nothing to end at.
    let (mut sure, mut cut) = (false, false);
    if let Some(spectrum) = &found.floor_report.spectrum
        && (1..=spectrum.standing.len()).contains(&k)
    {
        let eigen = symmetric_eigenvalues(&clean.dense())?;
        sure = gap_after(spectrum, n as f64, k)? >= SURE_GAP;
        cut = sure && gap_between(spectrum, n as f64, (eigen[k - 1], eigen[k]))? < 1.0;
    }
    let number = |yes: bool| f64::from(u8::from(yes));
    let said = found.floor_report.expected_error;
    Ok(vec![Point::single([
        k as f64,
        number(found.k_is_open),
        said * said,
        error * error,
        number(sure),
        number(cut),
    ])])
}

type Work = fn(&Setting, u64, u64) -> Result<Vec<Point>>;

fn plan(data: &Data, size: RunSize, work: Work, repeats: u64) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    let sizes: &[u64] = size.choose(&[20_000], &[5_000, 20_000]);
    let settings: &[(MechanismKind, f64, Option<f64>)] = size.choose(
        &[(DoubleCap, 4.0, None)],
        &[
            (DoubleCap, 4.0, None),
            (DoubleCap, 1.0, None),
            (IsotropicGaussian, 4.0, None),
            (DoubleCap, 4.0, Some(DEFAULT_CENTRING)),
        ],
    );
    for (number, file) in TABLES.into_iter().enumerate() {
        if number >= 2 && !data.has(file) {
            continue;
        }
        let rows = standardized(&data.raw(file)?);
        for &(mechanism, epsilon, centring) in settings {
            let p = rows[0].values().len();
            let budget = mechanism.budget(epsilon, None)?;
            let params = StudyParams::freeze(StudyDesign {
                norm: Norm::Normalize,
                centring,
                ..StudyDesign::new(mechanism, p, budget)
            })?;
            let setting = Arc::new(Setting {
                rows: rows.clone(),
                params,
                // A few directions make the error of a few features: it varies more from run to run.
                runs: size.choose(10, 40) * if p < 20 { 5 } else { 1 },
                truth: Mutex::default(),
            });
            for &n in sizes {
                let setting = Arc::clone(&setting);
                let table = file.trim_end_matches(".npy");
                let centred = if centring.is_some() {
                    "private"
                } else {
                    "public"
                };
                plan.cells.push(Cell::new(
                    [&table, &mechanism, &epsilon, &centred, &n],
                    repeats,
                    move |repeat| work(&setting, n, repeat),
                ));
            }
        }
    }
    Ok(plan)
}

/// Columns divided by their standard deviation around their mean; constant ones stay 0.
pub(super) fn standardized(raw: &[Row]) -> Vec<Row> {
    let n = raw.len() as f64;
    let p = raw.first().map_or(0, |row| row.values().len());
    let column = |j: usize| raw.iter().map(move |row| row.values()[j]);
    let moments: Vec<(f64, f64)> = (0..p)
        .map(|j| {
            let mean = column(j).sum::<f64>() / n;
            let variance = column(j).map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            (mean, if variance > 0.0 { variance.sqrt() } else { 1.0 })
        })
        .collect();
    let scaled = |row: &Row| {
        let values = row.values().iter().zip(&moments);
        Row::new(values.map(|(x, (mean, sd))| (x - mean) / sd).collect())
    };
    raw.iter().map(scaled).collect()
}

fn plan_ranges(data: &Data, size: RunSize) -> Result<RunPlan> {
    plan(data, size, pilot, size.choose(5, 20))
}

fn plan_auto(data: &Data, size: RunSize) -> Result<RunPlan> {
    plan(data, size, automatic, size.choose(20, 100))
}

/// Pairs of pilot and k in these records, and the share of their ranges that hold the truth at n, 4n and 16n.
fn coverage(records: &[&Record]) -> (f64, [f64; 3]) {
    let sum = |column: &str| -> f64 {
        let counts = records
            .iter()
            .map(|r| r.number(column) * r.number("repeats"));
        counts.sum()
    };
    let pairs = sum("pairs_mean");
    let covered = ["held_1_mean", "held_4_mean", "held_16_mean"].map(|column| sum(column) / pairs);
    (pairs, covered)
}

fn of_class(table: &Table, gap: f64) -> Vec<&Record> {
    let records = table.records().iter();
    records
        .filter(|r| r.number("gap") == gap && r.number("pairs_mean") > 0.0)
        .collect()
}

fn check_ranges(table: &Table) -> Verdict {
    GAPS.iter().fold(Verdict::default(), |verdict, &gap| {
        let (pairs, covered) = coverage(&of_class(table, gap));
        let worst = covered.into_iter().fold(1.0, f64::min);
        verdict.with(
            format!("with a gap of {gap} or more (in 2√V) nine ranges of ten hold the true error"),
            pairs == 0.0 || worst >= MIN_COVERAGE,
            format!(
                "{} of {pairs:.0} at n, {} at 4n, {} at 16n",
                digits(covered[0], 3),
                digits(covered[1], 3),
                digits(covered[2], 3)
            ),
        )
    })
}

/// Root mean square of what is said over that of the errors.
fn said_over_true(record: &Record) -> f64 {
    (record.number("said_squared_mean") / record.number("error_squared_mean")).sqrt()
}

/// Share of the sure ends where there is nothing to end at.
fn cut_share(record: &Record) -> f64 {
    record.number("cut_mean") / record.number("sure_mean")
}

fn check_auto(table: &Table) -> Verdict {
    let records = table.records();
    let ratios = records
        .iter()
        .map(|r| (said_over_true(r), r.number("open_mean")));
    let low = ratios
        .clone()
        .map(|(ratio, _)| ratio)
        .fold(f64::INFINITY, f64::min);
    // What is open says the cautious end of its range.
    let settled = ratios.clone().filter(|(_, open)| *open <= MAX_OPEN);
    let high = settled.clone().map(|(ratio, _)| ratio).fold(0.0, f64::max);
    let open = ratios.map(|(ratio, _)| ratio).fold(0.0, f64::max);
    let sure = records
        .iter()
        .filter(|r| r.number("sure_mean") * r.number("repeats") >= 20.0);
    let cut = sure.map(cut_share).fold(0.0, f64::max);
    Verdict::default()
        .with(
            "the root mean square of what `k = auto` says is that of its errors, within 15 %, where few studies are open",
            low > 1.0 - MAX_DEVIATION && high < 1.0 + MAX_DEVIATION,
            format!(
                "{} to {} over {} settings; {} where more than a tenth are open, which say their cautious end",
                digits(low, 3),
                digits(high, 3),
                settled.count(),
                digits(open, 3)
            ),
        )
        .with(
            "at most 5 % of sure ends are where the true gap is below 2√V",
            cut <= 0.05,
            format!("at most {} %", digits(100.0 * cut, 2)),
        )
}

fn svg_ranges(table: &Table) -> String {
    let line = |(name, place): (&str, usize)| {
        let points = GAPS
            .iter()
            .map(|&gap| (gap, coverage(&of_class(table, gap)).1[place]));
        Series::new(name, points.filter(|(_, share)| share.is_finite()))
    };
    sweep::chart(
        "Ranges that hold the true error",
        Axis::linear("gap after component k, in 2√V: from"),
        Axis::linear("share"),
        [("at n", 0), ("at 4n", 1), ("at 16n", 2)]
            .into_iter()
            .map(line),
        [("nine of ten".to_owned(), MIN_COVERAGE)],
    )
}

fn svg_auto(table: &Table) -> String {
    let root = |record: &Record, column: &str| record.number(column).sqrt();
    let scatter = |name| {
        let records = table.records().iter().filter(|r| r.text("table") == name);
        let point = |r: &Record| (root(r, "error_squared_mean"), root(r, "said_squared_mean"));
        Series::new(name, records.map(point)).with_style(LineStyle::None)
    };
    let errors = || {
        table
            .records()
            .iter()
            .map(|r| root(r, "error_squared_mean"))
    };
    let (low, high) = (
        errors().fold(f64::INFINITY, f64::min),
        errors().fold(0.0, f64::max),
    );
    let diagonal = Series::new("as said", [(low, low), (high, high)]);
    let scatters = table.values("table").into_iter().map(scatter);
    sweep::chart(
        "k = auto: what it says of its error, over its error (root mean squares)",
        Axis::log("error"),
        Axis::log("expected error"),
        scatters.chain([diagonal.with_style(LineStyle::Dotted)]),
        [],
    )
}

fn markdown_ranges(table: &Table) -> String {
    let rows = GAPS.iter().map(|&gap| {
        let records = of_class(table, gap);
        let (pairs, covered) = coverage(&records);
        let factor = |column: &str| {
            let sum: f64 = records
                .iter()
                .map(|r| r.number(column) * r.number("repeats"))
                .sum();
            digits((sum / pairs).exp(), 3)
        };
        format!(
            "{gap} | {pairs:.0} | {} | {} | {}",
            covered.map(|share| digits(share, 3)).join(" · "),
            factor("log_ratio_1_mean"),
            factor("log_ratio_16_mean")
        )
    });
    let heads = "gap from (2√V) | pilots × k | holds the truth at n · 4n · 16n | expected/true at n | at 16n";
    sweep::grid(heads, rows)
}

fn markdown_auto(table: &Table) -> String {
    let rows = table.records().iter().map(|r| {
        let setting =
            ["table", "mechanism", "epsilon", "centring", "n"].map(|column| r.text(column));
        format!(
            "{} | {} | {} % | {} | {} | {} | {} %",
            setting.join(" | "),
            digits(r.number("k_mean"), 2),
            digits(100.0 * r.number("open_mean"), 2),
            digits(r.number("said_squared_mean").sqrt(), 3),
            digits(r.number("error_squared_mean").sqrt(), 3),
            digits(said_over_true(r), 3),
            digits(100.0 * cut_share(r), 2)
        )
    });
    let heads = "table | mechanism | ε | centring | n | k | open | said | true | said/true | sure ends at nothing";
    sweep::grid(heads, rows)
}

pub(crate) const EXPECTED_ERROR: Exhibit = Exhibit {
    id: "own-expected-error",
    item: "the expected error and its range (ours)",
    caption: "how often the range holds the true error, at the study's n and at others",
    minutes: Minutes::new(1.0, 60.0),
    data: &["breast_cancer.npy", "digits.npy"],
    key_columns: &["table", "mechanism", "epsilon", "centring", "n"],
    coordinate: Some("gap"),
    measures: &[
        "pairs",
        "held_1",
        "held_4",
        "held_16",
        "log_ratio_1",
        "log_ratio_16",
    ],
    plan: plan_ranges,
    check_claims: check_ranges,
    to_svg: svg_ranges,
    to_markdown: markdown_ranges,
    ..Exhibit::of_paper(Paper::Ours)
};

pub(crate) const AUTO: Exhibit = Exhibit {
    id: "own-auto",
    item: "the number of components (ours)",
    caption: "`k = auto`: what it chooses, what it says of its error, and the error",
    coordinate: None,
    measures: &["k", "open", "said_squared", "error_squared", "sure", "cut"],
    plan: plan_auto,
    check_claims: check_auto,
    to_svg: svg_auto,
    to_markdown: markdown_auto,
    ..EXPECTED_ERROR
};
