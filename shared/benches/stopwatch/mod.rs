//! Medians of many short runs, on the wall.

use std::time::Instant;

/// Some milliseconds: long beside reading the clock, short beside what else a machine does.
const BATCH_SECONDS: f64 = 5e-3;

/// Prints the median of what a run takes, the quartiles, and how many of `units` that makes a second, over so many
/// batches; nothing where a word on the command line is not part of the name.
pub(crate) fn measure(
    name: &str,
    samples: usize,
    units: Option<(usize, &str)>,
    mut run: impl FnMut(),
) {
    let wanted = |word: &String| word.starts_with("--") || name.contains(word.as_str());
    if !std::env::args().skip(1).all(|word| wanted(&word)) {
        return;
    }
    let mut batch = |runs: u32| {
        let origin = Instant::now();
        (0..runs).for_each(|_| run());
        origin.elapsed().as_secs_f64() / f64::from(runs)
    };
    let mut runs = 1;
    while batch(runs) * f64::from(runs) < BATCH_SECONDS {
        runs *= 2;
    }
    let mut times: Vec<f64> = (0..samples).map(|_| batch(runs)).collect();
    times.sort_by(f64::total_cmp);
    let [low, median, high] = [1, 2, 3].map(|quarter| 1e6 * times[(samples - 1) * quarter / 4]);
    let rate = units.map_or_else(String::new, |(count, what)| {
        format!(", {:.4e} {what} a second", 1e6 * count as f64 / median)
    });
    println!("{name}: {median:.3} μs ({low:.3}–{high:.3}){rate}");
}
