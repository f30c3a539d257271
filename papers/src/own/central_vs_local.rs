//! Comparison of the best central algorithm with the local mechanisms at the same budget, with replacement neighbours
//! on both sides.

use eigenveil_central::{CentralCalibration, Options, Privacy, Request, find, generator};
use eigenveil_estimation::{metrics::projector_distance, models::Model, simulate::RowSource};
use eigenveil_figures::{Axis, LineStyle};
use eigenveil_shared::{
    Result,
    mechanism::{Calibration, MechanismKind},
    names,
    preprocess::Norm,
};

use crate::{
    Cell, Data, Exhibit, Minutes, Paper, PaperVerdict, Point, RunPlan, RunSize, Table,
    number::digits,
    runs::{model_rows, params, private, random_error, study, study_epsilon},
    sweep,
};

const P: usize = 40;
const K: usize = 5;
const DELTA: f64 = 1e-7;
const MODEL: Model = Model::spiked(P, K, 20.0);

#[derive(Clone, Copy, PartialEq)]
enum PrivacyModel {
    Curator,
    DoubleCap,
    /// Algorithm 1 of Wang & Xu with its published noise.
    Algorithm1,
}

names! {
    PrivacyModel { Curator = "central analyze-gauss", DoubleCap = "local double-cap", Algorithm1 = "local Algorithm 1 as published" };
}

fn central(n: u64, epsilon: f64, repeat: u64) -> Result<Vec<Point>> {
    let mut rng = generator(Some(1))?;
    rng.set_stream(repeat);
    let rows = model_rows(&MODEL, n as usize, &mut rng)?;
    let method = find("analyze-gauss")?.build(&Options::default())?;
    let mut error = |privacy| {
        let fit = method.fit(&rows.0, &Request::new(K, privacy), &mut rng)?;
        projector_distance(&fit.subspace, &rows.1)
    };
    let nonprivate = error(Privacy::None)?;
    let accounted = private(epsilon, DELTA, CentralCalibration::Accounted)?;
    Ok(vec![Point::single([
        epsilon,
        error(accounted)?,
        nonprivate,
    ])])
}

fn local(n: u64, epsilon: f64, model: PrivacyModel, repeat: u64) -> Result<Vec<Point>> {
    // Algorithm 1 as published; double-cap has no choice of calibration.
    let (mechanism, calibration, delta) = match model {
        PrivacyModel::Algorithm1 => (
            MechanismKind::SymmetricGaussian,
            Calibration::AsPublished,
            Some(DELTA),
        ),
        _ => (MechanismKind::DoubleCap, Calibration::Analytic, None),
    };
    let params = params(P, Norm::Normalize, mechanism, calibration, epsilon, delta)?;
    let summary = study(&params, RowSource::Model(MODEL), n, K, None, repeat)?;
    Ok(vec![Point::single([
        study_epsilon(&params),
        summary.error_mean,
        summary.nonprivate_error,
    ])])
}

fn plan(_: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    let sizes: &[u64] = size.choose(&[10_000, 100_000], &[10_000, 100_000, 1_000_000]);
    let budgets: &[f64] = size.choose(&[1.0, 4.0], &[1.0, 2.0, 4.0, 8.0]);
    for model in PrivacyModel::ALL {
        for &epsilon in budgets {
            for &n in sizes {
                plan.cells.push(Cell::new(
                    [&model.as_str(), &epsilon, &n],
                    size.choose(5, 10),
                    move |repeat| match model {
                        PrivacyModel::Curator => central(n, epsilon, repeat),
                        _ => local(n, epsilon, model, repeat),
                    },
                ));
            }
        }
    }
    Ok(plan)
}

fn check_claims(table: &Table) -> PaperVerdict {
    let at = |model: PrivacyModel, epsilon: &str, n: &str| {
        let name = model.as_str();
        let wanted = [("privacy_model", name), ("epsilon", epsilon), ("n", n)];
        table.number(&wanted, "error_mean")
    };
    let (budgets, sizes) = (table.values("epsilon"), table.values("n"));
    let (mut worst, mut settings) = (f64::INFINITY, 0);
    for epsilon in &budgets {
        for n in &sizes {
            let curator = at(PrivacyModel::Curator, epsilon, n);
            for model in [PrivacyModel::DoubleCap, PrivacyModel::Algorithm1] {
                settings += 1;
                worst = f64::min(worst, at(model, epsilon, n) / curator);
            }
        }
    }
    let mut verdict = PaperVerdict::default().with_claim(
        "nowhere is a local mechanism better than a trusted curator",
        worst >= 1.0,
        format!(
            "the smallest ratio of errors in {settings} settings is {}",
            digits(worst, 3)
        ),
    );
    if let (Some(epsilon), Some(n)) = (budgets.last(), sizes.last()) {
        let [cap, paper] =
            [PrivacyModel::DoubleCap, PrivacyModel::Algorithm1].map(|model| at(model, epsilon, n));
        verdict = verdict.with_claim(
            "double-cap is ahead of Algorithm 1 with its printed noise",
            cap < paper,
            format!(
                "{} against {} at ε = {epsilon}, n = {n}",
                digits(cap, 3),
                digits(paper, 3)
            ),
        );
    }
    verdict
}

fn to_svg(table: &Table) -> String {
    let mut lines = Vec::new();
    for (place, model) in PrivacyModel::ALL.into_iter().enumerate() {
        for (epsilon, style) in [("1", LineStyle::Dashed), ("4", LineStyle::Solid)] {
            let fixed = [("privacy_model", model.as_str()), ("epsilon", epsilon)];
            let name = format!("{}, ε\u{a0}=\u{a0}{epsilon}", model.as_str());
            let line = sweep::series(table, name, &fixed, "n", "error");
            lines.push(line.with_style(style).with_colour_of(place));
        }
    }
    sweep::chart(
        "What a trusted curator saves",
        Axis::log("participants n"),
        Axis::log("error ‖V̂V̂ᵀ − VVᵀ‖_F"),
        lines,
        [("random subspace".to_owned(), random_error(P, K))],
    )
}

pub(crate) const CENTRAL_VS_LOCAL: Exhibit = Exhibit {
    id: "own-central-vs-local",
    item: "central beside local (ours)",
    caption: "a trusted curator beside the local mechanisms at the same ε, replace neighbours",
    minutes: Minutes::new(0.1, 6.0),
    key_columns: "privacy_model epsilon n",
    per_cell: "true_epsilon",
    measures: "error nonprivate_error",
    plan,
    check_claims,
    to_svg,
    to_markdown: |table| sweep::markdown(table, &["n", "epsilon"], "privacy_model", "error", &[]),
    ..Exhibit::of_paper(Paper::Ours)
};
