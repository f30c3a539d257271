//! Sample figures.

use eigenveil_figures::{
    Axis, Biplot, ColourScale, Figure, ImageGrid, LineChart, LineStyle, LoadingImage, Series,
    biplot, estimate_figures, loading_bars,
};
use eigenveil_shared::estimate::Estimate;

pub(crate) fn all() -> Vec<String> {
    let estimate = with_moment();
    let without_noise = [0.55, 0.21, 0.19, 0.03, 0.01, 0.01];
    let drawn = estimate_figures(&estimate, Some(&without_noise)).into_iter();
    let mut figures: Vec<Box<dyn Figure>> = drawn.map(|shown| shown.figure).collect();
    figures.push(Box::new(epsilon()));
    figures.push(Box::new(legend()));
    let bars = loading_bars(&estimate).take(1);
    figures.extend(bars.map(|bars| Box::new(bars) as Box<dyn Figure>));
    let mut all = vec![
        rows().to_svg(),
        rows().to_svg_of_width(360.0),
        digits(ColourScale::Each).to_svg(),
        digits(ColourScale::Shared).to_svg(),
    ];
    for figure in figures {
        all.extend([figure.to_svg(), figure.to_svg_of_width(350.0)]);
    }
    all
}

/// A sparse estimate of four components, two of them indistinguishable, with a path of λ; its features have the longest
/// names of popular example tables.
pub(crate) fn estimate() -> Estimate {
    serde_json::from_str(include_str!("estimate.json")).expect("an estimate")
}

/// The estimate with the mean report of more participants: the first two features have a correlation of 0.6, and the
/// others none.
pub(crate) fn with_moment() -> Estimate {
    let mut report = vec![0.0; 21];
    report[1] = 0.1;
    Estimate {
        n: 1_000_000,
        mean_report: Some(report),
        ..estimate()
    }
}

/// Error against privacy.
pub(crate) fn epsilon() -> LineChart {
    let xs = [0.5, 1.0, 2.0, 4.0, 8.0];
    let curve = |scale: f64| xs.map(|e: f64| (e, 1.0 / (1.0 + scale / (e * e))));
    let mut chart = LineChart::new(
        "The subspace is found from ε\u{a0}=\u{a0}2 on",
        Axis::log("Privacy parameter ε (larger is less private)").ticks(xs),
        Axis::linear("Squared cosine with the true subspace").between(0.0, 1.0),
    );
    chart.subtitle = Some(
        "p = 64, k = 3, n\u{a0}=\u{a0}100\u{a0}000 devices, 20\u{a0}repetitions, ± s.d.".into(),
    );
    chart.series = vec![
        Series::new("Gaussian matrix", curve(2.0)).with_error_bars([0.06, 0.05, 0.03, 0.02, 0.01]),
        Series::new("Sampled entries", curve(2.6))
            .with_error_bars([0.05, 0.05, 0.04, 0.02, 0.01])
            .with_style(LineStyle::Dashed),
        Series::new("Random projection, then noise", curve(14.0))
            .with_error_bars([0.02, 0.03, 0.05, 0.05, 0.03])
            .with_style(LineStyle::Dotted),
    ];
    chart.reference_lines = vec![
        ("Non-private PCA".into(), 0.995),
        ("Guessing".into(), 3.0 / 64.0),
    ];
    chart
}

/// More series than fit next to the plot.
pub(crate) fn legend() -> LineChart {
    let mut chart = LineChart::new(
        "Many series move into a legend",
        Axis::linear("Iteration"),
        Axis::linear("Objective"),
    );
    chart.height = 400.0;
    chart.series = (0..16)
        .map(|i| {
            let (low, slow) = (f64::from(i) * 0.35 - 3.0, 4.0 + f64::from(i));
            let points = (0..30).map(f64::from);
            let points = points.map(|t| (t, low + 4.0 * (-t / slow).exp()));
            let style = [LineStyle::Solid, LineStyle::Dashed][i as usize / 8];
            Series::new(format!("λ = 0.{i:02}, warm start"), points).with_style(style)
        })
        .collect();
    chart
}

/// Rows of three kinds over two components.
pub(crate) fn rows() -> Biplot {
    let kind = |i: usize| ["benign", "malignant", "not said"][i % 3].to_owned();
    let scores = |i: usize| {
        let (kind, t) = ((i % 3) as f64, 0.7 * (i / 3) as f64 + (i % 3) as f64);
        vec![0.3 * kind + 0.1 * t.sin(), 0.12 * (1.7 * t).cos()]
    };
    let (scores, kinds): (Vec<_>, Vec<_>) = (0..120).map(|i| (scores(i), kind(i))).unzip();
    biplot(&estimate(), (0, 1), &scores, Some(&kinds)).expect("two components")
}

/// A smooth pattern of 8 × 8 with some noise.
pub(crate) fn picture(title: &str, label: &str, k: usize, noise: f64) -> LoadingImage {
    let mut state = 7 + k as u32;
    let values: Vec<f64> = (0..64)
        .map(|i| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let jitter = f64::from(state >> 8) / f64::from(1u32 << 24) - 0.5;
            let (r, c) = (f64::from(i / 8) / 7.0, f64::from(i % 8) / 7.0);
            let k = k as f64;
            0.2 * ((k * 2.1 * r + k).sin() * (2.6 * c + 0.7 * k).cos()) + noise * jitter
        })
        .collect();
    LoadingImage::new(title, label, (8, 8), &values).expect("64 values")
}

/// Private components over exact ones.
pub(crate) fn digits(scale: ColourScale) -> ImageGrid {
    let exact: Vec<_> = (1..=5)
        .map(|k| picture(&format!("Component {k}"), "", k, 0.0))
        .collect();
    let cosines = [0.93, 0.81, 0.55, 0.21, 0.02];
    let pairs = (1..).zip(exact.iter().zip(cosines));
    let private = pairs.map(|(k, (other, cosine))| {
        let noise = 0.12 * k as f64 - 0.04;
        let label = format!("cos² = {cosine}");
        picture(&format!("Component {k}"), &label, k, noise).with_sign_of(other)
    });
    let mut grid = ImageGrid::new("Components of handwritten digits");
    grid.subtitle = Some("ε = 4, 60 000 reports; orange is positive, blue negative".into());
    grid.scale = scale;
    let private: Vec<_> = private.collect();
    grid.with_row("private (ε = 4)", private)
        .with_row("exact (non-private)", exact)
}
