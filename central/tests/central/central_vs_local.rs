//! What trust in a curator is worth: the best central algorithm beside the local mechanisms, one budget, replace
//! neighbours on both sides.

use std::fmt::Write as _;

use eigenveil_central::{
    AnalyzeGauss, Baseline, Neighbours, NoiseRule, Privacy, Request, Rows, generator,
};
use eigenveil_estimation::{
    metrics::projector_distance,
    models::Model,
    simulate::{Experiment, Path, RowSource, run},
};
use eigenveil_plots::{Axis, Figure, HorizontalLine, LineChart, LineStyle, Series};
use eigenveil_shared::{
    mechanism::{Calibration, MechanismKind},
    preprocess::{Norm, Preprocessing, Row},
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};

const P: usize = 40;
const K: usize = 5;
const DELTA: f64 = 1e-7;
const REPEATS: usize = 10;
const MODEL: Model = Model::Spiked {
    p: P,
    k: K,
    spike: 20.0,
};
const SEED: u64 = 1;

/// Mean and standard deviation (denominator R − 1).
fn spread(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

/// Errors of `analyze-gauss` for each ε, over repeats with rows of their own.
fn central(n: u64, epsilons: &[f64]) -> Vec<(f64, f64)> {
    let preprocessing = Preprocessing {
        dimension: P,
        features: None,
        norm: Norm::Normalize,
        centring: None,
    };
    let preprocessor = preprocessing.preprocessor().unwrap();
    let mut errors = vec![Vec::new(); epsilons.len()];
    for repeat in 0..REPEATS as u64 {
        let mut rng = generator(Some(SEED)).unwrap();
        rng.set_stream(repeat);
        let population = MODEL.draw(&mut rng).unwrap();
        let rows = Rows::collect(
            (0..n).map(|_| preprocessor.prepare_features(&Row::new(population.row(&mut rng)))),
        )
        .unwrap();
        for (errors, &epsilon) in errors.iter_mut().zip(epsilons) {
            let privacy = Privacy::Budget {
                budget: Budget::approximate(epsilon, DELTA).unwrap(),
                neighbours: Neighbours::Replace,
                calibration: NoiseRule::Accounted,
            };
            let fit = AnalyzeGauss
                .fit(&rows, &Request::new(K, privacy), &mut rng)
                .unwrap();
            errors.push(projector_distance(&fit.subspace, population.subspace()).unwrap());
        }
    }
    errors.iter().map(|errors| spread(errors)).collect()
}

/// Error of a local mechanism, its s.d., the ε that really holds, and the error without privacy.
fn local(n: u64, epsilon: f64, mechanism: MechanismKind) -> (f64, f64, Option<f64>, f64) {
    // Algorithm 1 as printed; the other has no choice of calibration.
    let (delta, calibration) = match mechanism {
        MechanismKind::DoubleCap => (None, Calibration::Analytic),
        _ => (Some(DELTA), Calibration::AsPublished),
    };
    let params = StudyParams::freeze(StudyDesign {
        dimension: P,
        features: None,
        norm: Norm::Normalize,
        centring: None,
        mechanism,
        calibration,
        budget: mechanism.budget(epsilon, delta).unwrap(),
    })
    .unwrap();
    let experiment = Experiment {
        params: &params,
        source: RowSource::Model(MODEL),
        n,
        k: K,
        sparse: None,
        path: Path::Law,
        repeats: REPEATS,
        seed: SEED,
    };
    let (_, summary) = run(&experiment, &mut |_| ()).unwrap();
    let true_epsilon = params.mechanism().true_epsilon(params.budget().delta());
    (
        summary.error_mean,
        summary.error_std,
        true_epsilon,
        summary.nonprivate_error,
    )
}

/// Writes `docs/experiments/central_vs_local.csv` and `docs/img/central-vs-local.svg`:
/// `cargo test --release --workspace --test central central_vs_local:: -- --ignored --nocapture` (some 5 minutes).
#[test]
#[ignore = "some 5 minutes; writes into docs"]
fn table_of_central_and_local() {
    let (epsilons, sizes) = ([1.0, 2.0, 4.0, 8.0], [10_000, 100_000, 1_000_000]);
    let mut csv = String::from(
        "algorithm,model,epsilon,delta,true_epsilon,n,error_mean,error_std,nonprivate_error,repeats\n",
    );
    let names = [
        "central analyze-gauss",
        "local double-cap",
        "local Algorithm 1 as published",
    ];
    // Per n, per name: error against ε.
    let mut lines = Vec::new();
    for n in sizes {
        let curator = central(n, &epsilons);
        for (index, &epsilon) in epsilons.iter().enumerate() {
            let cap = local(n, epsilon, MechanismKind::DoubleCap);
            let paper = local(n, epsilon, MechanismKind::SymmetricGaussian);
            let (mean, deviation) = curator[index];
            let rows = [
                (mean, deviation, Some(epsilon), DELTA),
                (cap.0, cap.1, cap.2, 0.0),
                (paper.0, paper.1, paper.2, DELTA),
            ];
            for (name, (mean, deviation, true_epsilon, delta)) in names.iter().zip(rows) {
                let holds = true_epsilon.map_or(String::new(), |e| format!("{e:.4}"));
                writeln!(
                    csv,
                    "{name},spiked p={P} k={K} spike=20,{epsilon},{delta},{holds},{n},{mean:.5},{deviation:.5},{:.5},{REPEATS}",
                    cap.3
                )
                .unwrap();
                println!("n={n} ε={epsilon} {name}: {mean:.4} ± {deviation:.4}");
                lines.push((*name, n, epsilon, mean, deviation));
            }
        }
    }
    // Trust in a curator is worth a lot: nowhere is a local mechanism better.
    for line in &lines {
        let curator = lines
            .iter()
            .find(|other| other.0 == names[0] && other.1 == line.1 && other.2 == line.2)
            .unwrap();
        assert!(curator.3 <= line.3 + 4.0 * line.4, "{line:?} {curator:?}");
    }
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    std::fs::write(docs.join("experiments/central_vs_local.csv"), csv).unwrap();
    let mut chart = LineChart::new(
        "What a trusted curator saves",
        Axis::log("participants n"),
        Axis::log("error ‖V̂V̂ᵀ − VVᵀ‖_F"),
    );
    for (place, name) in names.iter().enumerate() {
        for (epsilon, style) in [(1.0, LineStyle::Dashed), (4.0, LineStyle::Solid)] {
            let of: Vec<_> = lines
                .iter()
                .filter(|line| line.0 == *name && line.2 == epsilon)
                .collect();
            chart.series.push(
                Series::new(
                    format!("{name}, ε\u{a0}=\u{a0}{epsilon}"),
                    of.iter().map(|line| (line.1 as f64, line.3)),
                )
                .with_error_bars(of.iter().map(|line| line.4))
                .with_style(style)
                .with_colour_of(place),
            );
        }
    }
    chart.reference_lines.push(HorizontalLine {
        y: (2.0 * K as f64 * (1.0 - K as f64 / P as f64)).sqrt(),
        label: "random subspace".into(),
    });
    std::fs::write(docs.join("img/central-vs-local.svg"), chart.to_svg()).unwrap();
}
