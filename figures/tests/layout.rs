//! Every figure is well-formed and finite, and has no clipped or overlapping text.

// Test helpers may panic too, not only tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use eigenveil_figures::{
    AlignmentChart, Axis, BarChart, ComponentRow, CorrelationMap, Figure, ImageGrid, LineChart,
    LineStyle, LoadingImage, LoadingTable, ReportPicture, ReportedRow, STYLESHEET, ScaleKind,
    Scree, ScreeComponent, Series, biplot, component_rows, estimate_figures, loading_bars,
};
use eigenveil_shared::estimate::{CountShares, Estimate, VarianceFloor, Verdict};
use proptest::prelude::*;
use roxmltree::{Document, Node};

mod samples;

/// Bounding box of a text at 0.6 em a character: left, top, right, bottom.
fn text_box(node: Node<'_, '_>) -> [f64; 4] {
    let class = node.attribute("class").unwrap();
    let size = match class.split(' ').next().unwrap() {
        "t1" => 16.0,
        "t2" => 13.0,
        "t3" => 12.0,
        "t4" => 11.0,
        other => panic!("unknown class {other}"),
    };
    let number = |name| node.attribute(name).unwrap().parse::<f64>().unwrap();
    let (x, y) = (number("x"), number("y"));
    let width = 0.6 * size * node.text().unwrap_or_default().chars().count() as f64;
    let left = match node.attribute("text-anchor") {
        None => x,
        Some("middle") => x - width / 2.0,
        Some("end") => x - width,
        Some(other) => panic!("unknown anchor {other}"),
    };
    [left, y - 0.74 * size, left + width, y + 0.2 * size]
}

const NUMERIC: &str = " x y x1 y1 x2 y2 cx cy r width height fill-opacity d viewBox ";

fn check(svg: &str) {
    let document = Document::parse(svg).unwrap_or_else(|e| panic!("{e}: {svg}"));
    let svg = svg.replace(STYLESHEET, "");
    let root = document.root_element();
    assert_eq!(root.attribute("role"), Some("img"));
    assert!(root.attribute("aria-label").is_some());
    let children: Vec<_> = root.children().take(3).collect();
    let names = children.iter().map(|child| child.tag_name().name());
    assert!(names.eq(["title", "desc", "style"]));
    // Identical in all figures, so that several can share a page.
    assert_eq!(children[2].text(), Some(STYLESHEET));
    let size = |name| root.attribute(name).unwrap().parse::<f64>().unwrap();
    let (width, height) = (size("width"), size("height"));

    let mut texts: Vec<([f64; 4], &str)> = Vec::new();
    for node in root.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        assert!(!["script", "foreignObject", "image", "use", "a"].contains(&name));
        for attribute in node.attributes() {
            assert!(!["id", "style", "href"].contains(&attribute.name()));
            if NUMERIC.contains(&format!(" {} ", attribute.name())) {
                let parts = attribute.value().split(|c: char| "MLZ ".contains(c));
                for part in parts.filter(|part| !part.is_empty()) {
                    assert!(part.parse::<f64>().unwrap().is_finite(), "{attribute:?}");
                }
            }
        }
        match name {
            "text" => texts.push((text_box(node), node.text().unwrap_or_default())),
            "circle" => {
                let at = |n| node.attribute(n).unwrap().parse::<f64>().unwrap();
                assert!((0.0..=width).contains(&at("cx")) && (0.0..=height).contains(&at("cy")));
            }
            _ => {}
        }
    }
    for (i, (a, text)) in texts.iter().enumerate() {
        let inside = a[0] >= 0.0 && a[1] >= 0.0 && a[2] <= width && a[3] <= height;
        assert!(
            inside,
            "{text:?} at {a:?} is clipped by {width} × {height}: {svg}"
        );
        for (b, other) in &texts[..i] {
            let apart = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
            assert!(apart, "{text:?} at {a:?} touches {other:?} at {b:?}: {svg}");
        }
    }
}

fn check_both(figure: &dyn Figure, width: f64) {
    check(&figure.to_svg_of_width(width));
    let html = figure.to_table().to_html();
    assert!(Document::parse(&html).is_ok(), "{html}");
}

fn texts(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).unwrap();
    let texts = document.descendants().filter(|n| n.has_tag_name(SVG_TEXT));
    texts.filter_map(|n| n.text().map(str::to_owned)).collect()
}

const SVG_TEXT: (&str, &str) = ("http://www.w3.org/2000/svg", "text");

fn chart(x: Axis, y: Axis, points: &[(f64, f64)]) -> LineChart {
    let mut chart = LineChart::new("Title", x, y);
    chart.series = vec![Series::new("series", points.iter().copied())];
    chart
}

#[test]
fn samples_are_valid_and_deterministic() {
    let first = samples::all();
    for svg in &first {
        check(svg);
    }
    assert_eq!(first, samples::all());
}

#[test]
fn text_is_escaped() {
    let nasty = "a <&\" b 'c' > ]]>";
    let mut line = chart(
        Axis::linear(nasty),
        Axis::log(nasty),
        &[(1.0, 2.0), (2.0, 3.0)],
    );
    line.title = nasty.into();
    line.subtitle = Some(nasty.into());
    line.series[0].name = nasty.into();
    line.reference_lines = vec![(nasty.into(), 2.5)];
    let svg = line.to_svg();
    check(&svg);
    assert_eq!(texts(&svg).iter().filter(|t| *t == nasty).count(), 6);
    assert!(!svg.contains("a <&"));
    let html = line.to_table().to_html();
    assert!(!html.contains("a <&") && Document::parse(&html).is_ok());
}

/// Names of features are complete in every chart of loadings, at every width that pages use.
#[test]
fn long_feature_names_are_complete() {
    let estimate = samples::estimate();
    let names = estimate.feature_names();
    for width in [350.0, 560.0, 720.0] {
        let rows = names.iter().map(|name| (name.clone(), vec![0.4, -0.2]));
        let columns = ["component 1, above", "component 2, above"].map(str::to_owned);
        let table = LoadingTable::new("Selected", columns, rows);
        let bars = loading_bars(&estimate).next().unwrap();
        for figure in [&table as &dyn Figure, &bars] {
            let svg = figure.to_svg_of_width(width);
            check(&svg);
            let written: String = texts(&svg).concat().split_whitespace().collect();
            for name in &names {
                let name: String = name.split_whitespace().collect();
                assert!(written.contains(&name), "{name} is not in {written}");
            }
            // No other text is truncated either.
            let cut = texts(&svg).iter().any(|text| text.ends_with('…'));
            assert!(!cut, "{written}");
        }
    }
    // Arrows have room for one line each; a name that does not fit is listed under the figure.
    let written = texts(&samples::rows().to_svg()).concat();
    for name in &names {
        assert!(written.contains(name), "{name} is not in {written}");
    }
}

/// Table and figures of an estimate show the same numbers, a group after its last component.
#[test]
fn table_and_figures_show_the_same_numbers() {
    let estimate = samples::estimate();
    let rows: Vec<_> = component_rows(&estimate).collect();
    let line = |row: &ComponentRow| {
        [&row.component, &row.variance, &row.direction, &row.verdict]
            .map(String::as_str)
            .join(" | ")
    };
    assert_eq!(
        rows.iter().map(line).collect::<Vec<_>>(),
        [
            "1 | 0.5491 ± 0.0142 | ±3.1° | above the noise floor",
            "2 | 0.2336 ± 0.0085 | – | above the noise floor, as one of 2–3",
            "3 | 0.2022 ± 0.0098 | – | above the noise floor, as one of 2–3",
            "2–3 | 0.4358 | ±3.5° | together above the noise floor",
            "4 | 0.005 | ±36.2° | below the noise floor",
        ]
    );
    // Nothing is told of the single directions of a group, in the table or in a chart.
    let unknown =
        |row: &ComponentRow| [&row.alignment, &row.largest_loadings].map(|cell| cell == "–");
    assert!(rows[1..3].iter().all(|row| unknown(row) == [true; 2]));
    assert_eq!(unknown(&rows[3]), [false; 2]);
    assert!(!rows[3].largest_loadings.contains(['+', '−']));
    let bars: Vec<BarChart> = loading_bars(&estimate).collect();
    let titles: Vec<&str> = bars.iter().map(|bars| bars.title.as_str()).collect();
    let space = "Components 2–3 together: largest features";
    let [one, four] = [1, 4].map(|j| format!("Component {j}: largest loadings"));
    assert_eq!(titles, [&one, space, &four]);
    // The lengths of the features in a space of two dimensions.
    let lengths = bars[1].bars.iter().map(|(_, length)| length * length);
    assert!((lengths.sum::<f64>() - 2.0).abs() < 1e-9);
    for shown in estimate_figures(&estimate, None) {
        let svg = shown.figure.to_svg();
        for row in rows
            .iter()
            .filter(|row| shown.file == "scree.svg" && row.component.len() == 1)
        {
            let (variance, _) = row.variance.split_once(' ').unwrap_or((&row.variance, ""));
            let point = format!("<title>Component {}: {variance}", row.component);
            assert!(svg.contains(&point), "{point}");
        }
        // A page with the study's name as its heading omits it from the titles.
        let named = format!(", {}</title>", estimate.name);
        assert!(svg.contains(&named));
    }
    let unnamed = Estimate {
        name: String::new(),
        ..estimate
    };
    let scree = &estimate_figures(&unnamed, None)[0].figure;
    let title = "<title>Variance by component</title>";
    assert!(scree.to_svg().contains(title));
}

/// Where the reports do not show how long rows are, every variance is the least that it can be.
#[test]
fn lower_bounds_have_no_plus_or_minus() {
    let mut estimate = samples::estimate();
    estimate.total_variance = None;
    let variances: Vec<String> = component_rows(&estimate).map(|row| row.variance).collect();
    assert_eq!(variances[0], "≥ 0.5491 (s.e. 0.0142)");
    assert!(
        variances
            .iter()
            .all(|cell| cell.starts_with("≥ ") && !cell.contains('±'))
    );
    let svg = estimate_figures(&estimate, None)[0].figure.to_svg();
    check(&svg);
    assert!(svg.contains("<title>Component 1: ≥ 0.5491"));
    assert!(!svg.contains("class=\"eb\""), "a whisker");
    assert!(texts(&svg).concat().contains("at least"));
}

#[test]
fn a_scree_plot_shows_how_firm_k_is() {
    let mut estimate = samples::estimate();
    estimate.k_shares = Some(CountShares {
        one_fewer: 0.1,
        same: 0.62,
        one_more: 0.0,
    });
    let scree = &estimate_figures(&estimate, None)[0].figure;
    for width in [350.0, 720.0] {
        let svg = scree.to_svg_of_width(width);
        check(&svg);
        let svg_text = texts(&svg).join(" ");
        assert!(
            svg_text.contains("after 3 in 10\u{a0}%, after 4 in 62\u{a0}%"),
            "{svg_text}"
        );
        assert_eq!(svg.matches("% of such studies</title>").count(), 2);
    }
}

#[test]
fn a_map_shows_which_correlations_are_sure() {
    let estimate = samples::with_moment();
    let figures = estimate_figures(&estimate, None);
    let map = figures
        .iter()
        .find(|shown| shown.file == "correlations.svg");
    let map = &map.unwrap().figure;
    let table = map.to_table();
    assert_eq!((table.rows.len(), table.rows[0][1].as_str()), (15, "0.6"));
    let names = estimate.feature_names();
    assert_eq!(table.rows[0][0], format!("{} ~ {}", names[0], names[1]));
    for (width, squares) in [(350.0, 2), (720.0, 1)] {
        let svg = map.to_svg_of_width(width);
        check(&svg);
        // The one of 0.6, on both sides of the diagonal where its number does not fit.
        assert_eq!(
            svg.matches("fill-opacity=\"0.6\"").count(),
            squares,
            "{svg}"
        );
        assert_eq!(texts(&svg).contains(&"0.60".to_owned()), squares == 1);
    }
    // Without a mean report there is none.
    let without = estimate_figures(&samples::estimate(), None);
    assert!(!without.iter().any(|shown| shown.file == "correlations.svg"));
}

/// Rows without a label have a mark and a name of their own, and no label's colour.
#[test]
fn rows_without_a_label_are_no_class() {
    let labels = ["a", "", "b", ""].map(str::to_owned);
    let scores: Vec<Vec<f64>> = (0..4).map(|i| vec![f64::from(i), 0.0]).collect();
    let picture = biplot(&samples::estimate(), (0, 1), &scores, Some(&labels));
    let svg = picture.unwrap().to_svg();
    check(&svg);
    let unlabelled_group = "<g class=\"vb\"><title>no label</title>";
    let (_, group) = svg.split_once(unlabelled_group).unwrap();
    let (group, _) = group.split_once("</g>").unwrap();
    assert_eq!(group.matches("class=\"mo\"").count(), 2, "{group}");
    assert!(texts(&svg).contains(&"no label".to_owned()));
    // The rings are theirs alone, also among many labels.
    let labels: Vec<String> = (0..13).map(|i| format!("l{}", i % 12)).collect();
    let scores: Vec<Vec<f64>> = (0..13).map(|i| vec![f64::from(i), 1.0]).collect();
    let many = biplot(&samples::estimate(), (0, 1), &scores, Some(&labels));
    assert!(!many.unwrap().to_svg().contains("class=\"mo\""));
}

#[test]
fn degenerate_data_still_gives_a_figure() {
    let dropped = chart(Axis::linear("x"), Axis::linear("y"), &[(f64::NAN, 1.0)]).to_svg();
    assert!(texts(&dropped).contains(&"no data".to_owned()));
    for scree in [
        Scree::new("none", []),
        Scree::new("one", [3.0]),
        Scree::new("nan", [f64::NAN; 3]),
    ] {
        check(&scree.to_svg());
    }
    check(&BarChart::new("none", "", Vec::<(String, f64)>::new()).to_svg());
    check(&BarChart::new("zero", "", [("a", 0.0)]).to_svg());
    check(&BarChart::new("extreme", "", [("a", 1e300), ("b", -1e300)]).to_svg());
    check(&ImageGrid::new("none").to_svg());
    let gaps = LoadingImage::new("gaps", "", (2, 2), &[f64::NAN, 0.0, 0.0, f64::INFINITY]).unwrap();
    check(&ImageGrid::new("gaps").with_row("", [gaps]).to_svg());
}

#[test]
fn images_check_their_shape_and_align_their_sign() {
    assert!(LoadingImage::new("", "", (2, 2), &[1.0; 3]).is_none());
    assert!(LoadingImage::new("", "", (0, 0), &[]).is_none());
    assert!(LoadingImage::new("", "", (usize::MAX, 2), &[1.0]).is_none());
    let up = LoadingImage::new("", "", (1, 2), &[1.0, 0.5]).unwrap();
    let down = LoadingImage::new("", "", (1, 2), &[-1.0, -0.5]).unwrap();
    assert_eq!(down.with_sign_of(&up), up);
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1e3..1e3f64,
        2 => (-12.0..12.0f64).prop_map(|e| 10f64.powf(e)),
        1 => proptest::num::f64::ANY,
        1 => Just(0.0),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-zA-Z =.εγ]{0,30}", 1 => "[a-z<&\"' ]{0,90}", 1 => any::<String>()]
}

fn axis() -> impl Strategy<Value = Axis> {
    let ticks = prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(value(), 0..9)];
    let domain = prop::option::weighted(0.3, (value(), value()));
    let kind = prop::sample::select(vec![ScaleKind::Linear, ScaleKind::Log10]);
    (name(), kind, domain, ticks).prop_map(|(label, scale, domain, ticks)| Axis {
        label,
        scale,
        domain,
        ticks,
    })
}

fn series() -> impl Strategy<Value = Series> {
    let points = prop::collection::vec((value(), value()), 0..8);
    let style = vec![LineStyle::Solid, LineStyle::Dotted, LineStyle::None];
    let style = prop::sample::select(style);
    let bars = prop::option::of(prop::collection::vec(value(), 0..9));
    let ranges = prop::option::of(prop::collection::vec((value(), value()), 0..9));
    (name(), points, bars, ranges, style).prop_map(|(name, points, error_bars, ranges, style)| {
        Series {
            error_bars,
            ranges,
            ..Series::new(name, points).with_style(style)
        }
    })
}

fn component() -> impl Strategy<Value = ScreeComponent> {
    let verdict = prop::sample::select(vec![Verdict::Above, Verdict::At, Verdict::Below]);
    let number = || prop::option::of(value());
    (verdict, value(), number(), 0usize..4, number()).prop_map(
        |(verdict, alignment, alignment_error, span, variance_error)| ScreeComponent {
            verdict,
            alignment,
            alignment_error,
            span,
            variance_error,
        },
    )
}

proptest! {
    #[test]
    fn any_line_chart_is_valid(
        title in name(),
        subtitle in prop::option::of(name()),
        (x, y) in (axis(), axis()),
        series in prop::collection::vec(series(), 0..9),
        reference_lines in prop::collection::vec((name(), value()), 0..4),
        (width, height) in (0.0..1200.0f64, 0.0..900.0f64),
    ) {
        let chart = LineChart { title, subtitle, x, y, series, reference_lines, height };
        check_both(&chart, width);
    }

    #[test]
    fn any_scree_is_valid(
        title in name(),
        eigenvalues in prop::collection::vec(value(), 0..80),
        floor in prop::option::of((value(), value(), value())),
        components in prop::collection::vec(component(), 0..12),
        lower_bounds in any::<bool>(),
        ends in prop::collection::vec((0usize..40, value()), 0..4),
        without_noise in prop::option::of(prop::collection::vec(value(), 0..40)),
        width in 0.0..1200.0f64,
    ) {
        let scree = Scree {
            floor: floor.map(|(level, edge, threshold)| VarianceFloor { level, edge, threshold }),
            components,
            lower_bounds,
            ends,
            without_noise,
            ..Scree::new(title, eigenvalues)
        };
        check_both(&scree, width);
    }

    #[test]
    fn any_alignment_chart_is_valid(
        title in name(),
        components in prop::collection::vec(component(), 0..40),
        width in 0.0..1200.0f64,
    ) {
        check_both(&AlignmentChart::new(title, components), width);
    }

    #[test]
    fn any_loading_table_is_valid(
        (title, columns) in (name(), prop::collection::vec(name(), 0..9)),
        rows in prop::collection::vec((name(), prop::collection::vec(value(), 0..9)), 0..50),
        width in 0.0..1200.0f64,
    ) {
        check_both(&LoadingTable::new(title, columns, rows), width);
    }

    #[test]
    fn any_picture_of_reports_is_valid(
        (title, features) in (name(), prop::collection::vec(name(), 0..12)),
        rows in prop::collection::vec(
            (
                prop::collection::vec(value(), 0..12),
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..3),
            ),
            0..3,
        ),
        width in 0.0..1200.0f64,
    ) {
        let rows = rows.into_iter().map(|(values, reports)| ReportedRow { values, reports });
        let picture = ReportPicture { title, features, rows: rows.collect() };
        check_both(&picture, width);
    }

    #[test]
    fn any_map_is_valid(
        (title, features) in (name(), prop::collection::vec(name(), 0..30)),
        pairs in prop::collection::vec((0usize..30, 0usize..30, prop::option::of(prop::array::uniform3(value()))), 0..60),
        (left_out, width) in (0usize..9, 0.0..1200.0f64),
    ) {
        // A pair once.
        let mut pairs = pairs;
        pairs.sort_by_key(|pair| (pair.0, pair.1));
        pairs.dedup_by_key(|pair| (pair.0, pair.1));
        let map = CorrelationMap { title, subtitle: None, features, pairs, left_out };
        check_both(&map, width);
    }

    #[test]
    fn any_bar_chart_is_valid(
        (title, label) in (name(), name()),
        bars in prop::collection::vec((name(), value()), 0..30),
        (shown, width) in (0usize..40, 0.0..1200.0f64),
    ) {
        check_both(&BarChart { shown, ..BarChart::new(title, label, bars) }, width);
    }

    #[test]
    fn any_grid_is_valid(
        title in name(),
        rows in prop::collection::vec(
            (name(), prop::collection::vec((name(), name(), 1usize..5, 1usize..5, value()), 0..4)),
            0..4,
        ),
        cell in 0.0..300.0f64,
    ) {
        let mut grid = ImageGrid { cell, ..ImageGrid::new(title) };
        for (label, images) in rows {
            let images = images.into_iter().map(|(title, label, r, c, v)| {
                let values: Vec<f64> = (0..r * c).map(|i| v * (i as f64 - 1.5)).collect();
                LoadingImage::new(title, label, (r, c), &values).unwrap()
            });
            grid = grid.with_row(label, images.collect::<Vec<_>>());
        }
        check(&grid.to_svg());
    }
}
