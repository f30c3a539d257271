//! The two sums over binomial laws that the shuffling bound needs, both rounded up.

/// Weight, relative to the mode's, below which a binomial's tail is swept into one term.
const NEGLIGIBLE: f64 = 1e-45;
/// Most groups a binomial law is cut into.
const MAX_BINS: u64 = 256;
/// Part of its value by which a sum may exceed the truth.
const TAIL_PRECISION: f64 = 1e-8;
/// What thousands of rounded factors may lose, and more.
const LOST: f64 = 1.0 + 1e-9;

/// Bin(`trials`, p) with p/(1−p) = `odds`, as groups of neighbouring counts: (smallest count of the group, at
/// least the group's probability). A function that falls with the count has at most the mean
/// `Σ probability · f(smallest count)`.
pub(super) fn grouped_binomial(trials: u64, odds: f64) -> Vec<(u64, f64)> {
    let n = trials as f64;
    let mode = (((n + 1.0) * (odds / (1.0 + odds))).floor() as u64).min(trials);
    // Weights relative to the mode's; their sum inside the window is less than the whole, so that dividing
    // by it rounds up.
    let mut below = Vec::new();
    let (mut count, mut weight) = (mode, 1.0_f64);
    while count > 0 && weight > NEGLIGIBLE {
        // weight(c−1)/weight(c) = c / ((n−c+1)·odds)
        weight *= count as f64 / ((n - count as f64 + 1.0) * odds);
        count -= 1;
        below.push(weight);
    }
    let lowest = count;
    let mut weights: Vec<f64> = below.into_iter().rev().collect();
    weights.push(1.0);
    let (mut count, mut weight) = (mode, 1.0_f64);
    let step = |count: u64| (n - count as f64) / (count as f64 + 1.0) * odds;
    while count < trials && weight > NEGLIGIBLE {
        weight *= step(count);
        count += 1;
        weights.push(weight);
    }
    let inside: f64 = weights.iter().sum();
    let scale = LOST / inside;

    let per_group = (weights.len() as u64).div_ceil(MAX_BINS) as usize;
    let mut groups = Vec::with_capacity(weights.len() / per_group + 2);
    if lowest > 0 {
        // Counts under the window: the ratio of neighbours falls away from the mode, a geometric series.
        let ratio = lowest as f64 / ((n - lowest as f64 + 1.0) * odds);
        groups.push((0, geometric(weights[0], ratio) * scale));
    }
    for (index, group) in weights.chunks(per_group).enumerate() {
        let probability: f64 = group.iter().sum();
        groups.push((
            lowest + (index * per_group) as u64,
            (probability * scale).max(f64::MIN_POSITIVE),
        ));
    }
    if count < trials {
        groups.push((count + 1, geometric(weight, step(count)) * scale));
    }
    groups
}

/// `last·(ratio + ratio² + …)`, at most; a bound that is never zero.
fn geometric(last: f64, ratio: f64) -> f64 {
    if ratio >= 1.0 {
        return 1.0;
    }
    (last * ratio / (1.0 - ratio)).clamp(f64::MIN_POSITIVE, 1.0)
}

/// At least `E (κX − s)₊` for X = 2·Bin(`trials`, ½)/trials − 1, the mean of that many fair signs, with
/// trials > 0, 0 < κ ≤ 1 and s ≥ 0. It falls with the number of trials.
pub(super) fn excess_of_mean_sign(trials: u64, kappa: f64, s: f64) -> f64 {
    if s >= kappa {
        return 0.0;
    }
    let n = trials as f64;
    // The last count with κX ≤ s, or one before it (10⁸ trials round to 10⁻⁷): its term is what rounding adds.
    let mut count = (0.5 * n * (1.0 + s / kappa) - 1e-6).floor().clamp(0.0, n);
    let mut probability = fair_binomial(n, count).max(1e-300);
    let mut sum = 0.0;
    let rise = 2.0 * kappa / n;
    // κ(2·count − n) is exact but for κ's own rounding; s may be rounded down by the caller's tanh.
    let excess = |count: f64| (kappa * ((2.0 * count - n) / n) - s).max(0.0) + 4.0 * f64::EPSILON;
    let mut steps = 0_u32;
    loop {
        let here = excess(count);
        let term = probability * here;
        sum += term;
        if count >= n {
            break;
        }
        let ratio = (n - count) / (count + 1.0);
        steps += 1;
        if steps.is_multiple_of(8) {
            // Terms fall at least as fast as a geometric series with the present ratio: what is left is
            // added as a whole once it is small.
            let falling = ratio * (1.0 + rise / here);
            if falling < 1.0 {
                let left = term * falling / (1.0 - falling);
                if left <= TAIL_PRECISION * sum {
                    sum += left;
                    break;
                }
            }
        }
        probability *= ratio;
        count += 1.0;
    }
    sum * LOST
}

/// P(Bin(n, ½) = count), relative error below 1e-10 (Loader 2000).
fn fair_binomial(n: f64, count: f64) -> f64 {
    let other = n - count;
    if count == 0.0 || other == 0.0 {
        return (-n * std::f64::consts::LN_2).exp();
    }
    let x = (count - other) / n;
    let divergence = 0.5 * ((1.0 + x) * x.ln_1p() + (1.0 - x) * (-x).ln_1p());
    let correction = stirling_error(n) - stirling_error(count) - stirling_error(other);
    let scale = n / (2.0 * std::f64::consts::PI * count * other);
    scale.sqrt() * (correction - n * divergence).exp()
}

/// `ln n! − ln(√(2πn)(n/e)^n)` for a whole n ≥ 1.
fn stirling_error(n: f64) -> f64 {
    if n < 16.0 {
        let ln_stirling = 0.5 * (2.0 * std::f64::consts::PI * n).ln() + n * (n.ln() - 1.0);
        return libm::lgamma(n + 1.0) - ln_stirling;
    }
    let square = n * n;
    (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square) / n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fair_binomial_is_exact_for_small_and_sums_to_one_for_large() {
        let mut exact = vec![1.0_f64];
        for n in 1..=60_u32 {
            let mut next = vec![0.0; exact.len() + 1];
            for (count, probability) in exact.iter().enumerate() {
                next[count] += 0.5 * probability;
                next[count + 1] += 0.5 * probability;
            }
            exact = next;
            for (count, &probability) in exact.iter().enumerate() {
                let ours = fair_binomial(f64::from(n), count as f64);
                assert!((ours / probability - 1.0).abs() < 1e-12, "{n} {count}");
            }
        }
        let n = 1e7;
        let total: f64 = (0..40_000)
            .map(|offset| fair_binomial(n, 0.5 * n - 20_000.0 + f64::from(offset)))
            .sum();
        assert!((total - 1.0).abs() < 1e-11, "{total}");
    }

    #[test]
    fn groups_cover_the_whole_law() {
        for (trials, odds) in [
            (0, 0.3),
            (1, 0.3),
            (50, 0.02),
            (5_000, 1.7),
            (10_000_000, 0.018),
            (99_999_999, 1e3),
            (1_000, 1e-9),
        ] {
            let groups = grouped_binomial(trials, odds);
            let total: f64 = groups.iter().map(|group| group.1).sum();
            assert!(
                (1.0..1.0 + 1e-8).contains(&total),
                "{trials} {odds}: {total}"
            );
            assert_eq!(groups[0].0, 0, "{trials} {odds}: counts from zero on");
            assert!(groups.windows(2).all(|pair| pair[0].0 < pair[1].0));
            // The mean of the groups' smallest counts is below the law's, by less than a group.
            let p = odds / (1.0 + odds);
            let mean: f64 = groups.iter().map(|group| group.0 as f64 * group.1).sum();
            let spread = (trials as f64 * p * (1.0 - p)).sqrt();
            assert!(mean <= trials as f64 * p * (1.0 + 2e-9) + 1e-9);
            assert!(
                mean >= trials as f64 * p - 0.2 * spread - 1.0,
                "{trials} {odds}"
            );
        }
    }

    #[test]
    fn excess_agrees_with_summing_everything_and_falls_with_the_trials() {
        for (kappa, s) in [(0.9, 0.1), (0.46, 0.0), (0.99, 0.6), (0.1, 0.099)] {
            let mut before = f64::INFINITY;
            for trials in 1..=400_u64 {
                let n = trials as f64;
                let direct: f64 = (0..=trials)
                    .map(|count| {
                        let x = 2.0 * count as f64 / n - 1.0;
                        fair_binomial(n, count as f64) * (kappa * x - s).max(0.0)
                    })
                    .sum();
                let ours = excess_of_mean_sign(trials, kappa, s);
                assert!(ours >= direct && ours <= direct * (1.0 + 1e-7) + 1e-15);
                assert!(ours <= before * (1.0 + 1e-7) + 1e-15, "{trials}");
                before = ours;
            }
        }
    }
}
