//! Standard errors from the buckets: how the estimate changes when one of them is left out.
//!
//! The delete-a-group jackknife for groups of unequal size (Busing, Meijer & van der Leeden, *Statistics and
//! Computing* 9, 1999, eqs. 7–9). With g groups of m₁ … m_g of the n reports, `hⱼ = n/mⱼ`, θ̂₍ⱼ₎ the estimate without
//! group j and pseudo-values `θ̃ⱼ = hⱼθ̂ − (hⱼ−1)θ̂₍ⱼ₎`:
//!
//! ```text
//! θ̂_J = Σ θ̃ⱼ/hⱼ        se² = (1/g) Σ (θ̃ⱼ − θ̂_J)²/(hⱼ − 1)
//! ```
//!
//! For a direction `θ̃ⱼ − θ̂_J` is `(hⱼ−1)` times the sine between the direction with and without the group, so
//! `se² = (1/g) Σ (hⱼ−1) sin²ⱼ`, which splits into parts, one towards each other component and one out of their span.
//! g = 32 buckets determine it to 1/√62 = 13 %.

use eigenveil_shared::{Result, packed::PackedSymmetric};
use nalgebra::{DMatrix, DVector};

use crate::{
    assessment::table_bars,
    dense::pca::rayleigh_quotients,
    input::{accumulate::Accumulator, moment::NoisyMoment},
    linalg::{
        BlockLanczos, SymmetricEigen, cross_product, packed_to_dense, parallel_for_each, top_k,
    },
};

/// Minimum number of non-empty buckets.
pub const MIN_BUCKETS: usize = 4;
/// Maximum dimension: a bucket costs about 16·k·p² flops, or a decomposition if k is not small compared with p < 300.
pub const MAX_DIMENSION: usize = 2_000;
/// Maximum number of components, from p = [`MIN_LARGE_DIMENSION`].
pub const MAX_COMPONENTS: usize = 32;
/// From this dimension [`MAX_COMPONENTS`] is a limit.
pub const MIN_LARGE_DIMENSION: usize = 300;
/// Below this dimension a full decomposition is as fast.
const MIN_KRYLOV_DIMENSION: usize = 60;
/// Blocks of the Krylov space that starts from the full estimate's directions.
const DEPTH: usize = 8;

/// Standard errors of k components, leading first.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorBars {
    /// Errors of the eigenvalues (of `vᵀS̃v` for directions that are held fixed), in units of the moment.
    pub eigenvalues: Vec<f64>,
    /// Errors of the directions; `None` if they were fixed, and of tables of sites.
    pub directions: Option<DirectionErrors>,
}

/// Mean squared sines between directions with and without each group, scaled to the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionErrors {
    /// `k × k`: of direction i (row) towards direction j; zero on the diagonal.
    mixing: DMatrix<f64>,
    /// Error of direction i out of the span of all k.
    outside: DVector<f64>,
}

impl DirectionErrors {
    /// Root mean squared sine of direction `j`, at most 1.
    pub fn sine(&self, j: usize) -> f64 {
        self.squared_sine_of_span(j, j).sqrt()
    }

    /// Mean squared sine of the span of the components `first..=last` (from 0), over its dimensions, at most 1.
    pub fn squared_sine_of_span(&self, first: usize, last: usize) -> f64 {
        let size = (last - first + 1) as f64;
        (self.squared_sines(first, last) / size).min(1.0)
    }

    /// Sum of the squared sines of the components `first..=last` out of their span, without a bound.
    pub(crate) fn squared_sines(&self, first: usize, last: usize) -> f64 {
        let out = |i: usize| {
            let others = (0..self.outside.len()).filter(|j| !(first..=last).contains(j));
            self.outside[i] + others.map(|j| self.mixing[(i, j)]).sum::<f64>()
        };
        (first..=last).map(out).sum()
    }

    /// The part of it of one run of components that is towards another run.
    pub(crate) fn mixing(&self, one: (usize, usize), other: (usize, usize)) -> f64 {
        let pairs = (one.0..=one.1).flat_map(|i| (other.0..=other.1).map(move |j| (i, j)));
        pairs.map(|pair| self.mixing[pair]).sum()
    }
}

/// The estimator that is repeated without each bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reestimate<'a> {
    /// Plain PCA.
    Pca,
    /// PCA on these rows; that they were selected is not in the error bars.
    PcaOnRows(&'a [usize]),
    /// Nothing: the directions stay.
    Nothing,
}

/// Standard errors of the components `vectors` (`p × k`) of the moment.
///
/// `None` with fewer than four non-empty buckets or one that holds more than half of all reports, without components,
/// and above [`MAX_DIMENSION`] or (from p = 300) [`MAX_COMPONENTS`], where it would take too long. Those of tables of sites
/// are by formula, of noise and sampling.
pub fn error_bars(
    moment: &NoisyMoment,
    vectors: &DMatrix<f64>,
    reestimate: Reestimate<'_>,
) -> Result<Option<ErrorBars>> {
    let k = vectors.ncols();
    if moment.counts().sites > 0 && k > 0 {
        let values = rayleigh_quotients(&moment.dense(), vectors);
        let bars = table_bars(moment, vectors, values.as_slice());
        return Ok(Some(ErrorBars {
            eigenvalues: bars.expected,
            directions: None,
        }));
    }
    let rows = match reestimate {
        Reestimate::PcaOnRows(rows) => rows.len(),
        _ => moment.dimension(),
    };
    let Some(groups) = groups(moment).filter(|_| k > 0 && !is_costly(rows, k)) else {
        return Ok(None);
    };
    let on_rows = match reestimate {
        Reestimate::PcaOnRows(rows) => vectors.select_rows(rows),
        _ => vectors.clone(),
    };
    let whole = rayleigh_quotients(&restricted_moment(moment.mean(), reestimate), &on_rows);
    let rows = moment.n() as f64;
    let estimate_without = |group: &Accumulator| {
        let left = restricted_moment(&moment_without_bucket(moment, group), reestimate);
        if reestimate == Reestimate::Nothing {
            return Ok(LeaveOneOut {
                values: rayleigh_quotients(&left, &on_rows),
                cosines: DMatrix::zeros(0, 0),
            });
        }
        let leading = leading_near(&left, &on_rows)?;
        Ok(LeaveOneOut {
            cosines: cross_product(&on_rows, &leading.vectors),
            values: leading.values,
        })
    };
    let mut estimates: Vec<Option<Result<LeaveOneOut>>> = groups.iter().map(|_| None).collect();
    parallel_for_each(groups.iter().zip(&mut estimates), |(group, estimate)| {
        *estimate = Some(estimate_without(group));
    });
    let mut sizes = Vec::with_capacity(groups.len());
    let mut values = vec![Vec::with_capacity(groups.len()); k];
    let moving = reestimate != Reestimate::Nothing;
    let mut directions = moving.then(|| DirectionErrors {
        mixing: DMatrix::zeros(k, k),
        outside: DVector::zeros(k),
    });
    for (group, estimate) in groups.iter().zip(estimates.into_iter().flatten()) {
        let estimate = estimate?;
        let share = rows / group.count() as f64;
        sizes.push(share);
        for (values, value) in values.iter_mut().zip(&estimate.values) {
            values.push(*value);
        }
        if let Some(directions) = &mut directions {
            directions.add(&estimate.cosines, (share - 1.0) / groups.len() as f64);
        }
    }
    let eigenvalues = (0..k)
        .map(|j| standard_error(whole[j], &values[j], &sizes))
        .collect();
    Ok(Some(ErrorBars {
        eigenvalues,
        directions,
    }))
}

/// Whether it takes too long to decompose a moment of so many rows without each bucket, or each site.
pub(crate) fn is_costly(rows: usize, k: usize) -> bool {
    rows > MAX_DIMENSION || (rows >= MIN_LARGE_DIMENSION && k > MAX_COMPONENTS)
}

struct LeaveOneOut {
    values: DVector<f64>,
    /// `k × k`, of the angles between the whole's directions (rows) and these; empty where they were held fixed.
    cosines: DMatrix<f64>,
}

impl DirectionErrors {
    fn add(&mut self, cosines: &DMatrix<f64>, weight: f64) {
        for (i, row) in cosines.row_iter().enumerate() {
            self.outside[i] += weight * (1.0 - row.norm_squared()).max(0.0);
            for (j, cosine) in row.iter().enumerate().filter(|(j, _)| *j != i) {
                self.mixing[(i, j)] += weight * cosine * cosine;
            }
        }
    }
}

/// The non-empty buckets, when there are enough of them.
fn groups(moment: &NoisyMoment) -> Option<Vec<&Accumulator>> {
    let groups: Vec<&Accumulator> = moment.buckets().iter().filter(|b| b.count() > 0).collect();
    let largest = groups.iter().map(|bucket| bucket.count()).max()?;
    (groups.len() >= MIN_BUCKETS && 2.0 * largest as f64 <= moment.n() as f64).then_some(groups)
}

fn moment_without_bucket(moment: &NoisyMoment, group: &Accumulator) -> PackedSymmetric {
    let rows = moment.n() as f64;
    let rest = rows - group.count() as f64;
    let mut left = moment.mean().clone();
    for (entry, sum) in left.as_mut_slice().iter_mut().zip(group.sum().as_slice()) {
        *entry = (rows * *entry - sum) / rest;
    }
    left
}

fn restricted_moment(moment: &PackedSymmetric, reestimate: Reestimate<'_>) -> DMatrix<f64> {
    match reestimate {
        Reestimate::PcaOnRows(rows) => DMatrix::from_fn(rows.len(), rows.len(), |a, b| {
            let (i, j) = (rows[a].min(rows[b]), rows[a].max(rows[b]));
            moment.get(i, j)
        }),
        _ => packed_to_dense(moment),
    }
}

/// The leading eigenpairs of a matrix whose leading eigenvectors are nearly `start`.
///
/// Rayleigh–Ritz in a block Krylov space from `start`, where that is small compared with p: its error is far below the
/// 13 % accuracy of a standard error from 32 groups (a test compares).
pub(crate) fn leading_near(matrix: &DMatrix<f64>, start: &DMatrix<f64>) -> Result<SymmetricEigen> {
    let (p, k) = start.shape();
    let depth = DEPTH.min(p / (3 * k));
    if p < MIN_KRYLOV_DIMENSION || depth < 3 {
        return top_k(matrix, k);
    }
    let mut lanczos = BlockLanczos::new(matrix, start);
    for _ in 0..depth {
        lanczos.grow();
    }
    if lanczos.krylov_dimension() < k {
        return top_k(matrix, k);
    }
    let ritz = lanczos.ritz(|_| Ok(k))?;
    Ok(SymmetricEigen {
        values: DVector::from_column_slice(&ritz.values[..k]),
        vectors: lanczos.vectors(&ritz.coordinates),
    })
}

/// Busing et al.'s standard error of `whole` from the estimates without each group, `shares` being n/mⱼ.
fn standard_error(whole: f64, without: &[f64], shares: &[f64]) -> f64 {
    // Relative to the whole, so that nothing cancels.
    let pseudo = |value: &f64, share: &f64| (share - 1.0) * (whole - value);
    let pairs = || without.iter().zip(shares);
    let centre: f64 = pairs().map(|(v, h)| pseudo(v, h) / h).sum();
    let sum: f64 = pairs()
        .map(|(v, h)| (pseudo(v, h) - centre).powi(2) / (h - 1.0))
        .sum();
    (sum / without.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{Threads, leading_columns};

    fn moment(p: usize, sizes: &[u64], sd: f64) -> NoisyMoment {
        NoisyMoment::drawn(5, p, sizes, sd, |_| 1.0)
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let moment = moment(30, &[100, 250, 175, 90, 310], 2.0);
        let vectors = top_k(&moment.dense(), 2).unwrap().vectors;
        let bars = |threads| {
            let threads = Threads::new(threads).unwrap();
            threads.run(|| {
                error_bars(&moment, &vectors, Reestimate::Pca)
                    .unwrap()
                    .unwrap()
            })
        };
        assert_eq!(bars(1), bars(3));
    }

    /// A mean's jackknife error is the weighted one in closed form, whatever the sizes.
    #[test]
    fn jackknife_of_a_mean_is_the_textbook_formula() {
        let (values, sizes) = ([1.0, 2.0, 4.0, 7.0], [10.0, 20.0, 30.0, 40.0]);
        let n = 100.0;
        let groups = || values.iter().zip(sizes);
        let mean = groups().map(|(x, m)| x * m / n).sum::<f64>();
        let without = groups().map(|(x, m)| (n * mean - m * x) / (n - m));
        let without: Vec<f64> = without.collect();
        let shares = sizes.map(|m| n / m);
        // θ̃ⱼ is the mean of group j.
        let squares = groups().map(|(x, m)| (x - mean) * (x - mean) / (n / m - 1.0));
        let exact = squares.sum::<f64>() / 4.0;
        let se = standard_error(mean, &without, &shares);
        assert!((se * se - exact).abs() < 1e-12, "{se}");
    }

    /// Equal sizes and very unequal ones agree with the noise's distribution, 24 and 20 groups: within 40 % (2.7
    /// standard deviations of a jackknife).
    #[test]
    fn unequal_buckets_give_the_same_errors() {
        let unequal: Vec<u64> = (0..20).map(|i| 500 + 100 * i).collect();
        for sizes in [vec![1_000; 24], unequal] {
            let moment = moment(30, &sizes, 2.0);
            let dense = moment.dense();
            let leading = top_k(&dense, 1).unwrap();
            let bars = error_bars(&moment, &leading.vectors, Reestimate::Pca)
                .unwrap()
                .unwrap();
            let n = moment.n() as f64;
            let exact = 2.0 / n.sqrt();
            assert!((bars.eigenvalues[0] / exact - 1.0).abs() < 0.4, "{bars:?}");
            let sine = 2.0 * (29.0 / n).sqrt();
            let direction = bars.directions.unwrap().sine(0);
            assert!((direction / sine - 1.0).abs() < 0.2, "{direction} {sine}");
        }
    }

    #[test]
    fn krylov_space_agrees_with_the_full_decomposition() {
        let moment = moment(320, &[500; 8], 0.6);
        let leading = top_k(&moment.dense(), 1).unwrap();
        for group in moment.buckets() {
            let left = packed_to_dense(&moment_without_bucket(&moment, group));
            let near = leading_near(&left, &leading.vectors).unwrap();
            let exact = top_k(&left, 1).unwrap();
            let sine = |with: &SymmetricEigen| {
                let cosine = with.vectors.column(0).dot(&leading.vectors.column(0));
                (1.0 - cosine * cosine).sqrt()
            };
            assert!((near.values[0] - exact.values[0]).abs() < 1e-4);
            assert!((sine(&near) / sine(&exact) - 1.0).abs() < 0.01);
        }
        let exact = DMatrix::from_fn(300, 300, |i, j| f64::from(u8::from(i == j && i == 0)));
        let start = leading_columns(&DMatrix::identity(300, 300), 1);
        assert_eq!(leading_near(&exact, &start).unwrap().values[0], 1.0);
    }

    /// Two equal components mix differently in each bucket; the plane they span stays the same.
    #[test]
    fn a_plane_is_determined_where_its_directions_are_not() {
        let mut moment = moment(30, &[1_000; 24], 1.0);
        let buckets = moment.buckets().iter().map(|bucket| {
            let mut sum = bucket.sum().clone();
            let second = eigenveil_shared::packed::packed_index(30, 1, 1);
            sum.as_mut_slice()[second] += bucket.count() as f64;
            Accumulator::from_parts(sum, bucket.count()).unwrap()
        });
        moment = NoisyMoment::from_buckets(buckets.collect(), *moment.noise()).unwrap();
        let leading = top_k(&moment.dense(), 2).unwrap();
        let bars = error_bars(&moment, &leading.vectors, Reestimate::Pca).unwrap();
        let directions = bars.unwrap().directions.unwrap();
        // The noise's distribution: 28 directions outside, variance 1/n each.
        let exact = 28.0 / 24_000.0;
        let plane = directions.squared_sine_of_span(0, 1);
        assert!((plane / exact - 1.0).abs() < 0.4, "{plane} {exact}");
        assert!(directions.sine(0) > 0.3, "{}", directions.sine(0));
        // Alone, a direction's error is what it was: out of the plane and towards the other one.
        let parts = directions.outside[0] + directions.mixing[(0, 1)];
        assert!((directions.sine(0).powi(2) - parts.min(1.0)).abs() < 1e-12);
    }

    #[test]
    fn too_few_or_unbalanced_buckets_have_no_error_bars() {
        let axis = leading_columns(&DMatrix::identity(5, 5), 1);
        for sizes in [&[10, 10, 10][..], &[100, 10, 10, 10], &[10, 10, 0, 10, 0]] {
            let moment = moment(5, sizes, 1.0);
            assert_eq!(error_bars(&moment, &axis, Reestimate::Pca).unwrap(), None);
        }
        let moment = moment(5, &[10, 10, 10, 10], 1.0);
        let none = DMatrix::zeros(5, 0);
        assert_eq!(error_bars(&moment, &none, Reestimate::Pca).unwrap(), None);
        let fixed = error_bars(&moment, &axis, Reestimate::Nothing)
            .unwrap()
            .unwrap();
        assert_eq!(fixed.directions, None);
        let rows = error_bars(&moment, &axis, Reestimate::PcaOnRows(&[0])).unwrap();
        let rows = rows.unwrap();
        // Alone on its row a direction cannot move, and its eigenvalue is the fixed one's.
        assert_eq!(rows.directions.unwrap().sine(0), 0.0);
        assert!((rows.eigenvalues[0] - fixed.eigenvalues[0]).abs() < 1e-12);
    }
}
