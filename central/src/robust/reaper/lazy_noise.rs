//! Gaussian noise that is drawn lazily: only where a Lanczos iteration needs it.

use nalgebra::DMatrix;
use rand::Rng;
use rand_distr::{ChiSquared, Distribution, StandardNormal};

/// A matrix W from the Gaussian orthogonal ensemble (GOE) that is drawn lazily: standard deviation `sd` along every
/// direction of unit Frobenius norm, which is `sd` on the diagonal and `sd/√2` off it.
///
/// Its distribution is the same in every orthonormal basis. So once `WQ` is known for orthonormal Q, the rest of W,
/// `(I − QQᵀ)W(I − QQᵀ)`, is again a GOE matrix, independent of everything drawn so far even if Q was chosen
/// adaptively. A Lanczos iteration on H + W may therefore draw the numbers of W as it needs them: everything it
/// computes has the same distribution as with W drawn at the start, and `p × m` numbers are drawn instead of `p × p`.
///
/// If H is zero outside d of the p dimensions, the other `beyond = p − d` are exchangeable: there `W·q` has a Gaussian
/// part G, `beyond × b`, of which only R of `G = FR` matters, since F is a uniformly distributed frame independent of
/// R. So R is drawn (Bartlett: `χ` on its diagonal, normal above), and F contributes b further coordinates. In
/// coordinates d + 1, d + 2, … a result is relative to any uniformly distributed frame of the dimensions beyond.
pub(super) struct LazyGoe<'a> {
    /// Standard deviation along a direction of unit Frobenius norm.
    pub sd: f64,
    /// Further dimensions, in which the matrix is zero.
    pub beyond: usize,
    /// The random number generator.
    pub rng: &'a mut dyn Rng,
}

impl LazyGoe<'_> {
    fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.rng)
    }

    /// Draws W's product with the next block of a basis: adds it to `within`, between the block's own columns, and to
    /// `image` (before projection onto the complement), with rows for frame coordinates that first appear here. H has
    /// `own_dimension` dimensions.
    pub(super) fn add_product(
        &mut self,
        own_dimension: usize,
        within: &mut DMatrix<f64>,
        image: &mut DMatrix<f64>,
    ) {
        *within += self.draw_block(within.ncols());
        let left = self.beyond - (image.nrows() - own_dimension);
        self.add_image(image, left);
    }

    /// W between the columns of a block of width `b`.
    fn draw_block(&mut self, b: usize) -> DMatrix<f64> {
        let off_diagonal = self.sd * std::f64::consts::FRAC_1_SQRT_2;
        let mut block = DMatrix::zeros(b, b);
        for j in 0..b {
            block[(j, j)] = self.sd * self.normal();
            for i in j + 1..b {
                block[(i, j)] = off_diagonal * self.normal();
                block[(j, i)] = block[(i, j)];
            }
        }
        block
    }

    /// `left` frame coordinates have not appeared yet.
    fn add_image(&mut self, image: &mut DMatrix<f64>, left: usize) {
        let off_diagonal = self.sd * std::f64::consts::FRAC_1_SQRT_2;
        for entry in image.iter_mut() {
            *entry += off_diagonal * self.normal();
        }
        let (height, b) = image.shape();
        let reached = left.min(b);
        image.resize_vertically_mut(height + reached, 0.0);
        for i in 0..reached {
            // At least one degree of freedom; a NaN would show at the next Ritz pairs.
            let squared = ChiSquared::new((left - i) as f64)
                .map_or(f64::NAN, |distribution| distribution.sample(&mut self.rng));
            image[(height + i, i)] = off_diagonal * squared.sqrt();
            for j in i + 1..b {
                image[(height + i, j)] = off_diagonal * self.normal();
            }
        }
    }
}
