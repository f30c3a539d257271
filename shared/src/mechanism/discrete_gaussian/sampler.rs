//! Exact samplers of Canonne, Kamath & Steinke 2020 ("The Discrete Gaussian for Differential
//! Privacy"), Algorithms 1 to 3, in integers only.
//!
//! Every decision is exact: no floating-point number and no rounded probability takes part. What is
//! ours is the way few random bits are read: an event of rational probability is decided by its binary
//! digits, 32 at a time, and the factorials of Algorithm 1 share one draw.

use rand::Rng;

/// 8!: one uniform draw below it decides the first eight trials of [`bernoulli_exp_one`].
const EIGHT_FACTORIAL: u32 = 40_320;
const HALF_WORD_RANGE: u32 = 1 << 31;

/// The discrete Gaussian `N_Z(0, σ²)`, P(y) ∝ exp(−y²/2σ²) on the integers, for an integer σ.
pub(in crate::mechanism) struct DiscreteGaussianSampler {
    /// σ ≤ 2²⁶, also the scale t of the discrete Laplace proposal.
    sigma: u32,
    /// 2σ² ≤ 2⁵³.
    twice_variance: u64,
    /// 2³¹ mod σ: draws below it would make the uniform remainder biased.
    biased: u32,
}

impl DiscreteGaussianSampler {
    /// The sampler for 1 ≤ σ ≤ 2²⁶, which [`super::DiscreteGaussianParameters`] proves.
    pub(super) fn new(sigma: u32) -> Self {
        debug_assert!((1..=1 << 26).contains(&sigma));
        Self {
            sigma,
            twice_variance: 2 * u64::from(sigma) * u64::from(sigma),
            biased: HALF_WORD_RANGE % sigma,
        }
    }

    /// One sample (Algorithm 3). The paper takes t = ⌊σ⌋ + 1; its proof holds for every t ≥ 1, and
    /// with t = σ the acceptance probability exp(−(|y| − σ²/t)²/2σ²) is exp(−(|y| − σ)²/2σ²): a
    /// ratio of integers, whose denominator fits 53 bits. Accepts three of four proposals.
    pub(in crate::mechanism) fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> i64 {
        loop {
            let proposal = self.laplace(rng);
            let distance = proposal.unsigned_abs().abs_diff(u64::from(self.sigma));
            // Below 2⁶⁴, so its square fits.
            let square = u128::from(distance) * u128::from(distance);
            if bernoulli_exp(square, self.twice_variance, rng) {
                return proposal;
            }
        }
    }

    /// The discrete Laplace distribution of scale t = σ, P(y) ∝ exp(−|y|/σ) (Algorithm 2, s = 1).
    fn laplace<R: Rng + ?Sized>(&self, rng: &mut R) -> i64 {
        let scale = u64::from(self.sigma);
        loop {
            // The sign and the uniform remainder are disjoint bits of one word.
            let word = rng.next_u32();
            let product = u64::from(word % HALF_WORD_RANGE) * scale;
            #[allow(
                clippy::cast_possible_truncation,
                reason = "the remainder is below 2^31"
            )]
            if ((product % u64::from(HALF_WORD_RANGE)) as u32) < self.biased {
                continue;
            }
            let remainder = product / u64::from(HALF_WORD_RANGE);
            if !bernoulli_exp_fraction(remainder, scale, rng) {
                continue;
            }
            // Beyond 2³⁷ this would overflow, after as many successes of probability 1/e.
            let mut quotient = 0;
            while bernoulli_exp_one(rng) {
                quotient += 1;
            }
            #[allow(clippy::cast_possible_wrap, reason = "below 2^63")]
            let magnitude = (quotient * scale + remainder) as i64;
            match (word >= HALF_WORD_RANGE, magnitude) {
                // Zero has one sign only.
                (true, 0) => {}
                (true, _) => return -magnitude,
                (false, _) => return magnitude,
            }
        }
    }
}

/// True with probability exp(−n/d), d > 0 (Algorithm 1, γ = n/d of any size).
fn bernoulli_exp<R: Rng + ?Sized>(n: u128, d: u64, rng: &mut R) -> bool {
    let wide = u128::from(d);
    let mut rest = n;
    if n > wide {
        rest = n % wide;
        let mut whole = n / wide;
        while whole > 0 {
            if !bernoulli_exp_one(rng) {
                return false;
            }
            whole -= 1;
        }
    }
    #[allow(clippy::cast_possible_truncation, reason = "at most d")]
    bernoulli_exp_fraction(rest as u64, d, rng)
}

/// True with probability exp(−n/d), n ≤ d: the first k at which an event of probability n/(dk) fails
/// is odd.
fn bernoulli_exp_fraction<R: Rng + ?Sized>(n: u64, d: u64, rng: &mut R) -> bool {
    let mut k = 1;
    loop {
        let succeeded = match d.checked_mul(k) {
            Some(product) => bernoulli(n, product, rng),
            // d ≤ 2⁵³: only after 2¹¹ successes, of probability 1/2048! together.
            None => bernoulli(n, d, rng) && bernoulli(1, k, rng),
        };
        if !succeeded {
            return k % 2 == 1;
        }
        k += 1;
    }
}

/// True with probability 1/e: [`bernoulli_exp_fraction`] at γ = 1, where the first k trials all
/// succeed with probability 1/k!, that is where one number uniform below 8! is below 8!/k!.
fn bernoulli_exp_one<R: Rng + ?Sized>(rng: &mut R) -> bool {
    const BIASED: u32 = (u32::MAX % EIGHT_FACTORIAL + 1) % EIGHT_FACTORIAL;
    let uniform = loop {
        let product = u64::from(rng.next_u32()) * u64::from(EIGHT_FACTORIAL);
        #[allow(clippy::cast_possible_truncation, reason = "the low word is meant")]
        if (product as u32) >= BIASED {
            break product >> 32;
        }
    };
    // The first failure is at 2 above 8!/2, at 3 above 8!/3!, and so on.
    match uniform {
        20_160.. => false,
        6_720.. => true,
        1_680.. => false,
        336.. => true,
        56.. => false,
        8.. => true,
        1.. => false,
        0 => {
            let mut k = 9;
            while bernoulli(1, k, rng) {
                k += 1;
            }
            k % 2 == 1
        }
    }
}

/// True with probability n/d, 0 ≤ n ≤ d, d > 0: whether a real number uniform in [0, 1) is below n/d,
/// reading its binary digits 32 at a time until they tell. The first word leaves it open with
/// probability 2⁻³².
fn bernoulli<R: Rng + ?Sized>(n: u64, d: u64, rng: &mut R) -> bool {
    let mut n = n;
    loop {
        // The number lies in [word, word + 1)·2⁻³²; everything is multiplied by 2³²·d < 2⁹⁶.
        let low = u128::from(rng.next_u32()) * u128::from(d);
        let target = u128::from(n) << 32;
        if low + u128::from(d) <= target {
            return true;
        }
        if low >= target {
            return false;
        }
        #[allow(clippy::cast_possible_truncation, reason = "between 0 and d")]
        {
            n = (target - low) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    //! False alarms: every Pearson statistic below is compared with the 1 − 1e-6 quantile of its law
    //! (an even number of degrees of freedom, where the tail is a finite sum), every z-score with 5.5
    //! (4e-8). There are fewer than 60 of them: a correct sampler fails for one choice of seeds in
    //! about 15,000.

    use rand::{SeedableRng, rngs::ChaCha20Rng};

    use super::*;
    use crate::mechanism::script::Script;

    const FALSE_ALARM: f64 = 1e-6;
    const Z_LIMIT: f64 = 5.5;

    /// P(χ² > x) with an even number of degrees of freedom.
    fn chi_square_tail(x: f64, freedom: usize) -> f64 {
        assert!(freedom.is_multiple_of(2) && freedom > 0);
        let (mut term, mut sum) = (1.0, 0.0);
        for j in 1..=freedom / 2 {
            sum += term;
            term *= 0.5 * x / j as f64;
        }
        (-0.5 * x).exp() * sum
    }

    /// Pearson's statistic against cell probabilities; the last cell is dropped into its neighbour
    /// where that makes the degrees of freedom even.
    fn assert_fits(name: &str, counts: &[u64], probabilities: &[f64]) {
        let (mut counts, mut cells) = (counts.to_vec(), probabilities.to_vec());
        if cells.len() % 2 == 0 {
            let (count, cell) = (counts.pop().unwrap(), cells.pop().unwrap());
            *counts.last_mut().unwrap() += count;
            *cells.last_mut().unwrap() += cell;
        }
        let n = counts.iter().sum::<u64>() as f64;
        assert!((cells.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{name}");
        let of_cell = counts.iter().zip(&cells).map(|(&count, &cell)| {
            let expected = n * cell;
            assert!(expected > 20.0, "{name}: a cell of {expected}");
            (count as f64 - expected).powi(2) / expected
        });
        let (statistic, freedom): (f64, _) = (of_cell.sum(), cells.len() - 1);
        let tail = chi_square_tail(statistic, freedom);
        assert!(
            tail > FALSE_ALARM,
            "{name}: {statistic}, {freedom}: {tail:e}"
        );
    }

    /// Probabilities of the integers `-reach..=reach` under weight `weight(|y|)`, the ends taking the
    /// tails, each above `least`; returns reach too.
    fn cells(weight: impl Fn(f64) -> f64, least: f64) -> (i64, Vec<f64>) {
        let weights = (0..100_000).map(|y| weight(f64::from(y)));
        let weights: Vec<f64> = weights.take_while(|&w| w > 1e-18).collect();
        let total = weights[0] + 2.0 * weights[1..].iter().sum::<f64>();
        let tail = |from: usize| weights[from..].iter().sum::<f64>() / total;
        let likely = (1..weights.len()).take_while(|&y| weights[y] / total > least);
        let reach = likely.last().unwrap();
        let one_side = (0..reach).map(|y| weights[y] / total);
        let one_side: Vec<f64> = one_side.chain([tail(reach)]).collect();
        let both = one_side[1..].iter().rev().chain(&one_side).copied();
        (i64::try_from(reach).unwrap(), both.collect())
    }

    fn count(samples: impl Iterator<Item = i64>, reach: i64) -> Vec<u64> {
        let mut counts = vec![0; usize::try_from(2 * reach + 1).unwrap()];
        for y in samples {
            counts[usize::try_from(y.clamp(-reach, reach) + reach).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn small_sigmas_have_the_exact_law() {
        const SAMPLES: usize = 2_000_000;
        for (seed, sigma) in [(1, 1_u32), (2, 2), (3, 3), (4, 8)] {
            let s = f64::from(sigma);
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let sampler = DiscreteGaussianSampler::new(sigma);
            let (reach, gaussian) = cells(|y| (-0.5 * y * y / (s * s)).exp(), 2e-5);
            let counts = count((0..SAMPLES).map(|_| sampler.sample(&mut rng)), reach);
            assert_fits(&format!("gaussian {sigma}"), &counts, &gaussian);
            let (reach, laplace) = cells(|y| (-y / s).exp(), 2e-5);
            let counts = count((0..SAMPLES).map(|_| sampler.laplace(&mut rng)), reach);
            assert_fits(&format!("laplace {sigma}"), &counts, &laplace);
        }
    }

    /// Forty cells of a tenth of σ or more for the shape, residues for the low digits (uniform to
    /// exp(−2π²σ²/m²)), and the first four moments.
    #[test]
    fn large_sigmas_have_the_exact_law() {
        const SAMPLES: u32 = 1_000_000;
        let sigmas = [(1_u32 << 10) + 3, 1 << 12, 1 << 18, (1 << 26) - 5];
        for (seed, sigma) in (11..).zip(sigmas) {
            let s = f64::from(sigma);
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let sampler = DiscreteGaussianSampler::new(sigma);
            let width = i64::from(sigma) * 3 / 20;
            let mut counts = vec![0_u64; 41];
            let (mut mod_16, mut mod_17) = (vec![0_u64; 16], vec![0_u64; 17]);
            let (mut first, mut second, mut fourth) = (0.0, 0.0, 0.0);
            for _ in 0..SAMPLES {
                let y = sampler.sample(&mut rng);
                // Cell c holds c·width ≤ y + width/2 < (c+1)·width, the outer ones the tails.
                let cell = (y + width / 2).div_euclid(width).clamp(-20, 20) + 20;
                counts[usize::try_from(cell).unwrap()] += 1;
                mod_16[usize::try_from(y.rem_euclid(16)).unwrap()] += 1;
                mod_17[usize::try_from(y.rem_euclid(17)).unwrap()] += 1;
                let z = y as f64 / s;
                first += z;
                second += z * z;
                fourth += z * z * z * z;
            }
            // P(Y < m): the midpoint rule is off by less than σ⁻².
            let below = |m: i64| {
                let x = (m as f64 - 0.5) / s;
                0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
            };
            let edges: Vec<f64> = (-19..=20).map(|c| below(c * width - width / 2)).collect();
            let mut shape = vec![edges[0]];
            shape.extend(edges.windows(2).map(|e| e[1] - e[0]));
            shape.push(1.0 - edges[39]);
            assert_fits(&format!("shape {sigma}"), &counts, &shape);
            assert_fits(&format!("mod 16, {sigma}"), &mod_16, &[1.0 / 16.0; 16]);
            assert_fits(&format!("mod 17, {sigma}"), &mod_17, &[1.0 / 17.0; 17]);
            let n = f64::from(SAMPLES);
            for (name, z) in [
                ("mean", first / n.sqrt()),
                ("variance", (second - n) / (2.0 * n).sqrt()),
                ("fourth moment", (fourth - 3.0 * n) / (96.0 * n).sqrt()),
            ] {
                assert!(z.abs() < Z_LIMIT, "{name} {sigma}: {z}");
            }
        }
    }

    #[test]
    fn bernoulli_exp_has_its_probability() {
        const TRIALS: u32 = 1_000_000;
        let mut rng = ChaCha20Rng::seed_from_u64(21);
        let large = 1_u64 << 53;
        for (n, d) in [
            (0, 1),
            (1, 3),
            (1, 2),
            (1, 1),
            (7, 5),
            (2, 1),
            (31, 10),
            (u128::from(large / 3), large),
            (u128::from(large) * 5 / 4, large),
            // The denominator times k overflows at once.
            (u128::from(u64::MAX / 2), u64::MAX),
        ] {
            let p = (-(n as f64) / d as f64).exp();
            let drawn = (0..TRIALS).filter(|_| bernoulli_exp(n, d, &mut rng));
            let hits = drawn.count();
            let (mean, trials) = (p * f64::from(TRIALS), f64::from(TRIALS));
            let z = (hits as f64 - mean) / (trials * p * (1.0 - p)).sqrt().max(1e-9);
            assert!(z.abs() < Z_LIMIT, "exp(-{n}/{d}): {z}");
        }
        let hits = (0..TRIALS).filter(|_| bernoulli_exp_one(&mut rng)).count();
        let p = (-1.0_f64).exp();
        let z = (hits as f64 - p * f64::from(TRIALS)) / (f64::from(TRIALS) * p * (1.0 - p)).sqrt();
        assert!(z.abs() < Z_LIMIT, "exp(-1): {z}");
    }

    /// The draw from these words, and whether all of them were read.
    fn from_words(
        words: &[u32],
        draw: impl FnOnce(&mut Script<&mut dyn FnMut() -> u64>) -> bool,
    ) -> (bool, bool) {
        let mut words = words.iter();
        let next: &mut dyn FnMut() -> u64 = &mut || u64::from(*words.next().unwrap());
        let drawn = draw(&mut Script(next));
        (drawn, words.next().is_none())
    }

    #[test]
    fn bernoulli_reads_on_until_the_digits_tell() {
        // 1/3 = 0.0101…: the word of its digits leaves it open, the next lower or higher one does not.
        let third = 0x5555_5555;
        for (words, expected) in [
            (vec![third - 1], true),
            (vec![third + 1], false),
            (vec![third, third, third, third - 1], true),
            (vec![third, third, third, third + 1], false),
        ] {
            let drawn = from_words(&words, |rng| bernoulli(1, 3, rng));
            assert_eq!(drawn, (expected, true), "{words:?}");
        }
        // Dyadic probabilities never need a second word; 0 and 1 are certain.
        for (n, d, word, expected) in [
            (1, 2, 0x7fff_ffff, true),
            (1, 2, 0x8000_0000, false),
            (0, 7, 0, false),
            (7, 7, u32::MAX, true),
            (u64::MAX, u64::MAX, u32::MAX, true),
        ] {
            assert_eq!(from_words(&[word], |rng| bernoulli(n, d, rng)).0, expected);
        }
    }

    /// Every number below 8! once: exactly the share of Algorithm 1 with its first eight trials.
    #[test]
    fn one_draw_stands_for_eight_trials() {
        const FACTOR: u64 = EIGHT_FACTORIAL as u64;
        let mut heads = 0;
        let mut open = 0;
        for uniform in 0..FACTOR {
            // The middle of the words that Lemire's multiplication maps to this number.
            let word = ((uniform << 32) + (1 << 31)) / FACTOR;
            let words = [u32::try_from(word).unwrap(), u32::MAX];
            let (head, all_read) = from_words(&words, |rng| bernoulli_exp_one(rng));
            if !all_read {
                heads += u64::from(head);
            } else {
                open += 1;
                // The ninth trial fails: odd.
                assert!(head && uniform == 0);
            }
        }
        assert_eq!(open, 1);
        // 8!·(1/2! − 1/3! + 1/4! − 1/5! + 1/6! − 1/7! + 1/8!), less the open one.
        assert_eq!(heads, 20_160 - 6_720 + 1_680 - 336 + 56 - 8 + 1 - 1);
    }
}
