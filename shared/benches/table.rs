//! A site's whole report of a table in memory, by threads; beside it numpy's `X.T @ X` of the same size in the same run:
//! `python benches/site_table.py`. Alone: `cargo bench -p eigenveil-shared --bench table -- ROWS P`.

use std::{num::NonZeroUsize, time::Instant};

use eigenveil_shared::{
    mechanism::table::RowShares,
    preprocess::Row,
    privacy::Budget,
    site_study::{SiteStudyDesign, SiteStudyParams, SiteTerms},
};

/// Rows in memory, which come again and again: a table of 10⁶ × 400 has 3.2 GB.
const DISTINCT: usize = 1 << 15;

/// Resident memory of this process in MB: the most that there was, and what there is.
fn megabytes() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let megabytes_of = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        kilobytes
            .and_then(|number| number.parse::<u64>().ok())
            .unwrap_or(0)
            / 1_000
    };
    (megabytes_of("VmHWM:"), megabytes_of("VmRSS:"))
}

fn main() {
    let numbers = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    let [rows, p] = numbers[..] else {
        eprintln!("usage: table ROWS P");
        return;
    };
    let cell = |i: usize, j: usize| ((i * 31 + j * 17) as f64).sin();
    let distinct = rows.min(DISTINCT);
    let table: Vec<Vec<f64>> = (0..distinct)
        .map(|i| (0..p).map(|j| cell(i, j)).collect())
        .collect();
    let budget = Budget::approximate(1.0, 1e-7).expect("in range");
    let design = SiteStudyDesign::new(p, budget, SiteTerms::new(rows as u64));
    let params = SiteStudyParams::freeze(design).expect("in range");
    let shares = RowShares::of_rows(rows);
    let (_, before) = megabytes();
    let most = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    for threads in [1, most] {
        let threads = NonZeroUsize::new(threads).expect("positive");
        let clock = Instant::now();
        let sum = params.sum(&shares, threads, |i| Row::new(table[i % distinct].clone()));
        let sum = sum.expect("a table within its bounds");
        let summed = clock.elapsed().as_secs_f64();
        let payload = sum.perturb().expect("randomness");
        println!(
            "{rows} x {p}, {threads} threads: {:.2} s, of which noise {:.2} s; {} bytes; {} MB more than the table",
            clock.elapsed().as_secs_f64(),
            clock.elapsed().as_secs_f64() - summed,
            payload.len(),
            megabytes().0 - before,
        );
    }
}
