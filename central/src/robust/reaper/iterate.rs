//! A point of the Fantope as a multiple of the identity and a factor, and REAPER's step from it, without any `p × p`
//! matrix.

use eigenveil_estimation::linalg::{Symmetric, add_outer_lower, tall_cross_product, tall_product};
use nalgebra::DMatrix;

use super::projection::FantopeFactor;

/// Distance below which 0 is a subgradient, as for GLAD.
pub(super) const ON_THE_SUBSPACE: f64 = 1e-14;

/// Rows nearer to the subspace than this are treated separately, because `1/‖Qx‖` would amplify cancellation errors.
const NEAR_THRESHOLD: f64 = 1e-3;

/// `P = c·I + V·diag(w)·Vᵀ`.
pub(super) struct Iterate {
    /// c.
    pub(super) identity: f64,
    /// V and w.
    pub(super) factor: FantopeFactor,
}

impl From<FantopeFactor> for Iterate {
    fn from(factor: FantopeFactor) -> Self {
        Self {
            identity: 0.0,
            factor,
        }
    }
}

impl Iterate {
    /// `(k/p)I`.
    pub(super) fn start(k: usize, p: usize) -> Self {
        Self {
            identity: k as f64 / p as f64,
            factor: FantopeFactor::new(DMatrix::zeros(p, 0), Vec::new()),
        }
    }

    /// `P·block`.
    pub(super) fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        let mut image = self.factor.times(block);
        // After the first step there is none, and a pass over the block would be noticeable compared with so few
        // vectors.
        if self.identity > 0.0 {
            image += block * self.identity;
        }
        image
    }

    /// Adds P to the lower triangle of `sum`.
    pub(super) fn add_to_lower(&self, sum: &mut DMatrix<f64>) {
        add_outer_lower(sum, &self.factor.vectors, &self.factor.weights);
        for i in 0..sum.nrows() {
            sum[(i, i)] += self.identity;
        }
    }
}

/// The operator `P + η·Σ(Qx·xᵀ + x·(Qx)ᵀ)/2‖Qx‖ (+ noise)`, Q = I − P, whose projection is the next P.
///
/// It omits the multiple of the identity in P, which does not change the projection onto the Fantope.
///
/// With `S = Σxxᵀ/‖Qx‖` the sum is `(QS + SQ)/2 = (1 − c)S − (V diag(w)(SV)ᵀ + SV diag(w)Vᵀ)/2`, so a product with it
/// needs only products with the rows and their transpose.
pub(super) struct Step<'a> {
    iterate: &'a Iterate,
    /// η.
    step: f64,
    /// x, a column each, and `1/‖Qx‖`.
    rows: &'a DMatrix<f64>,
    inverses: Vec<f64>,
    /// `SV`.
    image: DMatrix<f64>,
    /// x near the subspace, and `Qx/‖Qx‖`: not in S.
    near: DMatrix<f64>,
    directions: DMatrix<f64>,
    /// Lower triangle of the noise times η.
    pub(super) noise: Option<DMatrix<f64>>,
}

impl<'a> Step<'a> {
    pub(super) fn new(
        iterate: &'a Iterate,
        rows: &'a DMatrix<f64>,
        step: f64,
        noise: Option<DMatrix<f64>>,
    ) -> Self {
        let residuals = rows - iterate.times(rows);
        let norms: Vec<f64> = residuals.column_iter().map(|r| r.norm()).collect();
        let inverse = |&norm: &f64| {
            if norm > NEAR_THRESHOLD {
                1.0 / norm
            } else {
                0.0
            }
        };
        let inverses: Vec<f64> = norms.iter().map(inverse).collect();
        let near: Vec<usize> = (0..norms.len())
            .filter(|&i| norms[i] <= NEAR_THRESHOLD && norms[i] > ON_THE_SUBSPACE)
            .collect();
        let mut directions = residuals.select_columns(&near);
        for (mut column, &i) in directions.column_iter_mut().zip(&near) {
            column /= norms[i];
        }
        let mut made = Self {
            iterate,
            step,
            rows,
            inverses,
            image: DMatrix::zeros(0, 0),
            near: rows.select_columns(&near),
            directions,
            noise,
        };
        made.image = made.weighted(&iterate.factor.vectors);
        made
    }

    /// `S·block`.
    fn weighted(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        let mut scores = tall_cross_product(self.rows, block);
        for (mut row, &inverse) in scores.row_iter_mut().zip(&self.inverses) {
            row *= inverse;
        }
        tall_product(self.rows, &scores)
    }

    /// The negative sum of the gradients, times `block`.
    fn descent(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        let iterate = self.iterate;
        let mut across = tall_cross_product(&self.image, block);
        for (mut row, &weight) in across.row_iter_mut().zip(&iterate.factor.weights) {
            row *= weight;
        }
        let mut out = self.weighted(block) * (1.0 - iterate.identity);
        out -= tall_product(&iterate.factor.vectors, &across) * 0.5;
        out -= tall_product(&self.image, &iterate.factor.scores(block)) * 0.5;
        if self.near.ncols() > 0 {
            let (x, q) = (&self.near, &self.directions);
            let half = tall_product(q, &tall_cross_product(x, block))
                + tall_product(x, &tall_cross_product(q, block));
            out += half * 0.5;
        }
        out
    }
}

impl Symmetric for Step<'_> {
    fn dimension(&self) -> usize {
        self.rows.nrows()
    }

    fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        let mut out = self.iterate.factor.times(block) + self.descent(block) * self.step;
        if let Some(noise) = &self.noise {
            out += noise.times(block);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::models::uniform_frame;

    use super::*;
    use crate::{generator, robust::reaper::descent::tests::descent_direction};

    /// The product equals that with the dense step, for rows on the subspace, near it and far from it.
    #[test]
    fn products_equal_the_dense_step() {
        let (p, mut rng) = (40, generator(Some(3)).unwrap());
        let frame = uniform_frame(&mut rng, p, 5).unwrap();
        for identity in [0.0, 0.05] {
            let iterate = Iterate {
                identity,
                factor: FantopeFactor::new(
                    frame.columns(0, 4).into_owned(),
                    vec![1.0 - identity, 0.8, 0.5, 1e-3],
                ),
            };
            let mut rows = uniform_frame(&mut rng, p, 30).unwrap();
            rows.set_column(0, &frame.column(0));
            for (j, off) in [(1, 1e-7), (2, 1e-5), (3, 2e-3)] {
                let column = frame.column(0) + frame.column(4) * off;
                rows.set_column(j, &(&column / column.norm()));
            }
            rows.fill_column(4, 0.0);
            let mut dense = DMatrix::zeros(p, p);
            iterate.add_to_lower(&mut dense);
            dense.fill_upper_triangle_with_lower_triangle();
            let block = uniform_frame(&mut rng, p, 7).unwrap();
            assert!((iterate.times(&block) - &dense * &block).amax() < 1e-14);
            let noise = DMatrix::from_fn(p, p, |i, j| {
                if i >= j {
                    ((i + 2 * j) % 5) as f64
                } else {
                    f64::MAX
                }
            });
            let mut mirrored = noise.clone();
            mirrored.fill_upper_triangle_with_lower_triangle();
            let mut next = &dense + descent_direction(&rows, &dense) * 0.3 + mirrored;
            next -= DMatrix::identity(p, p) * identity;
            let expected = next * &block;
            let product = Step::new(&iterate, &rows, 0.3, Some(noise)).times(&block);
            // Qx of a row at 1e-7 has nine digits.
            assert!((product - expected).amax() < 1e-8, "{identity}");
        }
    }
}
