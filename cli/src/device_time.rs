//! How long a device works on one report of `double-cap`.

use std::{hint::black_box, time::Instant};

use eigenveil_shared::{
    mechanism::double_cap::{SEED_LEN, expand},
    study::StudyParams,
};

/// Expected tries × coordinates from which a report is called slow: a few milliseconds on one core.
const SLOW: f64 = 200_000.0;
/// Expansions that are timed at once, and how often; the fastest counts.
const TIMED: usize = 32;
const ROUNDS: usize = 5;

/// A sentence for people where one report takes noticeably long. Whether there is one depends on the study alone; the
/// time in it is measured on this machine.
pub(crate) fn slow(params: &StudyParams) -> Option<String> {
    let tries = params.mechanism().expected_tries()?;
    let p = params.report_dimension();
    if tries * (p as f64) < SLOW {
        return None;
    }
    Some(format!(
        "one report takes {tries:.0} tries of {p} numbers on average: about {} on one core of this machine; a smaller epsilon takes fewer",
        duration(tries * try_seconds(p))
    ))
}

/// Time to expand one seed here. The dot product that a try adds is little beside it.
fn try_seconds(p: usize) -> f64 {
    let mut z = vec![0.0; p];
    let mut seed = [0; SEED_LEN];
    (0..ROUNDS)
        .map(|round| {
            let begin = Instant::now();
            for i in 0..TIMED {
                seed[..2].copy_from_slice(&[i as u8, round as u8]);
                black_box(expand(&seed, black_box(&mut z)));
            }
            begin.elapsed().as_secs_f64() / TIMED as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// One digit is all that such a guess has.
fn duration(seconds: f64) -> String {
    let digit = |x: f64| format!("{x:.0e}").parse().unwrap_or(x);
    match seconds {
        s if s >= 120.0 => format!("{} minutes", digit(s / 60.0)),
        s if s >= 1.0 => format!("{} s", digit(s)),
        s if s >= 1e-3 => format!("{} ms", digit(s * 1e3)),
        s => format!("{} µs", digit(s * 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_digit() {
        assert_eq!(duration(0.0834), "80 ms");
        assert_eq!(duration(0.000_26), "300 µs");
        assert_eq!(duration(2.4), "2 s");
        assert_eq!(duration(400.0), "7 minutes");
        assert!(try_seconds(50) > 0.0);
    }
}
