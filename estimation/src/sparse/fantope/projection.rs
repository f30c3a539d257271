//! The exact Euclidean projection onto the Fantope.

use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

use crate::linalg::{require_rank, symmetric_eigen};

/// Eigenvalues after projection, and the shift that did it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectedSpectrum {
    /// θ with `Σ min(max(γᵢ − θ, 0), 1) = k`.
    pub theta: f64,
    /// `min(max(γᵢ − θ, 0), 1)`, in the order of the input.
    pub values: Vec<f64>,
}

/// Projects eigenvalues `γ` (any order) onto `{0 ≤ g ≤ 1, Σg = k}`.
///
/// `Σ min(max(γᵢ−θ, 0), 1)` is a decreasing, piecewise linear function of θ with breakpoints `γᵢ` and
/// `γᵢ − 1`. A binary search over the sorted breakpoints finds the piece that crosses k; on it θ solves
/// one linear equation, so nothing is iterated to a tolerance.
pub fn project_eigenvalues(values: &[f64], k: usize) -> Result<ProjectedSpectrum> {
    require_rank(k, values.len())?;
    if values.iter().any(|value| !value.is_finite()) {
        return Err(Error::estimate_failed(
            "an eigenvalue is not a finite number",
        ));
    }
    let mut breakpoints: Vec<f64> = values.iter().flat_map(|&g| [g, g - 1.0]).collect();
    breakpoints.sort_unstable_by(f64::total_cmp);
    let mass = |theta: f64| {
        values
            .iter()
            .map(|g| (g - theta).clamp(0.0, 1.0))
            .sum::<f64>()
    };
    let wanted = k as f64;
    // The last breakpoint with mass ≥ k; the first one has mass p up to rounding.
    let above = breakpoints.partition_point(|&b| mass(b) >= wanted).max(1) - 1;
    let left = breakpoints[above];
    let right = breakpoints.get(above + 1).copied().unwrap_or(left);
    let middle = 0.5 * (left + right);
    // Between breakpoints it is fixed who is clipped at 1, who is free, and who is clipped at 0.
    let (mut ones, mut free, mut free_sum) = (0_usize, 0_usize, 0.0);
    for &g in values {
        if g - middle >= 1.0 {
            ones += 1;
        } else if g > middle {
            free += 1;
            free_sum += g;
        }
    }
    let theta = if free == 0 || left == right {
        left
    } else {
        ((free_sum - (wanted - ones as f64)) / free as f64).clamp(left, right)
    };
    let values = values.iter().map(|g| (g - theta).clamp(0.0, 1.0)).collect();
    Ok(ProjectedSpectrum { theta, values })
}

/// Projects a symmetric matrix, given by its lower triangle, onto `F^k` (full eigendecomposition): all its eigenvectors,
/// and the projection's positive eigenvalues, which belong to the first of them.
pub fn project_onto_fantope(matrix: &DMatrix<f64>, k: usize) -> Result<(DMatrix<f64>, Vec<f64>)> {
    let eigen = symmetric_eigen(matrix)?;
    let mut weights = project_eigenvalues(eigen.values.as_slice(), k)?.values;
    weights.truncate(positive(&weights));
    Ok((eigen.vectors, weights))
}

/// How many of the projected eigenvalues, descending, are not zero.
pub(super) fn positive(projected: &[f64]) -> usize {
    projected.iter().take_while(|&&value| value > 0.0).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::linalg::{leading_columns, outer_scaled};

    #[test]
    fn agrees_with_the_reference_values() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../shared/tests/vectors/reference.json"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let reference: serde_json::Value = serde_json::from_str(&text).unwrap();
        let cases = reference["fantope_projection"].as_array().unwrap();
        assert_eq!(cases.len(), 5);
        for case in cases {
            let numbers = |key: &str| -> Vec<f64> {
                case[key]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|x| x.as_f64().unwrap())
                    .collect()
            };
            let k = case["k"].as_u64().unwrap() as usize;
            let ours = project_eigenvalues(&numbers("eigenvalues"), k).unwrap();
            for (a, b) in ours.values.iter().zip(numbers("projected")) {
                assert!((a - b).abs() < 1e-12, "{case}: {:?}", ours.values);
            }
        }
    }

    #[test]
    fn corner_cases() {
        assert_eq!(project_eigenvalues(&[7.0], 1).unwrap().values, [1.0]);
        assert_eq!(project_eigenvalues(&[0.0; 4], 2).unwrap().values, [0.5; 4]);
        assert_eq!(
            project_eigenvalues(&[1e9, -1e9, 0.0], 3).unwrap().values,
            [1.0; 3]
        );
        assert_eq!(
            project_eigenvalues(&[3.0, 1.0, 0.0], 1).unwrap().values,
            [1.0, 0.0, 0.0]
        );
        assert!(project_eigenvalues(&[1.0], 0).is_err());
        assert!(project_eigenvalues(&[1.0], 2).is_err());
        assert!(project_eigenvalues(&[f64::NAN, 1.0], 1).is_err());
    }

    fn symmetric(p: usize, entries: &[f64]) -> DMatrix<f64> {
        DMatrix::from_fn(p, p, |i, j| entries[i.min(j) * p + i.max(j)])
    }

    proptest! {
        /// Feasible, and no other feasible point is nearer: the optimality condition of a projection
        /// onto a capped simplex is that γ − g is constant on the free ones and ordered on the others.
        #[test]
        fn eigenvalues_land_on_the_nearest_point(
            values in prop::collection::vec(-20.0_f64..20.0, 1..30),
            k in 1_usize..30,
            scale in -3_i32..6,
        ) {
            let k = k.min(values.len());
            let values: Vec<f64> = values.iter().map(|v| v * 10.0_f64.powi(scale)).collect();
            let largest = values.iter().fold(1.0_f64, |m, v| m.max(v.abs()));
            let projected = project_eigenvalues(&values, k).unwrap();
            let sum: f64 = projected.values.iter().sum();
            prop_assert!((sum - k as f64).abs() < 1e-14 * largest * values.len() as f64);
            for (&g, &v) in projected.values.iter().zip(&values) {
                prop_assert!((0.0..=1.0).contains(&g));
                prop_assert!(g == (v - projected.theta).clamp(0.0, 1.0));
            }
        }

        /// A projection onto a convex set: feasible, idempotent, non-expansive.
        #[test]
        fn matrices_project(
            a in prop::collection::vec(-3.0_f64..3.0, 36),
            b in prop::collection::vec(-3.0_f64..3.0, 36),
            p in 1_usize..7,
            k in 1_usize..7,
        ) {
            let k = k.min(p);
            let (a, b) = (symmetric(p, &a), symmetric(p, &b));
            let project = |matrix: &DMatrix<f64>| {
                let (vectors, weights) = project_onto_fantope(matrix, k).unwrap();
                assert!((k..=p).contains(&weights.len()));
                outer_scaled(&leading_columns(&vectors, weights.len()), &weights)
            };
            let (x, y) = (project(&a), project(&b));
            prop_assert!((x.trace() - k as f64).abs() < 1e-12);
            let eigen = symmetric_eigen(&x).unwrap();
            prop_assert!(eigen.values.iter().all(|v| (-1e-12..=1.0 + 1e-12).contains(v)));
            prop_assert!((project(&x) - &x).norm() < 1e-12);
            prop_assert!((x - y).norm() <= (a - b).norm() + 1e-12);
        }
    }
}
