//! REAPER: objective, gradient, and descent over the Fantope.

use eigenveil_estimation::{
    fantope::project_onto_fantope,
    linalg::{Symmetric, add_symmetrised_outer_lower},
};
use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

use super::{
    MAX_SPACE_DIVISOR, MIN_PARTIAL_DIMENSION,
    average::AverageIterate,
    iterate::{Iterate, ON_THE_SUBSPACE, Step},
    lazy_noise::LazyGoe,
    mirror::Mirror,
    projection::{FantopeFactor, project_onto_fantope_partially},
    span::Span,
};
use crate::{
    Generator,
    parts::noise::SymmetricNoise,
    robust::{sampling::Schedule, table::Table},
};

/// Requested relative distance to the projection, with noise (which makes higher accuracy useless) and without.
const NOISY_ACCURACY: f64 = 3e-3;
const PLAIN_ACCURACY: f64 = 1e-8;
/// Relative residuals of the resulting vectors.
const NOISY_LEADING: f64 = 1e-6;
const PLAIN_LEADING: f64 = 1e-9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::robust) enum Geometry {
    /// `P ← P_F(P − ηG)`, the Euclidean projection onto the Fantope.
    Euclidean,
    /// `P ← exp(log P − ηG)`, then the projection in von Neumann entropy.
    Entropy,
}

/// `(1/N)Σ‖(I − P)x‖`.
pub(in crate::robust) fn objective(table: &Table, p: &dyn Symmetric) -> f64 {
    let residuals = table.columns() - p.times(table.columns());
    residuals.column_iter().map(|r| r.norm()).sum::<f64>() / table.n() as f64
}

/// Adds `factor·Σ (Qx·xᵀ + x·(Qx)ᵀ)/2‖Qx‖` over the columns of `rows`, Q = I − P, to the lower triangle of `sum`: minus
/// equation 4.1. Every summand has squared Frobenius norm `(1 + ⟨x, Qx⟩²/‖Qx‖²)/2 ≤ 1`. `image` is `P·rows`.
pub(super) fn add_descent_direction(
    sum: &mut DMatrix<f64>,
    rows: &DMatrix<f64>,
    image: &DMatrix<f64>,
    factor: f64,
) {
    let mut residuals = rows - image;
    for mut residual in residuals.column_iter_mut() {
        let norm = residual.norm();
        if norm > ON_THE_SUBSPACE {
            residual /= 2.0 * norm;
        } else {
            residual.fill(0.0);
        }
    }
    add_symmetrised_outer_lower(sum, &residuals, rows, factor);
}

/// Subgradient descent from `(r/p)I`, in one of two geometries; its result is the average of the iterates.
pub(in crate::robust) struct Descent {
    pub(in crate::robust) geometry: Geometry,
    pub(in crate::robust) steps: Schedule,
    /// c of the step sizes `c/√t`.
    pub(in crate::robust) step: f64,
    /// On the *sum* of gradients.
    pub(in crate::robust) noise: Option<SymmetricNoise>,
}

impl Descent {
    /// Accuracy of the leading vectors of the average of iterates.
    pub(in crate::robust) fn leading_accuracy(&self) -> f64 {
        match self.noise {
            None => PLAIN_LEADING,
            Some(_) => NOISY_LEADING,
        }
    }

    /// Adds the noise of a step of size `eta` to the lower triangle of `sum`.
    fn add_noise(&self, sum: &mut DMatrix<f64>, eta: f64, rng: &mut Generator) {
        if let Some(noise) = self.noise {
            noise.add_to_lower(sum, eta, rng);
        }
    }

    /// Returns the average of the iterates; `watch` is called with the iteration and the average so far.
    pub(in crate::robust) fn run(
        &self,
        table: &Table,
        rank: usize,
        rng: &mut Generator,
        mut watch: impl FnMut(usize, &AverageIterate) -> Result<()>,
    ) -> Result<AverageIterate> {
        let d = table.dimension();
        let mut p = Iterate::start(rank, d);
        let mut mirror = (self.geometry == Geometry::Entropy).then(|| Mirror::start(rank, d));
        let mut average = AverageIterate::new(d);
        for t in 1..=self.steps.count {
            let rows = self.steps.rows(table, rng);
            let eta = self.step / ((t as f64).sqrt() * self.steps.denominator(table.n()));
            if let Some(mirror) = &mut mirror {
                let image = mirror.times(&rows);
                add_descent_direction(&mut mirror.logarithm, &rows, &image, eta);
                self.add_noise(&mut mirror.logarithm, eta, rng);
                mirror.project(rank)?;
                average.add_matrix(&mirror.point);
            } else {
                let krylov_dimension = p.factor.krylov_dimension;
                let next = match self.noise {
                    _ if d < MIN_PARTIAL_DIMENSION => self.full_step(&p, &rows, rank, eta, rng)?,
                    // The noise shrinks with the steps and the Krylov space grows: once it is large it stays large.
                    _ if krylov_dimension > d / MAX_SPACE_DIVISOR => {
                        let mut next = self.full_step(&p, &rows, rank, eta, rng)?;
                        next.krylov_dimension = krylov_dimension;
                        next
                    }
                    Some(SymmetricNoise::Isotropic(sd)) => {
                        step_by_span(&p, &rows, rank, (eta, sd), rng)?
                    }
                    _ => self.partial_step(&p, &rows, rank, eta, rng)?,
                };
                average.add(&next);
                p = next.into();
            }
            watch(t, &average)?;
        }
        Ok(average)
    }

    fn full_step(
        &self,
        p: &Iterate,
        rows: &DMatrix<f64>,
        rank: usize,
        eta: f64,
        rng: &mut Generator,
    ) -> Result<FantopeFactor> {
        let d = rows.nrows();
        let mut next = DMatrix::zeros(d, d);
        p.add_to_lower(&mut next);
        add_descent_direction(&mut next, rows, &p.times(rows), eta);
        self.add_noise(&mut next, eta, rng);
        projected(&next, rank)
    }

    /// A step without its `p × p` matrix if there is no noise, and without its full decomposition if the spectrum
    /// allows.
    fn partial_step(
        &self,
        p: &Iterate,
        rows: &DMatrix<f64>,
        rank: usize,
        eta: f64,
        rng: &mut Generator,
    ) -> Result<FantopeFactor> {
        let d = rows.nrows();
        let (noise, accuracy) = match self.noise {
            None => (None, PLAIN_ACCURACY),
            Some(noise) => {
                let mut drawn = DMatrix::zeros(d, d);
                noise.add_to_lower(&mut drawn, eta, rng);
                (Some(drawn), NOISY_ACCURACY)
            }
        };
        let step = Step::new(p, rows, eta, noise);
        let near = Some(&p.factor);
        match project_onto_fantope_partially(&step, None, rank, near, accuracy)? {
            Some(factor) => Ok(factor),
            None => {
                let mut next = step.noise.unwrap_or_else(|| DMatrix::zeros(d, d));
                p.add_to_lower(&mut next);
                add_descent_direction(&mut next, rows, &p.times(rows), eta);
                projected(&next, rank)
            }
        }
    }
}

/// A step with isotropic noise, of standard deviation σ along every direction on the sum of gradients: without any
/// `p × p` matrix, and in the coordinates of its span if that is small. `(η, σ)`.
fn step_by_span(
    p: &Iterate,
    rows: &DMatrix<f64>,
    rank: usize,
    (eta, sd): (f64, f64),
    rng: &mut Generator,
) -> Result<FantopeFactor> {
    let spanned = Span::new(rows, p);
    let (iterate, rows, beyond) = match &spanned {
        Some((span, inside)) => (&inside.iterate, &inside.rows, span.outside_dimensions()),
        None => (p, rows, 0),
    };
    let step = Step::new(iterate, rows, eta, None);
    let mut unseen = LazyGoe {
        sd: eta * sd,
        beyond,
        rng,
    };
    let near = Some(&iterate.factor);
    let projected =
        project_onto_fantope_partially(&step, Some(&mut unseen), rank, near, NOISY_ACCURACY)?;
    // Part of the noise has been drawn already: it must neither be drawn again nor be dropped.
    let mut factor = projected.ok_or_else(|| {
        Error::estimate_failed(
            "the noise of a step is smaller than the rounding error of its gradients; use a smaller budget",
        )
    })?;
    if let Some((span, _)) = &spanned {
        factor.vectors = span.embed(&factor.vectors, rng)?;
    }
    Ok(factor)
}

/// The projection of a matrix, given by its lower triangle, onto the Fantope.
fn projected(lower: &DMatrix<f64>, rank: usize) -> Result<FantopeFactor> {
    let (vectors, weights) = project_onto_fantope(lower, rank)?;
    let vectors = vectors.columns(0, weights.len()).into_owned();
    Ok(FantopeFactor::new(vectors, weights))
}

#[cfg(test)]
pub(super) mod tests {
    use eigenveil_estimation::{linalg::outer_scaled, models::uniform_frame};
    use proptest::prelude::*;

    use super::*;
    use crate::{generator, testing::gaussian_rows};

    /// The whole matrix.
    pub(in crate::robust) fn descent_direction(
        rows: &DMatrix<f64>,
        p: &DMatrix<f64>,
    ) -> DMatrix<f64> {
        let mut sum = DMatrix::zeros(rows.nrows(), rows.nrows());
        add_descent_direction(&mut sum, rows, &(p * rows), 1.0);
        sum.fill_upper_triangle_with_lower_triangle();
        sum
    }

    /// Rows whose coordinates' deviations fall like 1, 1/2, 1/3, …, spherised.
    fn decaying(d: usize, n: usize, seed: u64) -> Table {
        let deviations: Vec<f64> = (1..=d).map(|i| 1.0 / i as f64).collect();
        Table::spherised(&gaussian_rows(n, &deviations, seed))
    }

    /// From the same point, with the same noise if that is drawn as a matrix, the partial step equals the step with a
    /// full decomposition.
    #[test]
    fn partial_step_equals_the_full_step() {
        let d = MIN_PARTIAL_DIMENSION + 10;
        let table = decaying(d, 600, 8);
        let rows = table.columns();
        for (noise, allowed) in [
            (None, 1e-6),
            (Some(SymmetricNoise::Entrywise(20.0)), NOISY_ACCURACY),
        ] {
            let descent = Descent {
                geometry: Geometry::Euclidean,
                steps: Schedule {
                    count: 1,
                    rate: None,
                },
                step: 1.0,
                noise,
            };
            let mut p = Iterate::start(2, d);
            for seed in 0..3 {
                let seeded = |seed| generator(Some(seed)).unwrap();
                let full = descent.full_step(&p, rows, 2, 2e-3, &mut seeded(seed));
                let part = descent.partial_step(&p, rows, 2, 2e-3, &mut seeded(seed));
                let (full, part) = (full.unwrap(), part.unwrap());
                let squares = full.weights.iter().map(|w| w * w);
                let distance = part.distance(&full) / squares.sum::<f64>().sqrt();
                assert!(distance < allowed, "{noise:?}: {distance}");
                p = part.into();
            }
        }
    }

    /// With negligible noise a run in the coordinates of the span of its rows, all or a batch, agrees with a run without
    /// noise.
    #[test]
    fn result_does_not_depend_on_coordinates() {
        let (d, n) = (MIN_PARTIAL_DIMENSION + 10, 120);
        let table = decaying(d, n, 9);
        for (count, rate) in [(3, None), (1, Some(0.5))] {
            let run = |noise| {
                let descent = Descent {
                    geometry: Geometry::Euclidean,
                    steps: Schedule { count, rate },
                    step: 1.0,
                    noise,
                };
                let mut rng = generator(Some(10)).unwrap();
                descent.run(&table, 2, &mut rng, |_, _| Ok(())).unwrap()
            };
            let plain = run(None).matrix();
            let average = run(Some(SymmetricNoise::Isotropic(1e-7)));
            let distance = (average.matrix() - &plain).norm() / plain.norm();
            assert!(
                distance < count as f64 * NOISY_ACCURACY,
                "{rate:?}: {distance}"
            );
            assert!((objective(&table, &average) - objective(&table, &plain)).abs() < 1e-3);
        }
    }

    proptest! {
        /// One row moves the sum by at most 1 in Frobenius norm; the zero row does not move it.
        #[test]
        fn a_row_moves_the_sum_by_at_most_one(seed in 0_u64..1000, d in 2_usize..10) {
            let mut rng = generator(Some(seed)).unwrap();
            let rotation = uniform_frame(&mut rng, d, d).unwrap();
            let values: Vec<f64> = (0..d).map(|i| if i == 0 { 1.0 } else { 0.7 / d as f64 }).collect();
            let p = outer_scaled(&rotation, &values);
            let mut x = uniform_frame(&mut rng, d, 1).unwrap();
            for _ in 0..2 {
                prop_assert!(descent_direction(&x, &p).norm() <= 1.0 + 1e-12);
                // Also along the direction that P retains.
                x = rotation.columns(0, 1).into_owned();
            }
            prop_assert!(descent_direction(&DMatrix::zeros(d, 1), &p).amax() == 0.0);
        }
    }
}
