//! Independent noise for every entry of a release.

use nalgebra::DMatrix;
use rand_distr::{Distribution, Exp1, StandardNormal};

use crate::Generator;

/// Distribution of one entry's noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EntryNoise {
    /// `N(0, sd²)`.
    Gaussian {
        /// Standard deviation.
        sd: f64,
    },
    /// Laplace of this scale, standard deviation √2 times it.
    Laplace {
        /// Scale λ: density `exp(−|x|/λ)/2λ`.
        scale: f64,
    },
}

impl EntryNoise {
    /// Standard deviation of an entry.
    pub(crate) fn sd(self) -> f64 {
        match self {
            Self::Gaussian { sd } => sd,
            Self::Laplace { scale } => scale * std::f64::consts::SQRT_2,
        }
    }

    /// One draw.
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

    /// Adds it to every entry.
    pub(crate) fn add_to(self, matrix: &mut DMatrix<f64>, rng: &mut Generator) {
        for entry in matrix.iter_mut() {
            *entry += self.draw(rng);
        }
    }
}

/// Adds independent Gaussian noise of this standard deviation to the upper triangle and mirrors it.
pub(crate) fn add_symmetric_noise(sum: &mut DMatrix<f64>, sd: f64, rng: &mut Generator) {
    for j in 0..sum.ncols() {
        for i in 0..=j {
            let z: f64 = StandardNormal.sample(rng);
            sum[(i, j)] += z * sd;
            sum[(j, i)] = sum[(i, j)];
        }
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
}
