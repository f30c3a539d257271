//! Figure 2, the streaming power method: its error over the number of rows.

use eigenveil_central::{Options, Privacy, generator};
use eigenveil_estimation::{metrics::largest_principal_angle, models::Model};
use eigenveil_figures::Axis;
use eigenveil_shared::Result;

use crate::{
    Cell, Data, Exhibit, Minutes, Paper, PaperVerdict, Point, RunPlan, RunSize, Table,
    number::digits,
    runs::{first_and_last, fit_with_error, model_rows, slope},
    sweep,
};

const MODEL: Model = Model::spiked(40, 2, 8.0);
/// The method, and PCA on all rows for comparison.
const ALGORITHMS: [&str; 2] = ["streaming-power", "pca"];
/// Allowed deviation of the slope from −1/2.
const SLOPE_TOLERANCE: f64 = 0.1;

fn error(algorithm: &str, n: usize, repeat: u64) -> Result<Vec<Point>> {
    let mut rng = generator(Some(repeat))?;
    let rows = model_rows(&MODEL, n, &mut rng)?;
    let (fit, error) = fit_with_error(
        algorithm,
        &Options::default(),
        Privacy::None,
        &rows,
        &mut rng,
    )?;
    let angle = largest_principal_angle(&fit.subspace, &rows.1)?;
    Ok(vec![Point::single([error, angle.sin()])])
}

fn plan(_: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    let sizes: &[usize] = size.choose(
        &[2_000, 8_000, 32_000, 128_000],
        &[
            1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000,
        ],
    );
    for algorithm in ALGORITHMS {
        for &n in sizes {
            plan.cells.push(Cell::new(
                [&algorithm, &n],
                size.choose(5, 20),
                move |repeat| error(algorithm, n, repeat),
            ));
        }
    }
    Ok(plan)
}

fn check_claims(table: &Table) -> PaperVerdict {
    let line = |algorithm| table.line(&[("algorithm", algorithm)], "n", "sine_mean");
    let measured_slope = slope(&line("streaming-power"));
    let wanted = [("algorithm", "streaming-power")];
    let ((few, large), (many, small)) = first_and_last(table, &wanted, "n", "sine_mean");
    PaperVerdict::default().with_claim(
        "the error falls with the root of the number of rows: n = Θ(1/ε²)",
        (measured_slope + 0.5).abs() <= SLOPE_TOLERANCE,
        format!(
            "slope {}: {} at n = {few}, {} at n = {many}; plain PCA's {}",
            digits(measured_slope, 3),
            digits(large, 3),
            digits(small, 3),
            digits(slope(&line("pca")), 3)
        ),
    )
}

fn to_svg(table: &Table) -> String {
    let line = |name| sweep::series(table, name, &[("algorithm", name)], "n", "sine");
    sweep::chart(
        "The streaming power method over n",
        Axis::log("rows n"),
        Axis::log("error ‖(I − XXᵀ)U‖"),
        ALGORITHMS.map(line),
        [],
    )
}

pub(crate) const FIGURE_2: Exhibit = Exhibit {
    id: "hardt-price-figure-2",
    item: "Figure 2",
    caption: "the streaming power method (a box, no plot): its error over n, spiked model, p = 40, k = 2",
    differs_from_paper: Some(
        "the figure is the algorithm itself; the paper's number of steps needs the eigengap, here it is ⌈2 ln p⌉, and \
         the rows have length 1",
    ),
    minutes: Minutes::new(0.1, 1.0),
    key_columns: "algorithm n",
    measures: "error sine",
    plan,
    check_claims,
    to_svg,
    to_markdown: |table| sweep::markdown(table, &["n"], "algorithm", "sine", &[]),
    ..Exhibit::of_paper(Paper::HardtPrice)
};
