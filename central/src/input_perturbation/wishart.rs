//! Wishart noise on the sum: `wishart`, without a guarantee.

use eigenveil_estimation::linalg::product;
use eigenveil_shared::privacy::Budget;
use nalgebra::DMatrix;
use rand_distr::{Distribution, StandardNormal};

use super::fit_from_sum;
use crate::{
    CentralCalibration, DeltaSupport, Generator,
    baseline::{AlgorithmInfo, Run},
};

/// The Wishart mechanism (Jiang, Xie & Zhang 2016): `Σxxᵀ + W`, W distributed as `W_p(p+1, (3/2ε)·I)`; then its top-k
/// eigenvectors. **No guarantee**: the output always exceeds `Σxxᵀ` in the Loewner order, which a neighbour's output
/// need not do; it leaves the support of the neighbour's output with probability `1 − e^{−ε/3}`, for every p (the event
/// is `xᵀW⁻¹x > 1`, and `1/xᵀW⁻¹x` is (3/2ε)·χ²₂). So it is not (ε', δ)-private for any ε' unless δ is that large.
pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "wishart",
    source: "Jiang, Xie & Zhang 2016 (dp-PCA of Maunu, Yu & Lerman; Table 1 of Shang et al.)",
    description: "PCA of the second moment with Wishart noise",
    guarantee: "none: as-published claims pure ε, no ε holds unless δ ≥ 1 − e^(−ε/3)",
    calibrations: &[CentralCalibration::AsPublished],
    delta: DeltaSupport::Zero,
    quadratic_memory: true,
    has_trace: false,
    ..AlgorithmInfo::private(Run::Table(|_, rows, request, rng| {
        fit_from_sum(rows, request, |target, sum| {
            *sum += wishart_noise(rows.dimension(), target.budget, rng);
            let least_delta = -(-target.budget.epsilon() / 3.0).exp_m1();
            let note = format!(
                "the output reveals with probability {least_delta:.3} that a row is present: no epsilon holds below that delta"
            );
            let promised = target.guarantee(None, Some(note));
            Ok((promised, ("delta_lower_bound", least_delta)))
        })
    }))
};

/// `GGᵀ`, G of `p × (p+1)` independent `N(0, 3/2ε)`.
fn wishart_noise(p: usize, budget: Budget, rng: &mut Generator) -> DMatrix<f64> {
    let deviation = (1.5 / budget.epsilon()).sqrt();
    let g = DMatrix::from_fn(p, p + 1, |_, _| {
        let z: f64 = StandardNormal.sample(rng);
        deviation * z
    });
    product(&g, &g.transpose())
}

#[cfg(test)]
mod tests {
    use nalgebra::DVector;

    use super::*;
    use crate::generator;

    /// Noise alone leaves the support `{O ≽ xxᵀ}` with probability `1 − e^{−ε/3}`: 4,000 draws, five standard
    /// deviations (false alarm 6e-7 each).
    #[test]
    fn the_output_leaves_the_neighbours_support() {
        let mut rng = generator(Some(5)).unwrap();
        for (p, epsilon) in [(5, 0.5), (12, 1.0), (5, 4.0)] {
            let x = DVector::from_element(p, 1.0 / (p as f64).sqrt());
            let budget = Budget::pure(epsilon).unwrap();
            let draws = 4000;
            let left = (0..draws)
                .filter(|_| {
                    let noise = wishart_noise(p, budget, &mut rng);
                    let inverse = noise.try_inverse().unwrap();
                    x.dot(&(inverse * &x)) > 1.0
                })
                .count() as f64
                / f64::from(draws);
            let expected = 1.0 - (-epsilon / 3.0_f64).exp();
            let deviation = (expected * (1.0 - expected) / f64::from(draws)).sqrt();
            assert!(
                (left - expected).abs() < 5.0 * deviation,
                "{p} {epsilon}: {left} {expected}"
            );
        }
    }
}
