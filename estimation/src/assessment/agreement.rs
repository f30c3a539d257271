//! Whether the buckets agree: the estimate against the median of their means, in the directions where it matters
//! (`docs/estimation.md`, "Do the buckets agree?").
//!
//! With the weighted median c of the buckets' means `xⱼ = vᵀMⱼv` along a unit vector v (the median of means),
//! `zⱼ = √mⱼ(xⱼ − c)` and `σ̂ = median|zⱼ|/0.6745`, the statistic is `max |zⱼ|/σ̂`.
//!
//! **Directions.** The components, and the two leading directions of the scatter `W = Σⱼ Aⱼ²/mⱼ`, `Aⱼ = Sⱼ − mⱼS̃`. S̃ is
//! independent of the Aⱼ, and given W the deviations are uniform over rotations (Langsrud 2005, "Rotation tests"): the
//! choice costs only the factor d of the Bonferroni bound over d directions.
//!
//! **Threshold.** Of the |z| of g buckets one belongs to the median itself. The scale is that of rank ⌊g/2⌋ among the
//! other g − 2, so `P(max > t) ≈ (g−1) ∫ f(s)·2Φ(−ts) ds`, f the density of that order statistic. Against 400,000 draws
//! for g = 4 to 32 and equal to 20-fold unequal sizes the true rate was 0.88 to 1.30 times this; hence
//! `FALSE_ALARM_SLACK`.

use eigenveil_shared::{
    estimate::{BucketAgreement, BucketVerdict},
    mechanism::NoiseModel,
    packed::PackedSymmetric,
};
use nalgebra::{DMatrix, DVectorView, DVectorViewMut};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};

use crate::{
    input::{accumulate::Accumulator, moment::NoisyMoment},
    linalg::orthonormalize,
};

/// Probability of `Disagree` where all reports are honest.
pub const FALSE_ALARM_RATE: f64 = 1e-3;
/// Maximum dimension: two products with every bucket in each of 8 rounds, 5 s at 2,000 (measured on a loaded machine),
/// as long as the error bars.
pub const MAX_DIMENSION: usize = 2_000;
const MIN_BUCKETS: usize = 4;
/// A bucket with fewer reports is left out: its sum is not Gaussian enough.
const MIN_REPORTS: u64 = 64;
/// How much larger than the formula's the true rate may be.
const FALSE_ALARM_SLACK: f64 = 1.35;
/// Maximum number of components compared: each raises the threshold a little.
const MAX_COMPONENTS: usize = 8;
const SCATTER_DIRECTIONS: usize = 2;
/// Rounds of the block iteration. A visible batch is so far above the others that this is enough, and under the null
/// hypothesis any direction is valid.
const ROUNDS: usize = 8;
/// Median of |N(0, 1)|.
const MEDIAN_OF_HALF_NORMAL: f64 = 0.674_489_750_196_081_7;

/// Compares the buckets along the components `vectors` (`p × k`, k may be 0) and along their own scatter.
///
/// `None` if fewer than four buckets have 64 reports or more, above p = [`MAX_DIMENSION`], and without noise.
pub fn bucket_agreement(moment: &NoisyMoment, vectors: &DMatrix<f64>) -> Option<BucketAgreement> {
    let buckets: Vec<&Accumulator> = moment
        .buckets()
        .iter()
        .filter(|bucket| bucket.count() >= MIN_REPORTS)
        .collect();
    let sd = moment.noise().off_diagonal_sd();
    let noisy = sd.is_finite() && sd > 0.0;
    if buckets.len() < MIN_BUCKETS || moment.dimension() > MAX_DIMENSION || !noisy {
        return None;
    }
    let mut directions = vectors
        .columns(0, vectors.ncols().min(MAX_COMPONENTS))
        .into_owned();
    if let Some(scatter) = scatter_directions(moment.mean(), &buckets) {
        let (before, more) = (directions.ncols(), scatter.ncols());
        directions = directions.resize_horizontally(before + more, 0.0);
        directions.columns_mut(before, more).copy_from(&scatter);
    }
    let tried = directions.ncols();
    if tried == 0 {
        return None;
    }
    let whole = quadratic_forms(moment.mean(), &directions);
    let means: Vec<Vec<f64>> = buckets
        .iter()
        .map(|bucket| {
            let reports = bucket.count() as f64;
            let forms = quadratic_forms(bucket.sum(), &directions);
            forms
                .iter()
                .zip(&whole)
                .map(|(form, whole)| form / reports - whole)
                .collect()
        })
        .collect();
    let sizes: Vec<f64> = buckets.iter().map(|bucket| bucket.count() as f64).collect();
    let threshold = threshold(
        buckets.len(),
        FALSE_ALARM_RATE / FALSE_ALARM_SLACK / tried as f64,
    );
    let skewness = skewness_of_one_report(moment.noise());
    let mut suspicious = vec![false; buckets.len()];
    let (mut statistic, mut shift) = (0.0_f64, 0.0);
    for d in 0..tried {
        let along: Vec<f64> = means.iter().map(|of_bucket| of_bucket[d]).collect();
        // Noise alone spreads √m·x by √2·s or more (s in two dimensions): a smaller scale is that of reports without
        // noise, whose differences mean nothing.
        let (median, deviations) = deviations(&along, &sizes, 0.5 * sd, skewness);
        for (deviation, suspicious) in deviations.iter().zip(&mut suspicious) {
            *suspicious |= deviation.abs() > threshold;
            if deviation.abs() > statistic {
                (statistic, shift) = (deviation.abs(), -median);
            }
        }
    }
    if !(statistic.is_finite() && shift.is_finite()) {
        return None;
    }
    Some(BucketAgreement {
        buckets: buckets.len(),
        statistic,
        threshold,
        false_alarm_rate: FALSE_ALARM_RATE,
        verdict: match statistic > threshold {
            true => BucketVerdict::Disagree,
            false => BucketVerdict::Agree,
        },
        suspicious_buckets: suspicious.iter().filter(|&&suspicious| suspicious).count(),
        shift,
    })
}

/// Skewness of vᵀDv for one report, at most: that of χ² with one degree of freedom for reports of rank one.
fn skewness_of_one_report(noise: &NoiseModel) -> f64 {
    match *noise {
        NoiseModel::Gaussian { .. } => 0.0,
        // Centred Gaussian noise has no shift.
        NoiseModel::Transformed { shift: 0.0, .. } => 0.0,
        NoiseModel::Transformed { .. } | NoiseModel::DoubleCap { .. } => 8.0_f64.sqrt(),
    }
}

/// The median of means of the values `x` of buckets of these sizes, and every bucket's deviation from it in robust
/// standard deviations (of one report's spread at least `least`).
fn deviations(x: &[f64], sizes: &[f64], least: f64, skewness: f64) -> (f64, Vec<f64>) {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| x[a].total_cmp(&x[b]));
    let half = 0.5 * sizes.iter().map(|size| size.sqrt()).sum::<f64>();
    let mut weight = 0.0;
    let middle = order.iter().copied().find(|&j| {
        weight += sizes[j].sqrt();
        weight >= half
    });
    let median = middle.map_or(0.0, |j| x[j]);
    let z: Vec<f64> = x
        .iter()
        .zip(sizes)
        .map(|(x, size)| size.sqrt() * (x - median))
        .collect();
    let mut lengths: Vec<f64> = z.iter().map(|z| z.abs()).collect();
    lengths.sort_by(f64::total_cmp);
    let scale = (lengths[lengths.len() / 2] / MEDIAN_OF_HALF_NORMAL).max(least);
    let deviations = z
        .iter()
        .zip(sizes)
        .map(|(z, size)| unskewed(z / scale, skewness / size.sqrt()))
        .collect();
    (median, deviations)
}

/// A positive standardised gamma variable of this skewness as a normal one (Wilson & Hilferty); others stay.
fn unskewed(z: f64, skewness: f64) -> f64 {
    if z <= 0.0 || skewness == 0.0 {
        return z;
    }
    6.0 / skewness * ((1.0 + 0.5 * skewness * z).cbrt() - 1.0) + skewness / 6.0
}

/// The value that max |z|/σ̂ of g buckets exceeds with this probability along one direction, by the formula.
fn threshold(buckets: usize, probability: f64) -> f64 {
    let (mut low, mut high) = (1.0_f64, 1e9_f64);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        if exceedance(buckets, middle / MEDIAN_OF_HALF_NORMAL) > probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// `(g−1) ∫ f(s)·2Φ(−ts) ds`, f the density of the ⌊g/2⌋-th of g − 2 half-normal variables.
fn exceedance(buckets: usize, t: f64) -> f64 {
    const STEPS: u32 = 1_000;
    const MAX_QUANTILE: f64 = 8.0;
    let root_two = std::f64::consts::SQRT_2;
    let (others, rank) = ((buckets - 2) as f64, (buckets / 2) as f64);
    let ln_choices =
        libm::lgamma(others + 1.0) - libm::lgamma(rank) - libm::lgamma(others - rank + 1.0);
    // In ln s, because a small scale decides the tail for few buckets: from 1e-7·8 to 8.
    let step = 16.0 / f64::from(STEPS);
    let sum: f64 = (0..STEPS)
        .map(|i| {
            let s = MAX_QUANTILE * (-(f64::from(i) + 0.5) * step).exp();
            let below = libm::erf(s / root_two);
            let above = libm::erfc(s / root_two);
            let density = (2.0 / std::f64::consts::PI).sqrt() * (-0.5 * s * s).exp();
            let order =
                (ln_choices + (rank - 1.0) * below.ln() + (others - rank) * above.ln()).exp();
            density * order * libm::erfc(t * s / root_two) * s * step
        })
        .sum();
    (buckets - 1) as f64 * sum
}

/// Orthonormal directions near the leading ones of `W = Σⱼ Aⱼ²/mⱼ`; `None` where there is no scatter.
fn scatter_directions(mean: &PackedSymmetric, buckets: &[&Accumulator]) -> Option<DMatrix<f64>> {
    let p = mean.dimension();
    // Fixed, so that an estimate is the same every time; it must not depend on the buckets.
    let mut rng = ChaCha8Rng::seed_from_u64(0x6167_7265);
    let start = DMatrix::from_fn(p, SCATTER_DIRECTIONS.min(p), |_, _| {
        StandardNormal.sample(&mut rng)
    });
    let mut block = orthonormalize(start).ok()?;
    for _ in 0..ROUNDS {
        let of_mean = packed_product(mean, &block);
        let mut next = DMatrix::zeros(p, block.ncols());
        let mut rest = DMatrix::zeros(p, block.ncols());
        for bucket in buckets {
            let reports = bucket.count() as f64;
            let once = packed_product(bucket.sum(), &block) - &of_mean * reports;
            next += packed_product(bucket.sum(), &once) / reports;
            rest += once;
        }
        next -= packed_product(mean, &rest);
        block = orthonormalize(next).ok()?;
    }
    Some(block)
}

/// `MV` of a packed matrix.
fn packed_product(matrix: &PackedSymmetric, block: &DMatrix<f64>) -> DMatrix<f64> {
    let (p, columns) = block.shape();
    let mut product = DMatrix::zeros(p, columns);
    let mut entries = matrix.as_slice();
    for i in 0..p {
        let (line, rest) = entries.split_at(p - i);
        entries = rest;
        for c in 0..columns {
            let from = &block.as_slice()[c * p + i..(c + 1) * p];
            let into = &mut product.as_mut_slice()[c * p + i..(c + 1) * p];
            let (first, right) = (line[0], DVectorView::from_slice(&line[1..], p - i - 1));
            let below = DVectorView::from_slice(&from[1..], p - i - 1);
            into[0] += first * from[0] + right.dot(&below);
            let mut into = DVectorViewMut::from_slice(&mut into[1..], p - i - 1);
            into.axpy(from[0], &right, 1.0);
        }
    }
    product
}

/// `vᵀMv` of every column.
fn quadratic_forms(matrix: &PackedSymmetric, vectors: &DMatrix<f64>) -> Vec<f64> {
    let product = packed_product(matrix, vectors);
    (0..vectors.ncols())
        .map(|j| vectors.column(j).dot(&product.column(j)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::packed_to_dense;

    /// Thresholds of the same integral from an independent program (Python, checked with 400,000 draws), in units of
    /// the median.
    #[test]
    fn thresholds_agree_with_an_independent_program() {
        for (g, probability, exact) in [
            (4, 1e-3, 43.75),
            (5, 1e-2, 27.2),
            (8, 2e-4, 27.53),
            (32, 1e-3, 8.60),
            (32, 2e-4, 10.01),
        ] {
            let ours = threshold(g, probability) / MEDIAN_OF_HALF_NORMAL;
            assert!((ours / exact - 1.0).abs() < 2e-3, "{g}: {ours} {exact}");
        }
    }

    /// Wilson and Hilferty on the 0.9999 point of χ² with 100 degrees of freedom (161.319): Φ(3.719) = 0.9999.
    #[test]
    fn skewness_is_removed() {
        let z = (161.319 - 100.0) / 200.0_f64.sqrt();
        assert!((unskewed(z, (8.0_f64 / 100.0).sqrt()) - 3.719).abs() < 0.01);
        assert_eq!(unskewed(-3.0, 0.3), -3.0);
        assert_eq!(unskewed(3.0, 0.0), 3.0);
    }

    #[test]
    fn packed_products_equal_dense_ones() {
        let p = 7;
        let entries = (0..28).map(|i| f64::from(i * 37 % 11) - 5.0).collect();
        let matrix = PackedSymmetric::from_entries(p, entries).unwrap();
        let block = DMatrix::from_fn(p, 3, |i, j| (i * i + 3 * j) as f64 - 4.0);
        let exact = packed_to_dense(&matrix) * &block;
        assert_eq!(packed_product(&matrix, &block), exact);
        let forms = quadratic_forms(&matrix, &block);
        assert_eq!(forms[1], block.column(1).dot(&exact.column(1)));
    }

    /// Buckets of 1,000 reports with noise of standard deviation 2, `poisoned` of them with `size` along an axis.
    fn moment(buckets: usize, poisoned: usize, size: f64) -> NoisyMoment {
        let spike = |bucket| if bucket < poisoned { size } else { 0.0 };
        NoisyMoment::drawn(8, 20, &vec![1_000; buckets], 2.0, spike)
    }

    #[test]
    fn a_few_deviating_buckets_are_detected_and_counted() {
        let none = DMatrix::zeros(20, 0);
        let honest = bucket_agreement(&moment(32, 0, 0.0), &none).unwrap();
        assert_eq!(honest.verdict, BucketVerdict::Agree);
        assert_eq!((honest.buckets, honest.suspicious_buckets), (32, 0));
        for poisoned in [1, 3, 8] {
            let agreement = bucket_agreement(&moment(32, poisoned, 3.0), &none).unwrap();
            assert_eq!(agreement.verdict, BucketVerdict::Disagree, "{agreement:?}");
            assert_eq!(agreement.suspicious_buckets, poisoned);
            // The poison's contribution to the mean, minus the shift of the median.
            let moved = 3.0 * poisoned as f64 / 32.0;
            assert!((agreement.shift / moved - 1.0).abs() < 0.2, "{agreement:?}");
        }
        // Too few buckets, reports or noise to say anything.
        assert_eq!(bucket_agreement(&moment(3, 1, 3.0), &none), None);
        let small = Accumulator::from_parts(PackedSymmetric::zeros(20), 63).unwrap();
        let noise = *moment(4, 0, 0.0).noise();
        let few = NoisyMoment::from_buckets(vec![small; 8], noise).unwrap();
        assert_eq!(bucket_agreement(&few, &none), None);
    }

    /// Without noise in the reports the buckets' means differ by rounding at most.
    #[test]
    fn reports_without_noise_agree() {
        let mut sum = PackedSymmetric::zeros(3);
        sum.add_outer(&[0.1, 0.7, 0.3], 1.0);
        let buckets = (0..6).map(|j| {
            let count = 100 + 37 * j;
            let mut sum = sum.clone();
            sum.scale(count as f64);
            Accumulator::from_parts(sum, count).unwrap()
        });
        let noise = NoiseModel::gaussian(2.0);
        let moment = NoisyMoment::from_buckets(buckets.collect(), noise).unwrap();
        let agreement = bucket_agreement(&moment, &DMatrix::identity(3, 1)).unwrap();
        assert_eq!(agreement.verdict, BucketVerdict::Agree);
        assert!(agreement.statistic < 1e-6);
    }
}
