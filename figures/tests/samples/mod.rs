//! Sample pictures, shared by the gallery and the layout tests.

use eigenveil_figures::{
    AlignmentChart, Arrow, Axis, BarChart, Biplot, ColourScale, Figure, HorizontalLine, ImageGrid,
    LineChart, LineStyle, LoadingImage, LoadingRow, LoadingTable, NoiseFloor, PointGroup,
    Reference, Scree, ScreeComponent, Series, Standing,
};

/// All samples, by name.
pub(crate) fn all() -> Vec<(&'static str, String)> {
    vec![
        ("line-epsilon", epsilon().to_svg()),
        ("line-reports", reports().to_svg()),
        ("line-legend", legend().to_svg()),
        (
            "line-narrow",
            LineChart {
                width: 360.0,
                height: 320.0,
                ..epsilon()
            }
            .to_svg(),
        ),
        (
            "line-empty",
            LineChart::new("Nothing yet", Axis::log("n"), Axis::linear("y")).to_svg(),
        ),
        ("scree", scree().to_svg()),
        ("scree-few", few().to_svg()),
        (
            "scree-narrow",
            Scree {
                width: 360.0,
                ..scree()
            }
            .to_svg(),
        ),
        ("biplot", biplot(720.0).to_svg()),
        ("biplot-narrow", biplot(360.0).to_svg()),
        ("bars-long-names", long_names(560.0).to_svg()),
        ("bars-long-names-narrow", long_names(350.0).to_svg()),
        ("alignment", alignment(720.0).to_svg()),
        ("alignment-narrow", alignment(360.0).to_svg()),
        ("loading-table", table(3, 720.0).to_svg()),
        ("loading-table-narrow", table(9, 360.0).to_svg()),
        ("digits", digits(ColourScale::Each).to_svg()),
        ("digits-shared", digits(ColourScale::Shared).to_svg()),
        (
            "digit",
            picture("Component 1", "one alone", 1, 0.0).to_svg(220.0),
        ),
        ("loadings", loadings().to_svg()),
    ]
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
        HorizontalLine {
            label: "Non-private PCA".into(),
            y: 0.995,
        },
        HorizontalLine {
            label: "Guessing".into(),
            y: 3.0 / 64.0,
        },
    ];
    chart
}

/// Error against the number of reports, both logarithmic.
pub(crate) fn reports() -> LineChart {
    let ns = [1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6];
    let line = |c: f64| ns.map(|n: f64| (n, c / n.sqrt()));
    let mut chart = LineChart::new(
        "Error falls as one over the root of the number of reports",
        Axis::log("Reports n"),
        Axis::log("Spectral norm of the error of the moment"),
    );
    let spread = |c: f64| ns.map(|n: f64| 0.25 * c / n.sqrt());
    chart.series = vec![
        Series::new("ε = 1", line(60.0)).with_error_bars(spread(60.0)),
        Series::new("ε = 4", line(14.0)).with_error_bars(spread(14.0)),
        Series::new("ε = 4, stopped early", line(15.5).into_iter().take(4))
            .with_style(LineStyle::Dashed),
        Series::new("theory", line(12.0)).with_style(LineStyle::Dotted),
    ];
    chart
}

/// More series than fit beside the plot.
pub(crate) fn legend() -> LineChart {
    let mut chart = LineChart::new(
        "Many series move into a legend",
        Axis::linear("Iteration"),
        Axis::linear("Objective"),
    );
    chart.height = 400.0;
    chart.series = (0..16)
        .map(|i| {
            let points = (0..30).map(|t| {
                let t = f64::from(t);
                (
                    t,
                    f64::from(i) * 0.35 - 3.0 + 4.0 * (-t / (4.0 + f64::from(i))).exp(),
                )
            });
            let style = [LineStyle::Solid, LineStyle::Dashed][i as usize / 8];
            Series::new(format!("λ = 0.{i:02}, warm start"), points).with_style(style)
        })
        .collect();
    chart
}

/// A spectrum with three components out of the noise.
pub(crate) fn scree() -> Scree {
    let noise = (0..61).map(|i| 1.0 + 0.9 * (1.0 - 2.0 * (f64::from(i) + 0.5) / 61.0));
    let mut scree = Scree::new(
        "Three components stand above the noise",
        [4.6, 3.4, 2.6, 2.02].into_iter().chain(noise),
    );
    scree.subtitle = Some("Digits, p = 64, ε = 4, 60 000 reports".into());
    scree.floor = Some(NoiseFloor {
        lower: None,
        edge: 1.98,
        threshold: 2.1,
    });
    let component = |verdict, alignment| ScreeComponent {
        verdict,
        alignment: Some(alignment),
        alignment_error: Some(0.12 * (1.0 - alignment)),
        standard_error: Some(0.2 * alignment),
    };
    scree.components = vec![
        component(Standing::Above, 0.93),
        component(Standing::Above, 0.81),
        component(Standing::Above, 0.55),
        component(Standing::At, 0.08),
    ];
    let exact = (0..65).map(|i| 4.1 * (-f64::from(i) / 2.6).exp()).collect();
    scree.reference = Some(Reference {
        name: "without noise (non-private)".into(),
        eigenvalues: exact,
    });
    scree
}

/// Components of every verdict, one of them whole.
pub(crate) fn alignment(width: f64) -> AlignmentChart {
    let component = |(verdict, alignment, error)| ScreeComponent {
        verdict,
        alignment: Some(alignment),
        alignment_error: error,
        standard_error: None,
    };
    let components = [
        (Standing::Above, 1.0, Some(0.01)),
        (Standing::Above, 0.93, Some(0.04)),
        (Standing::Above, 0.71, Some(0.11)),
        (Standing::At, 0.22, Some(0.25)),
        (Standing::Below, 0.0, None),
    ];
    let mut chart = AlignmentChart::new(
        "Three components are recovered well",
        components.map(component),
    );
    chart.subtitle = Some("Digits, p = 64, ε = 4, 60 000 reports".into());
    chart.width = width;
    chart
}

/// A sparse subspace of named features.
pub(crate) fn table(components: usize, width: f64) -> LoadingTable {
    let names = [
        "mean radius",
        "worst perimeter",
        "texture",
        "a name that is much too long to be written in full",
        "symmetry <&>",
        "nothing",
    ];
    let rows = names.iter().enumerate().map(|(i, name)| LoadingRow {
        name: (*name).to_owned(),
        loadings: (0..components)
            .map(|j| match i {
                5 => 0.0,
                _ if (i + 2 * j) % 5 == 4 => 0.0,
                _ => (0.8 - 0.13 * i as f64) * (1.0 + i as f64 * 2.0 + j as f64 * 1.7).cos(),
            })
            .collect(),
    });
    let columns = (1..=components).map(|j| format!("component {j}, above the noise floor"));
    let mut table = LoadingTable::new("Five features carry the subspace", columns, rows);
    table.subtitle = Some("λ = 0.0123, refitted".into());
    table.width = width;
    table
}

/// Rows of three kinds over two components, with the longest names of well-known tables.
pub(crate) fn biplot(width: f64) -> Biplot {
    let kinds = ["benign", "malignant", "not said"];
    let groups = kinds.iter().enumerate().map(|(kind, name)| PointGroup {
        name: (*name).to_owned(),
        points: (0..40)
            .map(|i| {
                let t = f64::from(i) * 0.7 + kind as f64;
                (0.3 * kind as f64 + 0.1 * t.sin(), 0.12 * (1.7 * t).cos())
            })
            .collect(),
    });
    let arrows = LONG_NAMES.iter().enumerate().map(|(i, name)| Arrow {
        name: (*name).to_owned(),
        x: (i as f64 * 1.3).cos(),
        y: 0.8 * (i as f64 * 1.3).sin(),
    });
    let axes = [
        "Component 1 (43.1 % of the variance)",
        "Component 2 (19.8 %)",
    ];
    let mut plot = Biplot::new(
        "Rows by component",
        axes.map(str::to_owned).into(),
        groups,
        arrows,
    );
    plot.subtitle = Some("120 rows".to_owned());
    plot.width = width;
    plot
}

/// Longest names of features of tables that people try first.
pub(crate) const LONG_NAMES: [&str; 6] = [
    "od280/od315_of_diluted_wines",
    "worst fractal dimension",
    "fractal dimension error",
    "Horizontal_Distance_To_Hydrology",
    "Horizontal_Distance_To_Fire_Points",
    "Vertical_Distance_To_Hydrology",
];

/// Those names beside bars.
pub(crate) fn long_names(width: f64) -> BarChart {
    let bars = LONG_NAMES.iter().enumerate();
    let bars = bars.map(|(i, name)| (*name, 0.5 - 0.17 * i as f64));
    let mut chart = BarChart::new("Component 1: largest loadings", "loading", bars);
    chart.width = width;
    chart
}

/// A short spectrum with negative eigenvalues.
pub(crate) fn few() -> Scree {
    let mut scree = Scree::new("Few eigenvalues", [0.041, 0.012, 0.003, -0.004, -0.009]);
    scree.floor = Some(NoiseFloor {
        lower: Some(-0.01),
        edge: 0.01,
        threshold: 0.0135,
    });
    let verdicts = [
        Standing::Above,
        Standing::At,
        Standing::Below,
        Standing::Below,
        Standing::Below,
    ];
    let alignments = [0.97, 0.31, 0.0, 0.0, 0.0];
    scree.components = verdicts
        .into_iter()
        .zip(alignments)
        .map(|(verdict, a)| ScreeComponent {
            verdict,
            alignment: Some(a),
            alignment_error: None,
            standard_error: None,
        })
        .collect();
    scree
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
    let private = exact
        .iter()
        .zip(cosines)
        .enumerate()
        .map(|(i, (other, cosine))| {
            let noise = 0.08 + 0.12 * i as f64;
            let label = format!("cos² = {cosine}");
            picture(&format!("Component {}", i + 1), &label, i + 1, noise).facing(other)
        });
    let mut grid = ImageGrid::new("Components of handwritten digits");
    grid.subtitle = Some("ε = 4, 60 000 reports; orange is positive, blue negative".into());
    grid.scale = scale;
    let private: Vec<_> = private.collect();
    grid.with_row("private (ε = 4)", private)
        .with_row("exact (non-private)", exact)
}

/// Loadings by name.
pub(crate) fn loadings() -> BarChart {
    let names = [
        ("mean radius", 0.31),
        ("worst perimeter", 0.29),
        ("fractal dimension error", -0.24),
        (
            "a name that is much too long to be written in full beside its bar",
            -0.22,
        ),
        ("smoothness <&\"quoted\">", 0.17),
        ("texture", -0.11),
        ("symmetry", 0.06),
        ("compactness", 0.012),
        ("nothing", 0.0),
        ("bad", f64::NAN),
    ];
    let mut chart = BarChart::new("Largest loadings of component 1", "Loading", names);
    chart.shown = 8;
    chart
}
