//! Figure 4: Algorithm 2 on the paper's sparse model.

use eigenveil_estimation::{models::Model, simulate::RowSource};
use eigenveil_figures::{Axis, LineStyle};
use eigenveil_shared::{
    Result,
    api::{Lambda, SparseSettings},
    preprocess::Norm,
};

use super::{ReportKind, noise_edge, theorem_4_lambda};
use crate::{
    Cell, Data, Exhibit, Minutes, Paper, PaperVerdict, Point, RunPlan, RunSize, Table,
    number::digits,
    runs::{random_error, study, study_epsilon},
    sweep::{self, Sweep},
};

#[derive(Clone, Copy)]
struct Setting {
    n: u64,
    p: usize,
    k: usize,
    s: usize,
    epsilon: f64,
}

const BASE: Setting = Setting {
    n: 2_000,
    p: 400,
    k: 10,
    s: 20,
    epsilon: 1.0,
};

fn run_repeat(kind: ReportKind, setting: Setting, repeat: u64) -> Result<Vec<Point>> {
    let Setting {
        n,
        p,
        k,
        s,
        epsilon,
    } = setting;
    let params = kind.params(p, epsilon, Norm::Clip { radius: 1.0 })?;
    let settings = SparseSettings {
        lambda: Lambda::Fixed(theorem_4_lambda(&params.noise_model(), p, n)?),
        tolerance: 1e-4,
        refit: false,
        ..SparseSettings::default()
    };
    let model = Model::wang_xu(p, k, Some(s), 1.0);
    let source = RowSource::Model(model);
    let summary = study(&params, source, n, k, Some(&settings), repeat)?;
    Ok(vec![Point::single([
        study_epsilon(&params),
        noise_edge(&params, p, n),
        1.0 / (5.0 * p as f64),
        random_error(p, k),
        summary.error_mean,
        summary.pca_error,
        summary.support.map_or(f64::NAN, |support| support.f1),
    ])])
}

fn figure_4(_: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    let repeats = size.choose(5, 20);
    let mut add = |panel: &'static str, setting: Setting| {
        for kind in ReportKind::ALL {
            let Setting {
                n,
                p,
                k,
                s,
                epsilon,
            } = setting;
            plan.cells.push(Cell::new(
                [&panel, &kind.as_str(), &n, &p, &k, &s, &epsilon],
                repeats,
                move |repeat| run_repeat(kind, setting, repeat),
            ));
        }
    };
    let ranks: &[usize] = size.choose(&[10], &[5, 10, 15, 20]);
    for &k in ranks {
        let sizes: &[u64] = size.choose(&[1_000, 4_000], &[1_000, 2_000, 4_000, 8_000]);
        for &n in sizes {
            add("k over n", Setting { n, k, ..BASE });
        }
    }
    let dimensions: &[usize] = size.choose(&[200, 400], &[100, 200, 400, 800]);
    for &p in dimensions {
        add("p", Setting { p, ..BASE });
    }
    let supports: &[usize] = size.choose(&[15, 80], &[15, 20, 40, 80]);
    for &s in supports {
        add("s", Setting { s, ..BASE });
    }
    let budgets: &[f64] = size.choose(&[0.5, 4.0], &[0.5, 1.0, 2.0, 4.0]);
    for &epsilon in budgets {
        add("epsilon", Setting { epsilon, ..BASE });
    }
    Ok(plan)
}

fn check_claims(table: &Table) -> PaperVerdict {
    let mut verdict = PaperVerdict::default();
    let as_published = ("calibration", "as-published");
    for (panel, x, claim) in [
        ("k over n", "n", "the error falls as n grows"),
        ("epsilon", "epsilon", "the error falls as ε grows"),
    ] {
        let sweep = Sweep {
            table,
            fixed: &[("panel", panel), as_published, ("k", "10")],
            x,
            measure: "error",
        };
        verdict = sweep.check_trend(verdict, claim, true);
    }
    let at = |column| table.number(&[("panel", "p"), ("p", "400"), as_published], column);
    let (edge, largest) = (at("noise_edge"), at("largest_eigenvalue"));
    verdict.with_claim(
        "the subspace is above the noise at n = 2,000, ε = 1",
        edge < largest || edge.is_nan(),
        format!(
            "the noise reaches {}, the largest eigenvalue is {}; the error is {}; a random subspace has {}",
            digits(edge, 2),
            digits(largest, 2),
            digits(at("error_mean"), 3),
            digits(at("random_error"), 3)
        ),
    )
}

fn to_svg(table: &Table) -> String {
    let line = |(kind, style): (ReportKind, LineStyle)| {
        let name = kind.as_str();
        let fixed = [("panel", "epsilon"), ("calibration", name)];
        sweep::series(table, name, &fixed, "epsilon", "error").with_style(style)
    };
    sweep::chart(
        "Algorithm 2 on the paper's sparse model: error over ε",
        Axis::log("ε"),
        Axis::linear("error ‖V̂V̂ᵀ − VVᵀ‖_F"),
        ReportKind::STYLES.map(line),
        [("random subspace".to_owned(), random_error(BASE.p, BASE.k))],
    )
}

fn to_markdown(table: &Table) -> String {
    sweep::markdown(
        table,
        &["panel", "n", "p", "k", "s", "epsilon"],
        "calibration",
        "error",
        &["random_error", "noise_edge", "largest_eigenvalue"],
    )
}

pub(crate) const FIGURE_4: Exhibit = Exhibit {
    id: "wang-xu-figure-4",
    item: "Figure 4",
    caption: "Algorithm 2 on the paper's sparse model: error over n and k, p, s, and ε",
    differs_from_paper: Some(
        "the paper states neither λ nor δ of these runs: λ is as large as the largest entry of the noise, of the order \
         that Theorem 4 asks for, δ = 1e-4",
    ),
    minutes: Minutes::new(0.3, 15.0),
    key_columns: "panel calibration n p k s epsilon",
    per_cell: "true_epsilon noise_edge largest_eigenvalue random_error",
    measures: "error pca_error support_f1",
    plan: figure_4,
    check_claims,
    to_svg,
    to_markdown,
    ..Exhibit::of_paper(Paper::WangXu)
};
