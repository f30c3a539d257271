//! CPU time, which is less affected by other load than wall time.

use std::time::Instant;

/// CPU seconds of the calling thread, where the system reports them; else wall time since `origin`.
pub(crate) fn cpu_seconds(origin: Instant) -> f64 {
    let nanoseconds = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| origin.elapsed().as_secs_f64(), |ns| ns * 1e-9)
}

/// Milliseconds of each of `repeats` runs, and the result of the warm-up run before them.
pub(crate) fn timed<T>(repeats: usize, run: impl Fn() -> T) -> (Vec<f64>, T) {
    let origin = Instant::now();
    let result = run();
    let times = (0..repeats)
        .map(|_| {
            let from = cpu_seconds(origin);
            std::hint::black_box(run());
            1e3 * (cpu_seconds(origin) - from)
        })
        .collect();
    (times, result)
}

pub(crate) fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
