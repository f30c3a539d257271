//! Independent noise for every entry of a release, and noise on a symmetric matrix.

use nalgebra::DMatrix;
use rand_distr::{Distribution, Exp1, StandardNormal};

use crate::{CentralCalibration, Generator};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EntryNoise {
    /// `N(0, sd²)`.
    Gaussian { sd: f64 },
    /// Laplace of this scale, standard deviation √2 times it.
    Laplace {
        /// Scale λ: density `exp(−|x|/λ)/2λ`.
        scale: f64,
    },
}

impl EntryNoise {
    pub(crate) fn sd(self) -> f64 {
        match self {
            Self::Gaussian { sd } => sd,
            Self::Laplace { scale } => scale * std::f64::consts::SQRT_2,
        }
    }

    pub(crate) fn draw(self, rng: &mut Generator) -> f64 {
        match self {
            Self::Gaussian { sd } => {
                let z: f64 = StandardNormal.sample(rng);
                sd * z
            }
            Self::Laplace { scale } => {
                // The difference of two exponentials is Laplace.
                let (up, down): (f64, f64) = (Exp1.sample(rng), Exp1.sample(rng));
                scale * (up - down)
            }
        }
    }

    pub(crate) fn add_to(self, matrix: &mut DMatrix<f64>, rng: &mut Generator) {
        for entry in matrix.iter_mut() {
            *entry += self.draw(rng);
        }
    }
}

/// Independent Gaussian noise on the entries of a triangle of a symmetric matrix, and their mirror images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SymmetricNoise {
    /// This standard deviation along every direction of unit Frobenius norm, hence divided by √2 off the diagonal. The
    /// sensitivity Δ is in the Frobenius norm, so this is the Gaussian mechanism with ratio Δ/sd, and no larger noise
    /// is needed.
    Isotropic(f64),
    /// This standard deviation on every entry, as papers print it.
    Entrywise(f64),
}

impl SymmetricNoise {
    /// The noise with standard deviation `sd`, as this calibration defines it.
    pub(crate) fn calibrated(calibration: CentralCalibration, sd: f64) -> Self {
        match calibration {
            CentralCalibration::Accounted => Self::Isotropic(sd),
            CentralCalibration::AsPublished => Self::Entrywise(sd),
        }
    }

    /// Standard deviation on the diagonal.
    pub(crate) fn sd(self) -> f64 {
        match self {
            Self::Isotropic(sd) | Self::Entrywise(sd) => sd,
        }
    }

    /// Adds the noise times `factor` to the lower triangle.
    pub(crate) fn add_to_lower(self, matrix: &mut DMatrix<f64>, factor: f64, rng: &mut Generator) {
        let diagonal = factor * self.sd();
        let off_diagonal = match self {
            Self::Isotropic(_) => diagonal * std::f64::consts::FRAC_1_SQRT_2,
            Self::Entrywise(_) => diagonal,
        };
        for (j, mut column) in matrix.column_iter_mut().enumerate() {
            for (i, entry) in column.iter_mut().enumerate().skip(j) {
                let z: f64 = StandardNormal.sample(rng);
                *entry += z * if i == j { diagonal } else { off_diagonal };
            }
        }
    }

    pub(crate) fn add_to(self, matrix: &mut DMatrix<f64>, rng: &mut Generator) {
        self.add_to_lower(matrix, 1.0, rng);
        matrix.fill_upper_triangle_with_lower_triangle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator;

    /// 200,000 draws: the standard error of the mean absolute value is below 0.23 % of it for both distributions, so 6
    /// of them are 1.4 %; false alarm below 1e-8. The mean absolute value is √(2/π)·sd, or λ; the variance
    /// distinguishes the two (standard error 0.5 % for Laplace).
    #[test]
    fn both_distributions_have_their_scale() {
        let mut rng = generator(Some(5)).unwrap();
        for noise in [
            EntryNoise::Gaussian { sd: 3.0 },
            EntryNoise::Laplace { scale: 3.0 },
        ] {
            let mut drawn = DMatrix::zeros(500, 400);
            noise.add_to(&mut drawn, &mut rng);
            let mean_size = drawn.iter().map(|x| x.abs()).sum::<f64>() / 200_000.0;
            let expected = match noise {
                EntryNoise::Gaussian { sd } => sd * (2.0 / std::f64::consts::PI).sqrt(),
                EntryNoise::Laplace { scale } => scale,
            };
            assert!((mean_size / expected - 1.0).abs() < 0.014, "{noise:?}");
            let sd = (drawn.norm_squared() / 200_000.0).sqrt();
            assert!((sd / noise.sd() - 1.0).abs() < 0.03, "{noise:?}");
        }
    }

    /// 40,000 draws on the diagonal and 780,000 off it: six standard errors of the variances are 4.3 % and 1 % (false
    /// alarm 1e-8).
    #[test]
    fn symmetric_noise_has_its_variances_on_and_off_the_diagonal() {
        for (calibration, off_diagonal) in [
            (CentralCalibration::Accounted, 4.5),
            (CentralCalibration::AsPublished, 9.0),
        ] {
            let mut rng = generator(Some(1)).unwrap();
            let (mut on, mut off) = (0.0, 0.0);
            for _ in 0..1_000 {
                let mut drawn = DMatrix::zeros(40, 40);
                SymmetricNoise::calibrated(calibration, 3.0).add_to(&mut drawn, &mut rng);
                assert_eq!(drawn, drawn.transpose());
                let diagonal = drawn.diagonal().norm_squared();
                on += diagonal / 40_000.0;
                off += (drawn.norm_squared() - diagonal) / 1_560_000.0;
            }
            assert!((on / 9.0 - 1.0_f64).abs() < 0.043, "{calibration}: {on}");
            assert!(
                (off / off_diagonal - 1.0_f64).abs() < 0.01,
                "{calibration}: {off}"
            );
        }
    }
}
