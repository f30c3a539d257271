//! Symmetric Gaussian noise on the sum: `analyze-gauss` and `mod-sulq`.

use eigenveil_shared::{
    Result,
    privacy::{Budget, gaussian},
};

use super::fit_from_sum;
use crate::{
    CentralCalibration, Fit, Generator, PrivacyTarget, Request, Rows,
    baseline::{AlgorithmInfo, Run},
    parts::noise::SymmetricNoise,
};

/// Analyze Gauss (Dwork, Talwar, Thakurta & Zhang 2014, Algorithm 1): symmetric Gaussian noise on `Σxxᵀ`, then its
/// top-k eigenvectors.
///
/// * Neighbours: both relations; the sum moves by a matrix D with `‖D‖_F` of at most Δ = 1 (zero-out) or √2
///   (replace), and its triangle, packed, by no more: `Σ_{i≤j} (D_ij)² ≤ ‖D‖_F²`.
/// * `accounted`: σ of the analytic Gaussian mechanism, along every direction of unit Frobenius norm: `N(0, σ²)` on
///   the diagonal, `N(0, σ²/2)` off it. `as-published`: `N(0, σ²)` on every entry, σ = `√(2 ln(1.25/δ))/ε`: the
///   classical formula with Δ = 1, for every ε.
pub(crate) static ANALYZE_GAUSS: AlgorithmInfo = AlgorithmInfo {
    name: "analyze-gauss",
    source: "Dwork, Talwar, Thakurta & Zhang 2014, Algorithm 1",
    description: "PCA of the second moment with symmetric Gaussian noise",
    guarantee: "accounted: (ε, δ), exactly; as-published: the classical formula, too little noise for large ε (the true ε is reported)",
    quadratic_memory: true,
    has_trace: false,
    ..AlgorithmInfo::private(Run::Table(|_, rows, request, rng| {
        fit(rows, request, rng, gaussian::as_published_sigma)
    }))
};

/// Mod-SuLQ (Chaudhuri, Sarwate & Sinha 2012, Algorithm 1): the same release with the noise
/// `β = ((p+1)/nε)·√(2 ln((p²+p)/(2√(2π)δ))) + 1/(n√ε)` on each entry of the mean `(1/n)Σxxᵀ`.
///
/// The factor (p+1) treats each of the p(p+1)/2 entries as if it moved by its own maximum; by its L2 sensitivity the
/// triangle needs p times less noise. So `as-published` spends far less than it claims, and `accounted` equals
/// [`ANALYZE_GAUSS`].
pub(crate) static MOD_SULQ: AlgorithmInfo = AlgorithmInfo {
    name: "mod-sulq",
    source: "Chaudhuri, Sarwate & Sinha 2012, Algorithm 1",
    description: "like analyze-gauss, with noise that grows with p",
    guarantee: "accounted: the noise of analyze-gauss; as-published: holds, with about p times the noise needed",
    quadratic_memory: true,
    has_trace: false,
    ..AlgorithmInfo::private(Run::Table(|_, rows, request, rng| {
        let (n, p) = (rows.n() as f64, rows.dimension() as f64);
        fit(rows, request, rng, |budget| {
            Ok(n * mod_sulq_beta(budget, n, p))
        })
    }))
};

/// β of the noise on the mean, as published.
fn mod_sulq_beta(budget: Budget, n: f64, p: f64) -> f64 {
    let (epsilon, delta) = (budget.epsilon(), budget.delta());
    let ratio = (p * p + p) / (2.0 * (2.0 * std::f64::consts::PI).sqrt() * delta);
    (p + 1.0) / (n * epsilon) * (2.0 * ratio.ln()).max(0.0).sqrt() + 1.0 / (n * epsilon.sqrt())
}

/// The noise on the sum; `published` computes σ by the paper's formula.
fn noise(
    target: PrivacyTarget,
    published: impl Fn(Budget) -> Result<f64>,
) -> Result<SymmetricNoise> {
    let sigma = match target.calibration {
        CentralCalibration::Accounted => {
            gaussian::analytic_sigma(target.budget, target.neighbours.outer_sensitivity())?
        }
        CentralCalibration::AsPublished => published(target.budget)?,
    };
    Ok(SymmetricNoise::calibrated(target.calibration, sigma))
}

fn fit(
    rows: &Rows,
    request: &Request<'_>,
    rng: &mut Generator,
    published: impl Fn(Budget) -> Result<f64>,
) -> Result<Fit> {
    fit_from_sum(rows, request, |target, sum| {
        let noise = noise(target, published)?;
        noise.add_to(sum, rng);
        let sensitivity = target.neighbours.outer_sensitivity();
        // Either noise has σ along the diagonal, where neighbours can be Δ apart, and nowhere less.
        let holds = gaussian::true_epsilon(noise.sd(), sensitivity, target.budget.delta());
        Ok((target.guarantee(holds, None), ("sigma_of_sum", noise.sd())))
    })
}

#[cfg(test)]
mod tests {
    use eigenveil_audit::{Sampling, Side, event_bound, observe};
    use nalgebra::DMatrix;

    use super::*;
    use crate::{Neighbours, testing::bounded};

    fn budget(epsilon: f64, delta: f64) -> Budget {
        Budget::approximate(epsilon, delta).unwrap()
    }

    /// Audits the release between one row and another, which lie along the diagonal (e₁ and e₂, e₁ and the zero row)
    /// or off it ((e₁ ± e₂)/√2, which move one pair of entries). The statistic is the sum's inner product with what
    /// they differ by. The lower bound must stay below the claim (false alarm 5 % each; with this seed it does), come
    /// near it (with σ on every entry only 0.63 is there to find off the diagonal), and exceed it with half the noise.
    #[test]
    fn audit_accepts_the_noise_and_refutes_half_of_it() {
        let claim = budget(1.0, 1e-2);
        let half = std::f64::consts::FRAC_1_SQRT_2;
        for (neighbours, row, other) in [
            (Neighbours::Replace, [1.0, 0.0], [0.0, 1.0]),
            (Neighbours::Replace, [half, half], [half, -half]),
            (Neighbours::ZeroOut, [1.0, 0.0], [0.0, 0.0]),
            (Neighbours::ZeroOut, [half, half], [0.0, 0.0]),
        ] {
            let target = PrivacyTarget {
                budget: claim,
                neighbours,
                calibration: CentralCalibration::Accounted,
            };
            let noise = noise(target, gaussian::as_published_sigma).unwrap();
            let sum = |row: &[f64]| {
                Rows::collect([bounded(row)])
                    .unwrap()
                    .sum_of_outer_products()
            };
            let sums = [sum(&row), sum(&other)];
            let difference = &sums[0] - &sums[1];
            let bound = |share: f64| {
                let released = |side: Side, rng: &mut Generator| {
                    let mut drawn = DMatrix::zeros(2, 2);
                    noise.add_to(&mut drawn, rng);
                    let sum = match side {
                        Side::A => &sums[0],
                        Side::B => &sums[1],
                    };
                    Ok((sum + drawn * share).dot(&difference))
                };
                let samples = observe(&released, 0, &Sampling::quiet(40_000, 3)).unwrap();
                let bound = event_bound(&samples, claim.delta(), 0.95);
                bound.unwrap().epsilon_lower_bound
            };
            let (right, half) = (bound(1.0), bound(0.5));
            println!("{neighbours} {row:?} {other:?}: {right} {half}");
            assert!(right < 1.0 && right > 0.75, "{row:?} {other:?}: {right}");
            assert!(half > 1.2, "{row:?} {other:?}: {half}");
        }
    }

    #[test]
    fn formulas_have_known_values() {
        // The classical formula is not enough for replace neighbours at ε = 4.
        let sigma = gaussian::as_published_sigma(budget(4.0, 1e-6)).unwrap();
        let sensitivity = Neighbours::Replace.outer_sensitivity();
        assert!(gaussian::true_epsilon(sigma, sensitivity, 1e-6).unwrap() > 4.0);
        // By hand: 5·√(2 ln(20/(2√(2π)·1e-6))) + 1.
        let sd = 50.0 * mod_sulq_beta(budget(1.0, 1e-6), 50.0, 4.0);
        assert!((sd - 28.567_3).abs() < 1e-3, "{sd}");
    }
}
