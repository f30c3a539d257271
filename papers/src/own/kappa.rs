//! The constant of `--lambda auto`, found by experiment.
//!
//! λ = κ·s·√(2 ln(p(p−1)/2)/n), s the off-diagonal standard deviation of one report. For each setting and κ: the error
//! of the relaxed solution, of PCA refitted on its selected features, and of plain PCA on the same reports.

use eigenveil_estimation::{
    Cancel,
    fantope::{
        self, AdmmSettings, automatic_lambda,
        lambda::{KAPPA, KAPPA_REFIT},
    },
    metrics::{projector_distance, support_score},
    models::Model,
    pca::pca,
    simulate::{RowSource, SimulatedParticipants},
};
use eigenveil_figures::{Axis, Series};
use eigenveil_shared::{
    Result,
    mechanism::{
        Calibration,
        MechanismKind::{self, DoubleCap, IsotropicGaussian},
    },
    preprocess::Norm,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha20Rng};

use crate::{
    Cell, Data, Exhibit, Minutes, Paper, PaperVerdict, Point, RunPlan, RunSize, Table,
    number::digits,
    runs::{noisy_moment, params},
    sweep,
};

const KAPPAS: [f64; 7] = [0.15, 0.2, 0.25, 0.35, 0.5, 0.7, 1.0];

/// mechanism, p, s, k, n, ε, spike: components from weak to strong.
type Setting = (MechanismKind, usize, usize, usize, u64, f64, f64);
const SETTINGS: [Setting; 16] = [
    (DoubleCap, 100, 10, 2, 20_000, 4.0, 20.0),
    (IsotropicGaussian, 100, 10, 2, 30_000, 4.0, 20.0),
    (DoubleCap, 100, 10, 2, 50_000, 2.0, 60.0),
    (DoubleCap, 100, 30, 5, 100_000, 4.0, 60.0),
    (DoubleCap, 100, 30, 5, 100_000, 8.0, 20.0),
    (DoubleCap, 200, 15, 3, 30_000, 4.0, 60.0),
    (DoubleCap, 200, 15, 3, 100_000, 2.0, 60.0),
    (DoubleCap, 200, 15, 3, 100_000, 4.0, 20.0),
    (DoubleCap, 200, 30, 5, 50_000, 8.0, 20.0),
    (DoubleCap, 200, 30, 5, 100_000, 4.0, 60.0),
    (DoubleCap, 400, 20, 3, 100_000, 4.0, 60.0),
    (IsotropicGaussian, 100, 10, 2, 300_000, 2.0, 20.0),
    (IsotropicGaussian, 100, 30, 5, 300_000, 8.0, 20.0),
    (IsotropicGaussian, 200, 15, 3, 100_000, 2.0, 60.0),
    (IsotropicGaussian, 200, 15, 3, 100_000, 4.0, 60.0),
    (IsotropicGaussian, 200, 15, 3, 1_000_000, 2.0, 20.0),
];
/// Number of settings of a quick run: the first ones, with p at most 200.
const QUICK_SETTINGS: usize = 10;

/// A point for each κ.
fn errors(setting: Setting, repeat: u64) -> Result<Vec<Point>> {
    let (mechanism, p, s, k, n, epsilon, spike) = setting;
    let analytic = Calibration::Analytic;
    let params = params(p, Norm::Normalize, mechanism, analytic, epsilon, None)?;
    let mut rng = ChaCha20Rng::seed_from_u64(2026 + repeat);
    let model = RowSource::Model(Model::sparse(p, k, s, spike));
    let people = SimulatedParticipants::draw(&model, k, &params, &mut rng)?;
    let (noisy, _) = noisy_moment(&params, &people, n, &mut rng)?;
    let moment = noisy.dense();
    let distance = |v: &DMatrix<f64>| projector_distance(v, people.truth());
    let plain = distance(&pca(&moment, k)?.vectors)?;
    let unit = automatic_lambda(noisy.noise(), p, n as f64, false)? / KAPPA;
    let settings = AdmmSettings {
        tolerance: 1e-4,
        max_iterations: 400,
        ..AdmmSettings::default()
    };
    KAPPAS
        .iter()
        .map(|kappa| {
            let solution = fantope::solve(&moment, k, kappa * unit, &settings, Cancel::NEVER)?;
            let refitted = fantope::refit(&moment, &solution.support, k)?;
            let score = support_score(&solution.support, people.support().unwrap_or_default());
            Ok(Point {
                at: Some(*kappa),
                values: vec![
                    plain,
                    distance(&solution.vectors)?,
                    distance(&refitted)?,
                    score.precision,
                    score.recall,
                ],
            })
        })
        .collect()
}

fn plan(_: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    for &setting in &SETTINGS[..size.choose(QUICK_SETTINGS, SETTINGS.len())] {
        let (mechanism, p, s, k, n, epsilon, spike) = setting;
        plan.cells.push(Cell::new(
            [&mechanism, &p, &s, &k, &n, &epsilon, &spike],
            5,
            move |repeat| errors(setting, repeat),
        ));
    }
    Ok(plan)
}

/// For each κ the geometric mean over the settings of the error over that of the setting's best κ.
fn error_ratios(table: &Table, measure: &str) -> [f64; KAPPAS.len()] {
    let column = format!("{measure}_mean");
    let mut logarithms = [0.0; KAPPAS.len()];
    let settings: Vec<_> = table.records().chunks(KAPPAS.len()).collect();
    for setting in &settings {
        let errors: Vec<f64> = setting.iter().map(|r| r.number(&column)).collect();
        let best = errors.iter().copied().fold(f64::INFINITY, f64::min);
        for (sum, error) in logarithms.iter_mut().zip(errors) {
            *sum += (error / best).ln() / settings.len() as f64;
        }
    }
    logarithms.map(f64::exp)
}

fn check_claims(table: &Table) -> PaperVerdict {
    let mut verdict = PaperVerdict::default();
    for (measure, chosen) in [("relaxed", KAPPA), ("refitted", KAPPA_REFIT)] {
        let error_ratios = error_ratios(table, measure);
        let best = error_ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let ours = KAPPAS
            .iter()
            .position(|&kappa| kappa == chosen)
            .map_or(f64::NAN, |at| error_ratios[at]);
        verdict = verdict.with_claim(
            format!("{measure}: κ = {chosen} is within a tenth of the best κ of the grid"),
            ours < 1.1 * best,
            format!(
                "its error is {} times that of each setting's best κ, the best single κ's {} times",
                digits(ours, 3),
                digits(best, 3)
            ),
        );
    }
    verdict
}

fn to_svg(table: &Table) -> String {
    let line = |measure| {
        Series::new(
            measure,
            KAPPAS.into_iter().zip(error_ratios(table, measure)),
        )
    };
    sweep::chart(
        "The constant of --lambda auto: error over that of each setting's best κ",
        Axis::log("κ"),
        Axis::log("error over the best"),
        ["relaxed", "refitted"].map(line),
        [],
    )
}

fn to_markdown(table: &Table) -> String {
    let (relaxed, refitted) = (
        error_ratios(table, "relaxed"),
        error_ratios(table, "refitted"),
    );
    let rows = KAPPAS.iter().zip(relaxed).zip(refitted);
    let row = |((kappa, relaxed), refitted): ((&f64, _), _)| {
        format!("{kappa} | {} | {}", digits(relaxed, 3), digits(refitted, 3))
    };
    sweep::grid("κ | relaxed | refitted", rows.map(row))
}

pub(crate) const KAPPA_GRID: Exhibit = Exhibit {
    id: "own-kappa",
    item: "the constant of λ (ours)",
    caption: "the error of sparse estimates over the constant of --lambda auto",
    minutes: Minutes::new(0.5, 20.0),
    key_columns: "mechanism p s k n epsilon spike",
    coordinate: Some("kappa"),
    measures: "plain relaxed refitted precision recall",
    plan,
    check_claims,
    to_svg,
    to_markdown,
    ..Exhibit::of_paper(Paper::Ours)
};
