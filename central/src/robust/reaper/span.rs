//! The subspace relevant to a step of REAPER: the span of its rows and of its iterate's vectors.

use eigenveil_estimation::{
    linalg::{HouseholderQr, tall_product},
    models::uniform_frame,
};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::{MAX_SPACE_DIVISOR, iterate::Iterate, projection::FantopeFactor};
use crate::Generator;

/// A smaller span is too small for a starting block.
const MIN_SPAN: usize = 32;

/// Orthonormal coordinates, d of them, of rows X and vectors V; in the other p − d dimensions a step is zero apart from
/// a multiple of the identity and noise with the same distribution in every basis.
pub(super) struct Span {
    factors: HouseholderQr,
}

/// The part of a step inside the span, in its coordinates.
pub(super) struct Inside {
    /// `d × B`.
    pub(super) rows: DMatrix<f64>,
    /// `d × r`.
    pub(super) iterate: Iterate,
}

impl Span {
    /// The span of these rows and of this iterate; `None` if it is not worthwhile.
    pub(super) fn new(rows: &DMatrix<f64>, iterate: &Iterate) -> Option<(Self, Inside)> {
        let (p, b) = rows.shape();
        let vectors = &iterate.factor.vectors;
        let r = vectors.ncols();
        let d = b + r;
        if d < MIN_SPAN || d * MAX_SPACE_DIVISOR > p {
            return None;
        }
        let mut columns = DMatrix::zeros(p, d);
        columns.columns_mut(0, b).copy_from(rows);
        columns.columns_mut(b, r).copy_from(vectors);
        let factors = HouseholderQr::new(&columns);
        drop(columns);
        let coordinates = factors.r();
        let inside = Inside {
            rows: coordinates.columns(0, b).into_owned(),
            iterate: Iterate {
                identity: iterate.identity,
                factor: FantopeFactor {
                    vectors: coordinates.columns(b, r).into_owned(),
                    weights: iterate.factor.weights.clone(),
                    krylov_dimension: iterate.factor.krylov_dimension,
                },
            },
        };
        Some((Self { factors }, inside))
    }

    /// `p × c` vectors from their coordinates: d inside the span, the others relative to a uniformly distributed frame
    /// outside it.
    pub(super) fn embed(
        &self,
        coordinates: &DMatrix<f64>,
        rng: &mut Generator,
    ) -> Result<DMatrix<f64>> {
        let (d, beyond) = (self.factors.width(), self.outside_dimensions());
        let c = coordinates.ncols();
        let mut vectors = DMatrix::zeros(d + beyond, c);
        let mut inside = vectors.rows_mut(0, d);
        inside.copy_from(&coordinates.rows(0, d));
        let used = coordinates.nrows() - d;
        if used > 0 {
            // Only those directions of the frame that the vectors use need to be drawn.
            let mut within = coordinates.rows(d, used).into_owned();
            if used > c {
                within = HouseholderQr::new(&within).r();
            }
            let frame = uniform_frame(rng, beyond, within.nrows())?;
            let mut outside = vectors.rows_mut(d, beyond);
            outside.copy_from(&tall_product(&frame, &within));
        }
        Ok(self.factors.times(vectors))
    }

    /// p − d.
    pub(super) fn outside_dimensions(&self) -> usize {
        self.factors.dimension() - self.factors.width()
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::linalg::{Symmetric, orthonormality_defect};

    use super::*;
    use crate::{generator, robust::reaper::iterate::Step};

    /// In the span's coordinates the step is unchanged, because it vanishes outside; inner products of vectors are
    /// preserved.
    #[test]
    fn step_is_confined_to_its_span() {
        let (p, n, r) = (120, 25, 9);
        let mut rng = generator(Some(3)).unwrap();
        let mut rows = uniform_frame(&mut rng, p, n).unwrap();
        // With zero and equal rows the span is smaller than its number of coordinates.
        rows.fill_column(4, 0.0);
        let first = rows.column(0).into_owned();
        rows.set_column(7, &first);
        let weights = (0..r).map(|i| 1.0 / (i + 1) as f64).collect();
        let vectors = uniform_frame(&mut rng, p, r).unwrap();
        let iterate = Iterate::from(FantopeFactor::new(vectors, weights));
        let (span, inside) = Span::new(&rows, &iterate).unwrap();
        let d = n + r;
        assert_eq!((inside.rows.nrows(), span.outside_dimensions()), (d, p - d));
        let mut embed = |coordinates: &DMatrix<f64>| span.embed(coordinates, &mut rng).unwrap();
        assert!((embed(&inside.rows) - &rows).amax() < 1e-14);
        let vectors = &inside.iterate.factor.vectors;
        assert!((embed(vectors) - &iterate.factor.vectors).amax() < 1e-14);
        let frame = embed(&DMatrix::identity(d, d));
        assert!(orthonormality_defect(&frame) < 1e-14);

        let step = Step::new(&iterate, &rows, 0.3, None);
        let image = step.times(&DMatrix::identity(p, p));
        let inside_step = Step::new(&inside.iterate, &inside.rows, 0.3, None);
        let inside_image = inside_step.times(&DMatrix::identity(d, d));
        let distance = &frame * inside_image * frame.transpose() - image;
        assert!(distance.amax() < 1e-13, "{}", distance.amax());

        // With coordinates beyond the span, both more and fewer than vectors.
        for (used, count) in [(5, 3), (5, 8), (p - d, 2)] {
            let coordinates = uniform_frame(&mut rng, d + used, count).unwrap();
            let vectors = span.embed(&coordinates, &mut rng).unwrap();
            assert!(orthonormality_defect(&vectors) < 1e-13);
            let back = frame.transpose() * vectors;
            assert!((back - coordinates.rows(0, d)).amax() < 1e-14);
        }
        let few = uniform_frame(&mut rng, p, 3).unwrap();
        assert!(Span::new(&few, &Iterate::start(2, p)).is_none());
        let many = uniform_frame(&mut rng, p, 80).unwrap();
        assert!(Span::new(&many, &Iterate::start(2, p)).is_none());
    }

    /// Directions outside the span are drawn anew each time, uniformly: along a fixed axis outside, one of m, the
    /// square has mean 1/m. 400 draws of squares with relative standard deviation √2: six standard errors are 42 %;
    /// false alarms below 1e-8.
    #[test]
    fn directions_outside_the_span_are_uniform() {
        let (p, n) = (90, 40);
        let mut rng = generator(Some(4)).unwrap();
        let rows = uniform_frame(&mut rng, p, n).unwrap();
        let (span, _) = Span::new(&rows, &Iterate::start(1, p)).unwrap();
        let mut axis = uniform_frame(&mut rng, p, 1).unwrap();
        axis -= &rows * (rows.transpose() * &axis);
        axis /= axis.norm();
        let mut coordinates = DMatrix::zeros(n + 2, 1);
        coordinates[(n + 1, 0)] = 1.0;
        let mut sum = 0.0;
        for _ in 0..400 {
            let vector = span.embed(&coordinates, &mut rng).unwrap();
            sum += vector.dot(&axis).powi(2) * (p - n) as f64;
        }
        assert!((sum / 400.0 - 1.0).abs() < 0.42, "{}", sum / 400.0);
    }
}
