//! Tighten after relax: from the relaxed solution to exactly s rows.

use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

use super::{PursuitResult, Solution, pursue, refit};
use crate::{
    linalg::{require_square_and_finite, top_k},
    pca::rayleigh_quotients,
};

/// Components on a chosen number of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct TightenResult {
    /// V: `p × k`, orthonormal, rows outside the support exactly zero; the principal components of
    /// the moment on the support, leading first.
    pub vectors: DMatrix<f64>,
    /// The rows kept, ascending.
    pub support: Vec<usize>,
    /// `tr(VᵀS̃V)`, in units of the moment's entries.
    pub captured: f64,
    /// Iterations made; 0 where the rows of the relaxed solution itself captured more.
    pub iterations: usize,
    /// Whether the rows settled before the iteration cap.
    pub settled: bool,
}

/// Sparse orthogonal iteration pursuit from the relaxed solution (Wang, Lu & Liu 2014, Algorithm 1): multiply
/// by the moment, orthonormalise, keep the `rows` rows of largest norm, orthonormalise, and again
/// until the rows stay; then PCA on them. The relaxation gives a start from which this converges, and the
/// pursuit takes the relaxation's shrinkage and its superfluous rows out.
///
/// The paper's matrix is positive semidefinite. A noisy moment is not, and an eigenvalue far below zero would
/// attract the iteration too: it runs on `S̃ + cI` with c just large enough that none is below zero. If the rows
/// it ends on capture less of S̃ than the start's own, those are kept.
///
/// # Errors
/// `invalid-request` unless `k ≤ rows ≤ p`, the shapes agree and `max_iterations ≥ 1`; otherwise as [`top_k`].
///
/// ```
/// use eigenveil_estimation::Cancel;
/// use eigenveil_estimation::fantope::{AdmmSettings, solve, tighten};
/// use nalgebra::dmatrix;
/// let moment = dmatrix![2.0, 0.9, 0.3; 0.9, 2.0, -0.1; 0.3, -0.1, 1.0];
/// let relaxed = solve(&moment, 1, 0.1, &AdmmSettings::default(), Cancel::NEVER)?;
/// let tight = tighten(&moment, &relaxed, 2, 100)?;
/// assert_eq!(tight.support, [0, 1]);
/// assert!((tight.captured - 2.9).abs() < 1e-12);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
pub fn tighten(
    moment: &DMatrix<f64>,
    relaxed: &Solution,
    rows: usize,
    max_iterations: usize,
) -> Result<TightenResult> {
    require_square_and_finite(moment)?;
    let (p, k) = relaxed.vectors.shape();
    if moment.nrows() != p {
        return Err(Error::invalid_request(format!(
            "the relaxed solution has {p} rows and the moment {}; they must be equal",
            moment.nrows()
        )));
    }
    let lowest = -top_k(&-moment, 1)?.values[0];
    let mut shifted = moment.clone();
    for i in 0..p {
        shifted[(i, i)] -= lowest.min(0.0);
    }
    let PursuitResult {
        first,
        support,
        iterations,
        settled,
    } = pursue(&shifted, &relaxed.vectors, rows, max_iterations)?;
    let captured_on = |support: &[usize]| -> Result<(DMatrix<f64>, f64)> {
        let vectors = refit(moment, support, k)?;
        let captured = rayleigh_quotients(moment, &vectors).sum();
        Ok((vectors, captured))
    };
    let (start_vectors, start_captured) = captured_on(&first)?;
    let (vectors, captured) = captured_on(&support)?;
    Ok(if start_captured > captured {
        TightenResult {
            vectors: start_vectors,
            support: first,
            captured: start_captured,
            iterations: 0,
            settled,
        }
    } else {
        TightenResult {
            vectors,
            support,
            captured,
            iterations,
            settled,
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::cancel::Cancel;
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    use super::*;
    use crate::{
        fantope::{AdmmSettings, pursuit::largest_rows, solve},
        linalg::orthonormality_defect,
        metrics::projector_distance,
        models::Model,
    };

    /// A planted sparse covariance with Gaussian noise of this standard deviation on every entry.
    fn planted(sd: f64, seed: u64) -> (DMatrix<f64>, DMatrix<f64>, Vec<usize>) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let model = Model::sparse(90, 3, 12, 3.0);
        let population = model.draw(&mut rng).unwrap();
        let mut moment = population.covariance();
        for i in 0..90 {
            for j in 0..=i {
                let z: f64 = StandardNormal.sample(&mut rng);
                moment[(i, j)] += sd * z;
                moment[(j, i)] = moment[(i, j)];
            }
        }
        let rows = population.support().to_vec();
        (moment, population.subspace().clone(), rows)
    }

    fn relaxed(moment: &DMatrix<f64>, lambda: f64) -> Solution {
        let settings = AdmmSettings::default();
        solve(moment, 3, lambda, &settings, Cancel::NEVER).unwrap()
    }

    /// Without noise the planted subspace comes back to rounding, from a relaxed solution that is shrunk.
    #[test]
    fn without_noise_it_is_exact() {
        let (moment, truth, rows) = planted(0.0, 1);
        let start = relaxed(&moment, 0.05);
        let tight = tighten(&moment, &start, 12, 500).unwrap();
        assert!(tight.settled);
        assert_eq!(tight.support, rows);
        assert!(projector_distance(&tight.vectors, &truth).unwrap() < 1e-10);
        assert!(orthonormality_defect(&tight.vectors) < 1e-12);
        assert!(projector_distance(&start.vectors, &truth).unwrap() > 1e-4);
    }

    /// With noise it is nearer to the truth than the relaxed solution; twelve seeds, each fixed, so the
    /// outcome is too.
    #[test]
    fn tightening_improves_on_the_relaxed_solution() {
        let (mut before, mut after, mut found) = (0.0, 0.0, 0);
        for seed in 0..12 {
            let (moment, truth, rows) = planted(0.1, seed);
            let start = relaxed(&moment, 0.15);
            let tight = tighten(&moment, &start, 12, 500).unwrap();
            before += projector_distance(&start.vectors, &truth).unwrap();
            after += projector_distance(&tight.vectors, &truth).unwrap();
            found += tight.support.iter().filter(|r| rows.contains(r)).count();
            let own = rayleigh_quotients(&moment, &tight.vectors).sum();
            assert!((own - tight.captured).abs() < 1e-10);
            let first = largest_rows(&start.vectors, 12);
            let kept = refit(&moment, &first, 3).unwrap();
            assert!(tight.captured >= rayleigh_quotients(&moment, &kept).sum() - 1e-12);
        }
        assert!(after < 0.9 * before, "{after} against {before}");
        assert!(found >= 130, "{found} of 144 rows");
    }

    /// A moment with an eigenvalue far below zero does not attract the iteration.
    #[test]
    fn negative_eigenvalues_do_not_attract() {
        let (mut moment, truth, rows) = planted(0.0, 2);
        let free = (0..90).find(|row| !rows.contains(row)).unwrap();
        moment[(free, free)] -= 50.0;
        let tight = tighten(&moment, &relaxed(&moment, 0.05), 12, 2_000).unwrap();
        assert!(projector_distance(&tight.vectors, &truth).unwrap() < 1e-8);
    }

    #[test]
    fn out_of_range_is_rejected() {
        let (moment, ..) = planted(0.0, 3);
        let start = relaxed(&moment, 0.05);
        for (rows, cap) in [(2, 10), (91, 10), (12, 0)] {
            assert!(tighten(&moment, &start, rows, cap).is_err());
        }
        assert!(tighten(&DMatrix::identity(4, 4), &start, 3, 10).is_err());
        // All rows: plain PCA. Fewer directions than k on the rows: filled up.
        let all = tighten(&moment, &start, 90, 10).unwrap();
        let plain = top_k(&moment, 3).unwrap();
        assert!(projector_distance(&all.vectors, &plain.vectors).unwrap() < 1e-8);
        let diagonal = DMatrix::from_diagonal(&nalgebra::DVector::from_fn(90, |i, _| -(i as f64)));
        let start = relaxed(&diagonal, 1.0);
        let kept = tighten(&diagonal, &start, 3, 10).unwrap();
        assert_eq!(kept.support, [0, 1, 2]);
    }
}
