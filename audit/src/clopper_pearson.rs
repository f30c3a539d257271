//! Exact one-sided confidence limits of a binomial probability (Clopper & Pearson 1934).

use eigenveil_shared::mechanism::double_cap::beta_tails;
use statrs::function::{erf::erfc_inv, gamma::ln_gamma};

/// Lower limit at one-sided level `confidence` for the probability after `hits` of `trials`.
pub fn lower_limit(hits: u64, trials: u64, confidence: f64) -> f64 {
    if hits == 0 {
        return 0.0;
    }
    if hits >= trials {
        // P(all of them) = x^trials.
        return (1.0 - confidence).powf(1.0 / trials as f64);
    }
    beta_quantile(hits as f64, (trials - hits + 1) as f64, 1.0 - confidence)
}

/// Upper limit at one-sided level `confidence` for the probability after `hits` of `trials`.
pub fn upper_limit(hits: u64, trials: u64, confidence: f64) -> f64 {
    if hits >= trials {
        return 1.0;
    }
    if hits == 0 {
        // P(none of them) = (1 − x)^trials.
        return -((1.0 - confidence).ln() / trials as f64).exp_m1();
    }
    beta_quantile((hits + 1) as f64, (trials - hits) as f64, confidence)
}

/// x with I_x(a, b) = `probability`; a, b ≥ 1.
///
/// `statrs` stops its continued fraction at 140 terms, which is wrong beyond some 10⁴ trials.
fn beta_quantile(a: f64, b: f64, probability: f64) -> f64 {
    let ln_beta = ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b);
    let (mut low, mut high) = (0.0, 1.0);
    let mut x = approximate_quantile(a, b, probability);
    for _ in 0..200 {
        let excess = beta_tails(x, a, b).0 - probability;
        if excess > 0.0 {
            high = x;
        } else {
            low = x;
        }
        let ln_density = (a - 1.0) * x.ln() + (b - 1.0) * (-x).ln_1p() - ln_beta;
        let newton = x - excess / ln_density.exp();
        let next = if newton > low && newton < high {
            newton
        } else {
            0.5 * (low + high)
        };
        // Newton converges quadratically, so the next step would be below rounding.
        if (next - x).abs() <= 1e-9 * x {
            return next;
        }
        x = next;
    }
    x
}

/// Approximates the beta quantile to at least two digits (Abramowitz & Stegun 26.5.22).
fn approximate_quantile(a: f64, b: f64, probability: f64) -> f64 {
    let normal = -normal_quantile(probability);
    let [u, v] = [a, b].map(|c| 1.0 / (2.0 * c - 1.0));
    let h = 2.0 / (u + v);
    let lambda = (normal * normal - 3.0) / 6.0;
    let w = normal * (h + lambda).max(0.0).sqrt() / h
        - (v - u) * (lambda + 5.0 / 6.0 - 2.0 / (3.0 * h));
    a / (a + b * (2.0 * w).exp())
}

/// Φ⁻¹.
pub(crate) fn normal_quantile(probability: f64) -> f64 {
    -std::f64::consts::SQRT_2 * erfc_inv(2.0 * probability)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P(Binomial(n, q) ≥ hits), summed term by term.
    fn upper_tail(hits: u64, n: u64, q: f64) -> f64 {
        let mut term = (1.0 - q).powi(n as i32);
        let mut sum = 0.0;
        for j in 0..=n {
            if j >= hits {
                sum += term;
            }
            term *= (n - j) as f64 / (j + 1) as f64 * q / (1.0 - q);
        }
        sum
    }

    #[test]
    fn limits_solve_their_defining_equations() {
        for (hits, n) in [(1, 20), (7, 20), (19, 20), (20, 20), (50, 400)] {
            let low = lower_limit(hits, n, 0.975);
            assert!(
                (upper_tail(hits, n, low) - 0.025).abs() < 1e-8,
                "{hits} of {n}: {low}"
            );
            let high = upper_limit(hits - 1, n, 0.975);
            assert!(
                (upper_tail(hits, n, high) - 0.975).abs() < 1e-8,
                "{hits} of {n}: {high}"
            );
        }
    }

    #[test]
    fn limits_of_large_samples_agree_with_scipy() {
        // scipy.stats.beta.ppf (1.x), 12 digits.
        for (hits, n, low, high) in [
            (250_000, 500_000, 0.498_613_099_536, 0.501_386_900_464),
            (3, 500_000, 1.237_345_954_97e-6, 1.753_444_501_33e-5),
            (499_990, 500_000, 0.999_963_219_597, 0.999_990_409_182),
            (120_000, 500_000, 0.238_816_716_737, 0.241_186_296_706),
            (5_000_000, 10_000_000, 0.499_690_052_521, 0.500_309_947_479),
        ] {
            let (ours_low, ours_high) = (lower_limit(hits, n, 0.975), upper_limit(hits, n, 0.975));
            assert!(
                (ours_low / low - 1.0).abs() < 1e-8,
                "{hits} of {n}: {ours_low}"
            );
            assert!(
                (ours_high / high - 1.0).abs() < 1e-8,
                "{hits} of {n}: {ours_high}"
            );
        }
    }
}
