//! Synthetic populations with a known principal subspace.
//!
//! Three are `x ~ N(0, w·I + d·VVᵀ)` and differ in `w`, `d` and how the frame V is drawn; the haystack is a mixture of
//! inliers near V and outliers around, and random-sign rows are ± a column of V plus noise. Rows are raw: they still
//! have to be prepared (clipped or normalised) like any participant's.

use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};

use crate::{
    linalg::{cross_product, orthonormalize, outer_scaled, product},
    metrics::captured_share,
};

/// A family of populations; [`draw`](Model::draw) fixes the random frame V, `p × k`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Dimension.
    pub p: usize,
    /// Rank of the subspace.
    pub k: usize,
    /// Rows of V that are not zero.
    s: usize,
    /// Isotropic variance of the inliers (all rows, except in a haystack).
    bulk_variance: f64,
    /// Variance added along V.
    signal_variance: f64,
    inlier_share: f64,
    /// Whether a row is ± one column of V instead of a Gaussian combination of all.
    has_random_sign: bool,
}

impl Model {
    /// `N(0, I + spike·VVᵀ)`, V a uniformly random frame, `spike` > 0.
    pub const fn spiked(p: usize, k: usize, spike: f64) -> Self {
        Self::sparse(p, k, p, spike)
    }

    /// A spiked population with V supported on `s` random rows (uniform on them), `k ≤ s ≤ p`.
    pub const fn sparse(p: usize, k: usize, s: usize, spike: f64) -> Self {
        Self {
            p,
            k,
            s,
            bulk_variance: 1.0,
            signal_variance: spike,
            inlier_share: 1.0,
            has_random_sign: false,
        }
    }

    /// Section 6 of Wang & Xu: `N(0, λ/(5p(λ+1))·VVᵀ + 1/(5p(λ+1))·I)`, λ > 0 (the paper uses 1); to be clipped at
    /// radius 1. `s` is `None` for the paper's low-dimensional experiments.
    pub const fn wang_xu(p: usize, k: usize, s: Option<usize>, lambda: f64) -> Self {
        let s = match s {
            Some(s) => s,
            None => p,
        };
        let unit = 1.0 / (5.0 * p as f64 * (lambda + 1.0));
        Self {
            bulk_variance: unit,
            ..Self::sparse(p, k, s, lambda * unit)
        }
    }

    /// The haystack of Lerman, McCoy, Tropp & Zhang (2015): each row an inlier `V·N(0, I/k) + N(0, ν²I/p)` with
    /// probability `inliers` in (0, 1], otherwise an outlier `N(0, I/p)`. Inliers and outliers have the same mean
    /// square norm at ν = `noise` = 0, where the inliers lie on the subspace.
    pub const fn haystack(p: usize, k: usize, inliers: f64, noise: f64) -> Self {
        Self {
            bulk_variance: noise * noise / p as f64,
            inlier_share: inliers,
            ..Self::spiked(p, k, 1.0 / k as f64)
        }
    }

    /// Example 4.1 of Liu, Kong, Jain & Oh (2022), `x = ±v + σ·N(0, I)` with a fair sign and σ = `noise` ≥ 0; for k > 1
    /// v is a uniformly chosen column of V. Its covariance is `VVᵀ/k + σ²I`; the paper's has k = 1.
    pub const fn random_sign(p: usize, k: usize, noise: f64) -> Self {
        Self {
            bulk_variance: noise * noise,
            has_random_sign: true,
            ..Self::spiked(p, k, 1.0 / k as f64)
        }
    }

    /// Draws the frame.
    ///
    /// # Errors
    /// `invalid-request` unless `1 ≤ k ≤ s ≤ p` (with s = p where there is no sparsity), the spike or
    /// λ is a positive finite number, the share of inliers in (0, 1] and their noise not negative.
    pub fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> Result<Population> {
        let Self { p, k, s, .. } = *self;
        if !(self.inlier_share > 0.0 && self.inlier_share <= 1.0) {
            return Err(Error::invalid_request(format!(
                "the share of inliers is {}; it must be above 0 and at most 1",
                self.inlier_share
            )));
        }
        if !(self.bulk_variance.is_finite() && self.bulk_variance >= 0.0) {
            return Err(Error::invalid_request(
                "the noise of a model must be a finite number, 0 or more",
            ));
        }
        if !(1 <= k && k <= s && s <= p) {
            return Err(Error::invalid_request(format!(
                "k = {k}, s = {s}, p = {p}: a model needs 1 ≤ k ≤ s ≤ p"
            )));
        }
        if !(self.signal_variance.is_finite() && self.signal_variance > 0.0) {
            return Err(Error::invalid_request(
                "the spike (or λ) of a model must be a positive finite number",
            ));
        }
        let rows = choose_rows(rng, p, s);
        let frame = uniform_frame(rng, s, k)?;
        let mut subspace = DMatrix::zeros(p, k);
        for (i, &row) in rows.iter().enumerate() {
            subspace.set_row(row, &frame.row(i));
        }
        Ok(Population {
            subspace,
            support: rows,
            model: *self,
        })
    }
}

/// A population whose principal subspace is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Population {
    subspace: DMatrix<f64>,
    support: Vec<usize>,
    model: Model,
}

impl Population {
    /// V: `p × k`, orthonormal.
    pub fn subspace(&self) -> &DMatrix<f64> {
        &self.subspace
    }

    /// The rows of V that are not zero, ascending (all p for a dense model).
    pub fn support(&self) -> &[usize] {
        &self.support
    }

    /// The population with every column of V turned by `angle`, in radians, towards a random direction of its own that is
    /// orthogonal to V: another site's.
    ///
    /// # Errors
    /// `invalid-request` for a sparse V, and where V leaves no k other directions.
    pub fn tilted<R: Rng + ?Sized>(&self, angle: f64, rng: &mut R) -> Result<Self> {
        let (p, k) = self.subspace.shape();
        if self.support.len() < p || 2 * k > p || !angle.is_finite() {
            return Err(Error::invalid_request(format!(
                "{k} components in dimension {p} cannot be tilted by {angle} radians: that takes a dense model, with k of p / 2 at most"
            )));
        }
        let drawn = DMatrix::from_fn(p, k, |_, _| normal(rng));
        let along = product(&self.subspace, &cross_product(&self.subspace, &drawn));
        let across = orthonormalize(drawn - along)?;
        Ok(Self {
            subspace: &self.subspace * angle.cos() + across * angle.sin(),
            ..self.clone()
        })
    }

    /// Dimension p.
    pub fn dimension(&self) -> usize {
        self.subspace.nrows()
    }

    /// Variance in every direction, `w`.
    pub fn bulk_variance(&self) -> f64 {
        let inliers = self.model.inlier_share;
        inliers * self.model.bulk_variance + (1.0 - inliers) * self.outlier_variance()
    }

    /// Variance added along V, `d`.
    pub fn signal_variance(&self) -> f64 {
        self.model.inlier_share * self.model.signal_variance
    }

    /// Variance of one entry of an outlier.
    fn outlier_variance(&self) -> f64 {
        1.0 / self.dimension() as f64
    }

    /// `w·I + d·VVᵀ`, `p × p`: of the raw rows, before any clipping.
    pub fn covariance(&self) -> DMatrix<f64> {
        let weights = vec![self.signal_variance(); self.subspace.ncols()];
        let mut covariance = outer_scaled(&self.subspace, &weights);
        for i in 0..self.dimension() {
            covariance[(i, i)] += self.bulk_variance();
        }
        covariance
    }

    /// The share of the raw rows' variance that V̂ (`p × k`, orthonormal) holds, without forming the covariance matrix:
    /// `(w·k + d·‖VᵀV̂‖²)/(w·p + d·k)`.
    pub fn captured_variance(&self, estimated: &DMatrix<f64>) -> Result<f64> {
        let (p, k) = self.subspace.shape();
        if estimated.nrows() != p {
            return Err(Error::invalid_request(format!(
                "the estimate has {} rows; the population has dimension {p}",
                estimated.nrows()
            )));
        }
        let (bulk, signal) = (self.bulk_variance(), self.signal_variance());
        let along = product(&self.subspace, &cross_product(&self.subspace, estimated));
        let image = estimated * bulk + along * signal;
        captured_share(estimated, &image, bulk * p as f64 + signal * k as f64)
    }

    /// Writes one row.
    pub fn fill_row<R: Rng + ?Sized>(&self, rng: &mut R, row: &mut [f64]) {
        assert_eq!(row.len(), self.dimension(), "row of another dimension");
        let inliers = self.model.inlier_share;
        let outlier = inliers < 1.0 && !rng.random_bool(inliers);
        let bulk_sd = if outlier {
            self.outlier_variance().sqrt()
        } else {
            self.model.bulk_variance.sqrt()
        };
        for x in row.iter_mut() {
            *x = bulk_sd * normal(rng);
        }
        if outlier {
            return;
        }
        if self.model.has_random_sign {
            let direction = self
                .subspace
                .column(rng.random_range(0..self.subspace.ncols()));
            let sign = if rng.random() { 1.0 } else { -1.0 };
            for (x, v) in row.iter_mut().zip(&direction) {
                *x += sign * v;
            }
            return;
        }
        let signal_sd = self.model.signal_variance.sqrt();
        for direction in self.subspace.column_iter() {
            let score = signal_sd * normal(rng);
            for &i in &self.support {
                row[i] += score * direction[i];
            }
        }
    }

    /// One row.
    pub fn row<R: Rng + ?Sized>(&self, rng: &mut R) -> Vec<f64> {
        let mut row = vec![0.0; self.dimension()];
        self.fill_row(rng, &mut row);
        row
    }
}

/// A uniformly distributed (Haar) `p × k` orthonormal frame.
pub fn uniform_frame<R: Rng + ?Sized>(rng: &mut R, p: usize, k: usize) -> Result<DMatrix<f64>> {
    if k == 0 || k > p {
        return Err(Error::invalid_request(format!(
            "a frame of {k} directions in dimension {p}; 1 ≤ k ≤ p is needed"
        )));
    }
    // QR with a positive diagonal of R maps a Gaussian matrix to the uniform distribution.
    orthonormalize(DMatrix::from_fn(p, k, |_, _| normal(rng)))
}

fn normal<R: Rng + ?Sized>(rng: &mut R) -> f64 {
    StandardNormal.sample(rng)
}

/// `s` of `p` rows, every subset equally likely, ascending.
fn choose_rows<R: Rng + ?Sized>(rng: &mut R, p: usize, s: usize) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..p).collect();
    for i in 0..s {
        let j = rng.random_range(i..p);
        rows.swap(i, j);
    }
    rows.truncate(s);
    rows.sort_unstable();
    rows
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::ChaCha8Rng};

    use eigenveil_shared::ErrorCode;

    use super::*;
    use crate::{linalg::orthonormality_defect, metrics::captured_variance};

    #[test]
    fn rows_have_the_population_covariance() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for model in [
            Model::spiked(6, 2, 4.0),
            Model::sparse(6, 2, 3, 4.0),
            Model::wang_xu(6, 2, None, 1.0),
            Model::wang_xu(6, 1, Some(2), 3.0),
            Model::haystack(6, 2, 0.6, 0.5),
            Model::random_sign(6, 1, 0.2),
            Model::random_sign(6, 3, 0.1),
        ] {
            let population = model.draw(&mut rng).unwrap();
            assert!(orthonormality_defect(population.subspace()) < 1e-14);
            let n = 40_000;
            let mut sum = DMatrix::zeros(6, 6);
            for _ in 0..n {
                let row = nalgebra::DVector::from_vec(population.row(&mut rng));
                sum.ger(1.0 / f64::from(n), &row, &row, 1.0);
            }
            let covariance = population.covariance();
            // Standard error of an entry is below √2·‖C‖/√n = 0.7 %; six of them.
            let largest = population.bulk_variance() + population.signal_variance();
            // (A haystack's fourth moments are those of its inliers: up to 1/0.6 of a Gaussian's.)
            assert!((sum - &covariance).amax() < 0.045 * largest, "{model:?}");
            let image = &covariance * population.subspace() - population.subspace() * largest;
            assert!(image.amax() < 1e-13 * largest);
            let estimate = uniform_frame(&mut rng, 6, population.subspace().ncols()).unwrap();
            let exact = captured_variance(&estimate, &covariance).unwrap();
            let captured = population.captured_variance(&estimate).unwrap();
            assert!((captured - exact).abs() < 1e-14, "{captured} {exact}");
            let wrong = DMatrix::identity(5, 2);
            assert!(population.captured_variance(&wrong).is_err());
        }
    }

    #[test]
    fn the_published_model_has_rows_in_the_unit_ball() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let population = Model::wang_xu(40, 5, None, 1.0).draw(&mut rng).unwrap();
        // tr = (40 + 5)/(5·40·2) = 0.1125: the paper's "with high probability".
        assert!((population.covariance().trace() - 0.1125).abs() < 1e-12);
        let outside = (0..2000)
            .filter(|_| population.row(&mut rng).iter().map(|x| x * x).sum::<f64>() > 1.0)
            .count();
        assert_eq!(outside, 0);
    }

    #[test]
    fn sparse_frames_live_on_their_rows() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut hits = [0_u32; 10];
        for _ in 0..500 {
            let population = Model::sparse(10, 1, 3, 1.0).draw(&mut rng).unwrap();
            assert_eq!(population.support().len(), 3);
            for (i, hit) in hits.iter_mut().enumerate() {
                let active = population.support().contains(&i);
                assert_eq!(population.subspace()[(i, 0)] != 0.0, active);
                *hit += u32::from(active);
            }
        }
        // 150 expected per row, standard deviation 10.2; the tolerance is five of them.
        assert!(hits.iter().all(|&h| (99..=201).contains(&h)), "{hits:?}");
    }

    /// Without noise a row is a direction or its opposite, each as often.
    #[test]
    fn random_sign_rows_are_directions() {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let model = Model::random_sign(5, 2, 0.0);
        let population = model.draw(&mut rng).unwrap();
        let mut counts = [0_u32; 4];
        for _ in 0..400 {
            let row = nalgebra::DVector::from_vec(population.row(&mut rng));
            let scores = population.subspace().tr_mul(&row);
            let direction = scores.iter().position(|s| s.abs() > 0.5).unwrap();
            assert!(
                (row - population.subspace().column(direction) * scores[direction]).amax() < 1e-15
            );
            assert!((scores[direction].abs() - 1.0).abs() < 1e-14);
            counts[2 * direction + usize::from(scores[direction] > 0.0)] += 1;
        }
        // 100 expected each, standard deviation 8.7; five of them.
        assert!(counts.iter().all(|c| (57..=143).contains(c)), "{counts:?}");
    }

    #[test]
    fn tilted_components_stand_at_the_angle() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let population = Model::spiked(9, 3, 4.0).draw(&mut rng).unwrap();
        let other = population.tilted(0.2, &mut rng).unwrap();
        assert!(orthonormality_defect(other.subspace()) < 1e-14);
        let cosines = population.subspace().tr_mul(other.subspace());
        let exact = DMatrix::from_diagonal_element(3, 3, 0.2_f64.cos());
        assert!((cosines - exact).amax() < 1e-14);
        let wide = Model::spiked(5, 3, 4.0).draw(&mut rng).unwrap();
        assert!(wide.tilted(0.2, &mut rng).is_err());
    }

    #[test]
    fn impossible_models_are_rejected() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        for model in [
            Model::spiked(3, 0, 1.0),
            Model::spiked(3, 4, 1.0),
            Model::spiked(3, 1, 0.0),
            Model::spiked(3, 1, f64::NAN),
            Model::sparse(3, 2, 1, 1.0),
            Model::sparse(3, 2, 4, 1.0),
            Model::wang_xu(3, 1, None, -1.0),
            Model::wang_xu(0, 0, None, 1.0),
        ] {
            assert_eq!(
                model.draw(&mut rng).unwrap_err().code(),
                ErrorCode::InvalidRequest
            );
        }
    }
}
