//! Figure 1: the gradients of a minibatch, their average and their range.

use eigenveil_central::generator;
use eigenveil_figures::Axis;
use eigenveil_shared::{Result, names};
use rand_distr::{Distribution, StandardNormal};

use crate::{
    Cell, Data, Exhibit, Minutes, Paper, PaperVerdict, Point, RunPlan, RunSize, Table,
    number::{digits, short},
    sweep,
};

/// Rows of the minibatch, as in the figure.
const BATCH: usize = 400;
/// Angle between w and v, which the paper does not state.
const ANGLE: f64 = std::f64::consts::FRAC_PI_4;

/// Where the rows come from. Both have the second moment vvᵀ + σ²I, v = (1, 0).
#[derive(Clone, Copy)]
enum Source {
    /// N(0, vvᵀ + σ²I).
    Gaussian,
    /// ±v + σ·N(0, I).
    PlusMinus,
}

names! {
    Source { Gaussian = "Gaussian", PlusMinus = "Example 4.1" };
}

fn lengths(source: Source, sigma: f64, repeat: u64) -> Result<Vec<Point>> {
    let mut rng = generator(Some(repeat))?;
    let mut normal = || -> f64 { StandardNormal.sample(&mut rng) };
    let (w0, w1) = (ANGLE.cos(), ANGLE.sin());
    let gradients: Vec<(f64, f64)> = (0..BATCH)
        .map(|_| {
            let drawn = normal();
            let signal = match source {
                Source::Gaussian => drawn,
                Source::PlusMinus => drawn.signum(),
            };
            let (x0, x1) = (signal + sigma * normal(), sigma * normal());
            let along = x0 * w0 + x1 * w1;
            (x0 * along, x1 * along)
        })
        .collect();
    let (sum0, sum1) = gradients
        .iter()
        .fold((0.0, 0.0), |(a, b), (g0, g1)| (a + g0, b + g1));
    let average = f64::hypot(sum0, sum1) / BATCH as f64;
    let mut range = 0.0_f64;
    for (place, a) in gradients.iter().enumerate() {
        for b in &gradients[..place] {
            range = range.max(f64::hypot(a.0 - b.0, a.1 - b.1));
        }
    }
    Ok(vec![Point::single([average, range, range / average])])
}

fn plan(_: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    for source in Source::ALL {
        for sigma in [1e-1, 1e-2, 1e-3, 1e-4] {
            plan.cells.push(Cell::new(
                [&source.as_str(), &short(sigma)],
                size.choose(20, 100),
                move |repeat| lengths(source, sigma, repeat),
            ));
        }
    }
    Ok(plan)
}

fn check_claims(table: &Table) -> PaperVerdict {
    let ratios = |source: Source| {
        let mut line = table.line(&[("rows", source.as_str())], "sigma", "ratio_mean");
        line.sort_by(|a, b| b.0.total_cmp(&a.0));
        line
    };
    let gaussian = ratios(Source::Gaussian);
    let least = gaussian.iter().fold(f64::INFINITY, |a, b| a.min(b.1));
    let most = gaussian.iter().fold(0.0, |a, b| f64::max(a, b.1));
    let plus_minus = ratios(Source::PlusMinus);
    // Ten times less noise must give at least five times less range.
    let falls = plus_minus
        .windows(2)
        .all(|pair| pair[1].1 < 0.2 * pair[0].1);
    let none = (f64::NAN, f64::NAN);
    let (first, last) = (
        plus_minus.first().copied().unwrap_or(none),
        plus_minus.last().copied().unwrap_or(none),
    );
    PaperVerdict::default()
        .with_claim(
            "the range of a minibatch of Gaussian rows is larger than the average gradient, whatever σ",
            least.is_finite() && least > 1.0,
            format!("{} to {} times", digits(least, 3), digits(most, 3)),
        )
        .with_claim(
            "in Example 4.1 the range can be made arbitrarily smaller than the average gradient",
            falls && last.1 < 0.01,
            format!(
                "{} times at σ = {}, {} times at σ = {}",
                digits(first.1, 3),
                short(first.0),
                digits(last.1, 3),
                short(last.0)
            ),
        )
}

fn to_svg(table: &Table) -> String {
    let line = |source: Source| {
        let name = source.as_str();
        sweep::series(table, name, &[("rows", name)], "sigma", "ratio")
    };
    sweep::chart(
        "Gradients of 400 rows in the plane",
        Axis::log("σ"),
        Axis::log("range over length of the average"),
        Source::ALL.map(line),
        [("as long as the average".to_owned(), 1.0)],
    )
}

pub(crate) const FIGURE_1: Exhibit = Exhibit {
    id: "liu-figure-1",
    item: "Figure 1",
    caption: "how far apart the gradients of a minibatch lie, over the length of their average",
    differs_from_paper: Some(
        "the paper gives neither the Gaussian covariance nor w: both kinds of rows have the second moment vvᵀ + σ²I, \
         and w is at 45° to v",
    ),
    minutes: Minutes::new(0.01, 0.05),
    key_columns: "rows sigma",
    measures: "average range ratio",
    plan,
    check_claims,
    to_svg,
    to_markdown: |table| sweep::markdown(table, &["rows"], "sigma", "ratio", &[]),
    ..Exhibit::of_paper(Paper::Liu)
};
