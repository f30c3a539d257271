//! Table 2: rows, columns and sparsity of the data sets, counted.

use eigenveil_figures::{Axis, LineStyle, Series};
use eigenveil_shared::{Result, preprocess::Row};

use crate::{
    Cell, Data, Exhibit, Minutes, Paper, PaperVerdict, Point, Record, RunPlan, RunSize, Table,
    number::digits, sweep,
};

/// Name, file, and the printed n, d and "sparsity" in percent.
const DATA_SETS: [(&str, &str, [f64; 3]); 3] = [
    ("a9a", "a9a.npy", [32_561.0, 123.0, 11.2757]),
    ("MNIST", "mnist_train.npy", [60_000.0, 784.0, 80.8798]),
    (
        "CIFAR-10",
        "cifar10_test2500.npy",
        [50_000.0, 3_072.0, 99.7617],
    ),
];

fn plan(data: &Data, _: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    for (name, file, [n, d, sparsity]) in DATA_SETS {
        // Read here, once; only the counts are kept.
        let rows = data.raw(file)?;
        let columns = rows.first().map_or(0, |row| row.values().len());
        let values = rows.iter().flat_map(Row::values);
        let nonzero = values.filter(|value| **value != 0.0).count();
        let nonzero_percent = 100.0 * nonzero as f64 / (rows.len() * columns) as f64;
        let counted = [
            n,
            d,
            sparsity,
            rows.len() as f64,
            columns as f64,
            nonzero_percent,
        ];
        plan.cells.push(Cell::new([&name], 1, move |_| {
            Ok(vec![Point::single(counted)])
        }));
    }
    Ok(plan)
}

fn check_claims(table: &Table) -> PaperVerdict {
    let mut verdict = PaperVerdict::default();
    for record in table.records() {
        let name = record.text("data_set");
        let number = |column| record.number(column);
        let [n, d] = ["n_mean", "d_mean"].map(number);
        let [printed_n, printed_d] = ["printed_n", "printed_d"].map(number);
        verdict = verdict.with_claim(
            format!("{name}: n and d"),
            n == printed_n && d == printed_d,
            format!("{n} × {d} here, {printed_n} × {printed_d} printed"),
        );
        let (nonzero_percent, printed) = (number("nonzero_mean"), number("printed_sparsity"));
        let agreement = if (nonzero_percent - printed).abs() < 0.01 {
            "the share of entries that are not zero"
        } else if (100.0 - nonzero_percent - printed).abs() < 0.01 {
            "the share of zeros, although a9a's is the share of nonzero entries"
        } else {
            "neither share"
        };
        verdict = verdict.with_claim(
            format!("{name}: sparsity is the share of entries that are not zero"),
            (nonzero_percent - printed).abs() < 0.01,
            format!(
                "{} % printed, {} % are not zero: it is {agreement}",
                digits(printed, 6),
                digits(nonzero_percent, 6)
            ),
        );
    }
    verdict
}

fn to_svg(table: &Table) -> String {
    let dot = |line: &Record| {
        let point = (line.number("printed_sparsity"), line.number("nonzero_mean"));
        Series::new(line.text("data_set"), [point]).with_style(LineStyle::None)
    };
    let diagonal = Series::new("as published", [(0.0, 0.0), (100.0, 100.0)]);
    let dots = table.records().iter().map(dot);
    sweep::chart(
        "Entries that are not zero, over the printed sparsity",
        Axis::linear("printed sparsity, %"),
        Axis::linear("entries that are not zero, %"),
        dots.chain([diagonal.with_style(LineStyle::Dotted)]),
        [],
    )
}

fn to_markdown(table: &Table) -> String {
    let rows = table.records().iter().map(|line| {
        format!(
            "{} | {} | {} | {} | {} | {} | {}",
            line.text("data_set"),
            line.text("printed_n"),
            line.number("n_mean"),
            line.text("printed_d"),
            line.number("d_mean"),
            digits(line.number("printed_sparsity"), 6),
            digits(line.number("nonzero_mean"), 6)
        )
    });
    let heads = "data | n printed | n | d printed | d | sparsity printed, % | not zero, %";
    sweep::grid(heads, rows)
}

pub(crate) const TABLE_2: Exhibit = Exhibit {
    id: "shang-table-2",
    item: "Table 2",
    caption: "the data sets: rows, columns, sparsity",
    data: &["a9a.npy", "mnist_train.npy", "cifar10_test2500.npy"],
    differs_from_paper: Some(
        "Real-sim is not available; CIFAR-10 is 2,500 test images decoded from JPEG instead of the 50,000 training images",
    ),
    minutes: Minutes::new(0.1, 0.1),
    key_columns: "data_set",
    per_cell: "printed_n printed_d printed_sparsity",
    measures: "n d nonzero",
    plan,
    check_claims,
    to_svg,
    to_markdown,
    ..Exhibit::of_paper(Paper::Shang)
};
