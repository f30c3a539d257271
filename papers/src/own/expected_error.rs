//! What a study says of its own error, against the error that it has: the expected error with its range at n, 4n and
//! 16n, and `k = auto`.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::{Arc, Mutex, PoisonError},
};

use eigenveil_estimation::{
    Cancel, ComponentsReport,
    floor::{SURE_GAP, SpectrumRange, gap_after, gap_between},
    linalg::symmetric_eigenvalues,
    metrics::projector_distance,
    models::Model,
    moment::NoisyMoment,
    pca::pca,
    principal_components,
    simulate::SimulatedParticipants,
    sparse_components,
};
use eigenveil_figures::{Axis, LineStyle, Series};
use eigenveil_shared::{
    Result,
    api::SparseSettings,
    estimate::ComponentCount,
    mechanism::MechanismKind::{self, DoubleCap, IsotropicGaussian},
    preprocess::{DEFAULT_CENTRING, Norm, Row},
    study::{StudyDesign, StudyParams},
};
use rand::{SeedableRng, rngs::ChaCha20Rng};

use crate::{
    Cell, Data, Exhibit, Minutes, Paper, PaperVerdict, Point, Record, RunPlan, RunSize, Table,
    number::digits,
    runs::{Source, noisy_moment},
    sweep,
};

/// Tables of people, each column divided by its standard deviation around its mean. Those after the first two, which
/// `papers/tables.py` writes, are left out where they are not there.
const TABLES: [&str; 6] = [
    "breast_cancer.npy",
    "digits.npy",
    "wine.npy",
    "iris.npy",
    "diabetes.npy",
    "classification.npy",
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
/// Further than this from 0 is not chance.
const MAX_STANDARD_ERRORS: f64 = 3.0;
/// Studies of a kind, at least, where something is claimed of them.
const MIN_STUDIES: f64 = 20.0;
/// The requested rank, where it is not a number of components.
const AUTO_K: &str = "auto";
/// Components that `classification`, of 12 directions in 31 features, has apart from each other: at most.
const MOST_OF_CLASSIFICATION: usize = 4;

/// Sparse components: two, in ten of a hundred features.
const SPARSE_P: usize = 100;
const SPARSE_K: usize = 2;
const SPARSE_MODEL: Model = Model::sparse(SPARSE_P, SPARSE_K, 10, 20.0);
/// Its place in the column of tables.
const SPARSE: &str = "sparse model";

/// A population with a study's parameters. That of a model has the sparse estimator, for all of its components only:
/// they are equal.
struct Setting {
    source: Source,
    params: StudyParams,
    runs: u64,
    /// Root mean squared error for each k by the number of participants, when it was first needed.
    truth: Mutex<BTreeMap<u64, Arc<Vec<f64>>>>,
}

impl Setting {
    /// Components asked for.
    fn ks(&self) -> RangeInclusive<usize> {
        match self.source {
            Source::Rows(_) => 1..=MAX_COMPONENTS.min(self.params.dimension() - 1),
            Source::Model(_) => SPARSE_K..=SPARSE_K,
        }
    }

    /// Participants of the population, the same each time, with its first `k` components.
    fn participants(&self, k: usize) -> Result<SimulatedParticipants<'_>> {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        SimulatedParticipants::draw(&self.source.rows(), k, &self.params, &mut rng)
    }

    fn components(&self, moment: &NoisyMoment, k: ComponentCount) -> Result<ComponentsReport> {
        let refit = SparseSettings::default();
        match self.source {
            Source::Rows(_) => principal_components(moment, k, ""),
            Source::Model(_) => sparse_components(moment, k, &refit, "", Cancel::NEVER),
        }
    }

    /// Root mean squared error of `n` participants, for k = 1, 2, ….
    fn truth(&self, n: u64) -> Result<Arc<Vec<f64>>> {
        // Held while it is computed: everybody needs it.
        let mut known = self.truth.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(truth) = known.get(&n) {
            return Ok(Arc::clone(truth));
        }
        let most = *self.ks().end();
        let people = self.participants(most)?;
        let mut squares = vec![0.0; most];
        for run in 0..self.runs {
            let mut rng = ChaCha20Rng::seed_from_u64(1_000_000 + run);
            let (moment, _) = noisy_moment(&self.params, &people, n, &mut rng)?;
            let components = match self.source {
                Source::Rows(_) => pca(&moment.dense(), most)?.vectors,
                Source::Model(_) => {
                    self.components(&moment, ComponentCount::Fixed(most))?
                        .vectors
                }
            };
            for k in self.ks() {
                let (ours, true_ones) = (components.columns(0, k), people.truth().columns(0, k));
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
    let most = *setting.ks().end();
    let people = setting.participants(most)?;
    let (moment, _) = noisy_moment(&setting.params, &people, n, &mut rng)?;
    let components = setting.components(&moment, ComponentCount::Fixed(most))?;
    let mut classes = [[0.0; 6]; GAPS.len()];
    if let Some(spectrum) = &components.floor_report.spectrum {
        for k in setting.ks().filter(|k| *k <= spectrum.standing.len()) {
            let range = SpectrumRange::of(spectrum, n as f64, k)?;
            let gap = gap_after(spectrum, n as f64, k)?;
            let class = GAPS.iter().rposition(|&least| gap >= least).unwrap_or(0);
            classes[class][0] += 1.0;
            for (i, factor) in FACTORS.iter().enumerate() {
                let predicted = range.error(moment.noise(), (factor * n) as f64)?;
                let truth = setting.truth(factor * n)?[k - 1];
                classes[class][1 + i] +=
                    f64::from(u8::from(predicted.low <= truth && truth <= predicted.high));
                match factor {
                    1 => classes[class][4] += (predicted.central / truth).ln(),
                    16 => classes[class][5] += (predicted.central / truth).ln(),
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

/// One study: k, and whether it is open; where it is not, the squares of what it says and of its error, and their
/// difference; where it is, whether its error is below the range's upper end; whether its end is sure,
/// whether there is nothing to end at, and whether k exceeds what the table called `classification` has.
fn study(setting: &Setting, n: u64, k: ComponentCount, repeat: u64) -> Result<Vec<Point>> {
    let mut rng = ChaCha20Rng::seed_from_u64(repeat);
    let people = setting.participants(1)?;
    let (moment, clean) = noisy_moment(&setting.params, &people, n, &mut rng)?;
    let components = setting.components(&moment, k)?;
    let k = components.vectors.ncols();
    let error = match k {
        0 => 0.0,
        k => projector_distance(&components.vectors, setting.participants(k)?.truth())?,
    };
    // A sure end, and whether the true gap there is below 2√V: nothing to end at.
    let (mut sure, mut cut) = (false, false);
    if let Some(spectrum) = &components.floor_report.spectrum
        && (1..=spectrum.standing.len()).contains(&k)
    {
        let eigen = symmetric_eigenvalues(&clean.dense())?;
        sure = gap_after(spectrum, n as f64, k)? >= SURE_GAP;
        cut = sure && gap_between(spectrum, n as f64, (eigen[k - 1], eigen[k]))? < 1.0;
    }
    let number = |yes: bool| f64::from(u8::from(yes));
    // Without components nothing is said, and nothing is wrong.
    let report = &components.floor_report;
    let error_and_range = match k {
        0 => Some((0.0, (0.0, 0.0))),
        _ => report.expected_error.zip(report.expected_error_range),
    };
    let (predicted, (_, most)) = error_and_range.unwrap_or((f64::NAN, (f64::NAN, f64::NAN)));
    let (open, settled) = (components.k_is_open, number(!components.k_is_open));
    Ok(vec![Point::single([
        k as f64,
        number(open),
        settled * predicted.powi(2),
        settled * error.powi(2),
        settled * (predicted.powi(2) - error.powi(2)),
        number(open && error <= most),
        number(sure),
        number(cut),
        number(k > MOST_OF_CLASSIFICATION),
    ])])
}

/// Key and population of each setting.
fn settings(data: &Data, size: RunSize) -> Result<Vec<([String; 4], Arc<Setting>)>> {
    let mut found = Vec::new();
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
        let rows = Arc::new(standardized(&data.raw(file)?));
        for &(mechanism, epsilon, centring) in settings {
            let p = rows[0].values().len();
            let budget = mechanism.budget(epsilon, None)?;
            let params = StudyParams::freeze(StudyDesign {
                norm: Norm::Normalize,
                centring,
                ..StudyDesign::new(mechanism, p, budget)
            })?;
            let setting = Arc::new(Setting {
                source: Source::Rows(Arc::clone(&rows)),
                params,
                // A few directions make the error of a few features: it varies more from run to run.
                runs: size.choose(10, 40) * if p < 20 { 5 } else { 1 },
                truth: Mutex::default(),
            });
            let table = file.trim_end_matches(".npy");
            let centred = centring.map_or("public", |_| "private");
            let key: [&dyn ToString; 4] = [&table, &mechanism, &epsilon, &centred];
            found.push((key.map(ToString::to_string), setting));
        }
    }
    Ok(found)
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

fn sparse_setting(size: RunSize) -> Result<([String; 4], Arc<Setting>)> {
    let budget = DoubleCap.budget(4.0, None)?;
    let setting = Setting {
        source: Source::Model(SPARSE_MODEL),
        params: StudyParams::freeze(StudyDesign::new(DoubleCap, SPARSE_P, budget))?,
        runs: size.choose(10, 40),
        truth: Mutex::default(),
    };
    let key = [SPARSE, DoubleCap.as_str(), "4", "public"];
    Ok((key.map(str::to_owned), Arc::new(setting)))
}

fn plan_ranges(data: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    let mut all = settings(data, size)?;
    all.push(sparse_setting(size)?);
    for ([table, mechanism, epsilon, centring], setting) in all {
        for &n in size.choose(&[20_000][..], &[5_000, 20_000]) {
            let setting = Arc::clone(&setting);
            plan.cells.push(Cell::new(
                [&table, &mechanism, &epsilon, &centring, &n],
                size.choose(5, 20),
                move |repeat| pilot(&setting, n, repeat),
            ));
        }
    }
    Ok(plan)
}

fn plan_auto(data: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    for ([table, mechanism, epsilon, centring], setting) in settings(data, size)? {
        for &n in size.choose(&[20_000][..], &[5_000, 20_000]) {
            for (asked, k, repeats) in [
                (AUTO_K, ComponentCount::Auto, size.choose(20, 100)),
                ("3", ComponentCount::Fixed(3), 20),
            ] {
                let setting = Arc::clone(&setting);
                plan.cells.push(Cell::new(
                    [&table, &mechanism, &epsilon, &centring, &n, &asked],
                    repeats,
                    move |repeat| study(&setting, n, k, repeat),
                ));
            }
        }
    }
    Ok(plan)
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

/// Records of plain components.
fn of_class(table: &Table, gap: f64) -> Vec<&Record> {
    let records = table.records().iter();
    records
        .filter(|r| r.text("table") != SPARSE && r.number("gap") == gap)
        .filter(|r| r.number("pairs_mean") > 0.0)
        .collect()
}

fn of_sparse(table: &Table) -> Vec<&Record> {
    let records = table.records().iter();
    records
        .filter(|r| r.text("table") == SPARSE && r.number("pairs_mean") > 0.0)
        .collect()
}

fn check_ranges(table: &Table) -> PaperVerdict {
    let claim = |verdict: PaperVerdict, says: String, records: &[&Record]| {
        let (pairs, covered) = coverage(records);
        let worst = covered.into_iter().fold(1.0, f64::min);
        verdict.with_claim(
            says,
            pairs == 0.0 || worst >= MIN_COVERAGE,
            format!(
                "{} of {pairs:.0} at n, {} at 4n, {} at 16n",
                digits(covered[0], 3),
                digits(covered[1], 3),
                digits(covered[2], 3)
            ),
        )
    };
    let plain = GAPS.iter().fold(PaperVerdict::default(), |verdict, &gap| {
        let says =
            format!("with a gap of {gap} or more (in 2√V) nine ranges of ten hold the true error");
        claim(verdict, says, &of_class(table, gap))
    });
    let says = "of sparse estimates nine ranges of ten hold the true error";
    claim(plain, says.to_owned(), &of_sparse(table))
}

/// Root mean squares of what settled studies say and of their errors.
fn said_and_true(record: &Record) -> (f64, f64) {
    let settled = 1.0 - record.number("open_mean");
    let root = |column| (record.number(column) / settled).sqrt();
    (root("said_squared_mean"), root("error_squared_mean"))
}

fn said_over_true(record: &Record) -> f64 {
    let (said, truth) = said_and_true(record);
    said / truth
}

/// Mean square of what is said less that of the errors, in standard errors of the difference.
fn z(record: &Record) -> f64 {
    let error = record.number("excess_sd") / record.number("repeats").sqrt();
    record.number("excess_mean") / error
}

/// Share of the sure ends where there is nothing to end at.
fn cut_share(record: &Record) -> f64 {
    record.number("cut_mean") / record.number("sure_mean")
}

fn check_auto(table: &Table) -> PaperVerdict {
    let records: Vec<&Record> = table.matching(&[("asked", AUTO_K)]).collect();
    let studies = |r: &Record, column: &str| r.number(column) * r.number("repeats");
    let settled = |r: &&&Record| r.number("repeats") - studies(r, "open_mean") >= MIN_STUDIES;
    let settled: Vec<&Record> = records.iter().filter(settled).copied().collect();
    let ratios = || settled.iter().map(|r| said_over_true(r));
    let (low, high) = (
        ratios().fold(f64::INFINITY, f64::min),
        ratios().fold(0.0, f64::max),
    );
    let is_apart = |r: &&&Record| {
        (said_over_true(r) - 1.0).abs() > MAX_DEVIATION && z(r).abs() > MAX_STANDARD_ERRORS
    };
    let apart = settled.iter().filter(is_apart).count();
    let beyond_fifteen = ratios()
        .filter(|ratio| (ratio - 1.0).abs() > MAX_DEVIATION)
        .count();
    let open: f64 = records.iter().map(|r| studies(r, "open_mean")).sum();
    let held: f64 = records.iter().map(|r| studies(r, "held_mean")).sum();
    let sure = records
        .iter()
        .filter(|r| studies(r, "sure_mean") >= MIN_STUDIES);
    let cut = sure.map(|r| cut_share(r)).fold(0.0, f64::max);
    let of_classification = records
        .iter()
        .filter(|r| r.text("table") == "classification");
    let beyond = of_classification.map(|r| r.number("beyond_four_mean"));
    let beyond = beyond.fold(0.0, f64::max);
    PaperVerdict::default()
        .with_claim(
            "where `k = auto` is settled, the root mean square of what it says is that of its errors, within 15 % or three standard errors",
            apart == 0,
            format!(
                "{} to {} over {} settings, {beyond_fifteen} beyond 15 %, {apart} of them by more than three standard errors",
                digits(low, 3),
                digits(high, 3),
                settled.len()
            ),
        )
        .with_claim(
            "where it is open, the error is below the upper end of its range in nine studies of ten",
            open == 0.0 || held / open >= MIN_COVERAGE,
            format!("{} % of {open:.0}", digits(100.0 * held / open, 3)),
        )
        .with_claim(
            "at most 5 % of sure ends are where the true gap is below 2√V",
            cut <= 0.05,
            format!("at most {} %", digits(100.0 * cut, 2)),
        )
        .with_claim(
            "of `classification` no study says more than four components",
            beyond == 0.0,
            format!("at most {} % do", digits(100.0 * beyond, 2)),
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
    let scatter = |name| {
        let wanted = [("asked", AUTO_K), ("table", name)];
        let points = table
            .matching(&wanted)
            .map(said_and_true)
            .map(|(said, truth)| (truth, said));
        let points = points.filter(|(truth, said)| *truth > 0.0 && *said > 0.0);
        Series::new(name, points).with_style(LineStyle::None)
    };
    let errors = || {
        let records = table.matching(&[("asked", AUTO_K)]);
        records.map(|r| said_and_true(r).1).filter(|e| *e > 0.0)
    };
    let (low, high) = (
        errors().fold(f64::INFINITY, f64::min),
        errors().fold(0.0, f64::max),
    );
    let diagonal = Series::new("as said", [(low, low), (high, high)]);
    let scatters = table.values("table").into_iter().map(scatter);
    sweep::chart(
        "k = auto, where it is settled: what it says of its error, over its error (root mean squares)",
        Axis::log("error"),
        Axis::log("expected error"),
        scatters.chain([diagonal.with_style(LineStyle::Dotted)]),
        [],
    )
}

fn markdown_ranges(table: &Table) -> String {
    let row = |name: String, records: &[&Record]| {
        let (pairs, covered) = coverage(records);
        let factor = |column: &str| {
            let sum: f64 = records
                .iter()
                .map(|r| r.number(column) * r.number("repeats"))
                .sum();
            digits((sum / pairs).exp(), 3)
        };
        format!(
            "{name} | {pairs:.0} | {} | {} | {}",
            covered.map(|share| digits(share, 3)).join(" · "),
            factor("log_ratio_1_mean"),
            factor("log_ratio_16_mean")
        )
    };
    let rows = GAPS
        .iter()
        .map(|&gap| row(gap.to_string(), &of_class(table, gap)));
    let heads = "gap from (2√V) | pilots × k | holds the truth at n · 4n · 16n | expected/true at n | at 16n";
    sweep::grid(
        heads,
        rows.chain([row("sparse".to_owned(), &of_sparse(table))]),
    )
}

fn markdown_auto(table: &Table) -> String {
    let rows = table.records().iter().map(|r| {
        let setting = ["table", "mechanism", "epsilon", "centring", "n", "asked"]
            .map(|column| r.text(column));
        let (said, truth) = said_and_true(r);
        format!(
            "{} | {} | {} % | {} % | {} | {} | {} | {} | {} %",
            setting.join(" | "),
            digits(r.number("k_mean"), 2),
            digits(100.0 * r.number("open_mean"), 2),
            digits(100.0 * r.number("held_mean") / r.number("open_mean"), 3),
            digits(said, 3),
            digits(truth, 3),
            digits(said_over_true(r), 3),
            digits(z(r), 2),
            digits(100.0 * cut_share(r), 2)
        )
    });
    let heads = "table | mechanism | ε | centring | n | asked for | k | open | of them below the upper end | said | true | said/true | z | sure ends at nothing";
    sweep::grid(heads, rows)
}

pub(crate) const EXPECTED_ERROR: Exhibit = Exhibit {
    id: "own-expected-error",
    item: "the expected error and its range (ours)",
    caption: "how often the range holds the true error, at the study's n and at others",
    minutes: Minutes::new(1.0, 60.0),
    data: &["breast_cancer.npy", "digits.npy"],
    key_columns: "table mechanism epsilon centring n",
    coordinate: Some("gap"),
    measures: "pairs held_1 held_4 held_16 log_ratio_1 log_ratio_16",
    plan: plan_ranges,
    check_claims: check_ranges,
    to_svg: svg_ranges,
    to_markdown: markdown_ranges,
    ..Exhibit::of_paper(Paper::Ours)
};

pub(crate) const AUTO: Exhibit = Exhibit {
    id: "own-auto",
    item: "the number of components (ours)",
    caption: "`k = auto` and k = 3: what is chosen, what it says of its error, and the error",
    key_columns: "table mechanism epsilon centring n asked",
    coordinate: None,
    measures: "k open said_squared error_squared excess held sure cut beyond_four",
    plan: plan_auto,
    check_claims: check_auto,
    to_svg: svg_auto,
    to_markdown: markdown_auto,
    ..EXPECTED_ERROR
};
