//! The privacy loss of several pure releases together.

/// Largest number of atoms kept: beyond it losses are rounded up to a grid of half as many points.
const MOST_ATOMS: usize = 4096;

/// Law, under one of two rows, of the summed privacy loss of pure releases.
///
/// Every ε-private mechanism is a post-processing of binary randomized response (Kairouz, Oh & Viswanath
/// 2015), whose loss is +ε with probability `1/(1+e^−ε)` and −ε otherwise, and independent
/// losses add. `δ(ε) = E (1 − e^{ε−L})₊` rises with L, so an atom moved up is rounded against us.
#[derive(Clone, Debug)]
pub(super) struct RandomizedResponses {
    /// (loss, probability), losses strictly rising.
    atoms: Vec<(f64, f64)>,
}

impl RandomizedResponses {
    pub(super) fn new(epsilons: &[f64]) -> Self {
        let mut sorted = epsilons.to_vec();
        // Equal ones first: their sums fall together, and few atoms are needed.
        sorted.sort_by(f64::total_cmp);
        let mut atoms = vec![(0.0, 1.0)];
        for epsilon in sorted {
            atoms = convolve(&atoms, epsilon);
        }
        Self { atoms }
    }

    /// δ(ε) of these releases together with others of which `delta_of_rest(ε)` is a valid δ at every real
    /// ε: `E δ_rest(ε − L)` (composition of dominating pairs, Zhu, Dong & Wang 2022, Theorem 10). Rounded up.
    pub(super) fn delta(&self, epsilon: f64, delta_of_rest: impl Fn(f64) -> f64) -> f64 {
        let sum: f64 = self
            .atoms
            .iter()
            .map(|&(loss, probability)| probability * delta_of_rest(epsilon - loss))
            .sum();
        // Each probability is a product of one rounded factor per release, the sum has up to 4,096 terms.
        (sum * (1.0 + 1e-11)).min(1.0)
    }
}

/// One more randomized response.
fn convolve(atoms: &[(f64, f64)], epsilon: f64) -> Vec<(f64, f64)> {
    let up = 1.0 / (1.0 + (-epsilon).exp());
    let down = 1.0 / (1.0 + epsilon.exp());
    let shifted = |by: f64, weight: f64| {
        atoms
            .iter()
            .map(move |&(loss, probability)| ((loss + by).next_up(), probability * weight))
    };
    let mut all: Vec<_> = shifted(-epsilon, down)
        .chain(shifted(epsilon, up))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let span = all.last().map_or(0.0, |atom| atom.0) - all.first().map_or(0.0, |atom| atom.0);
    let merged = merge(&all, 1e-12 * span);
    if merged.len() <= MOST_ATOMS {
        return merged;
    }
    merge(&merged, span / (MOST_ATOMS / 2) as f64)
}

/// Moves atoms up to the largest one at most `within` above the first of their group.
fn merge(sorted: &[(f64, f64)], within: f64) -> Vec<(f64, f64)> {
    let mut merged: Vec<(f64, f64)> = Vec::with_capacity(sorted.len());
    let mut first_of_group = f64::NEG_INFINITY;
    for &(loss, probability) in sorted {
        match merged.last_mut() {
            Some(last) if loss - first_of_group <= within => {
                *last = (loss, last.1 + probability);
            }
            _ => {
                first_of_group = loss;
                merged.push((loss, probability));
            }
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_rest(epsilon: f64) -> f64 {
        (-epsilon.exp_m1()).max(0.0)
    }

    #[test]
    fn equal_releases_keep_few_atoms_and_sum_to_one() {
        let law = RandomizedResponses::new(&[0.3; 500]);
        assert_eq!(law.atoms.len(), 501);
        let total: f64 = law.atoms.iter().map(|atom| atom.1).sum();
        assert!((total - 1.0).abs() < 1e-12);
        let distinct: Vec<f64> = (0..40).map(|i| 0.1 + 0.012_345 * f64::from(i)).collect();
        let law = RandomizedResponses::new(&distinct);
        assert!(law.atoms.len() <= MOST_ATOMS);
        // Nothing is lost, and nothing exceeds basic composition by more than the grid.
        let total: f64 = law.atoms.iter().map(|atom| atom.1).sum();
        assert!((total - 1.0).abs() < 1e-12);
    }

    #[test]
    fn composition_of_randomized_responses_is_exact() {
        // Kairouz, Oh & Viswanath (2015), Theorem 3.3: at ε_i = (k−2i)ε,
        // δ_i = Σ_{l<i} C(k,l)(e^{(k−l)ε} − e^{(k−2i+l)ε}) / (1+e^ε)^k.
        let (k, epsilon) = (6_i32, 0.7_f64);
        let law = RandomizedResponses::new(&[epsilon; 6]);
        let choose = |l: i32| (0..l).fold(1.0, |c, j| c * f64::from(k - j) / f64::from(j + 1));
        for i in 0..=3 {
            let expected: f64 = (0..i)
                .map(|l| {
                    choose(l)
                        * ((f64::from(k - l) * epsilon).exp()
                            - (f64::from(k - 2 * i + l) * epsilon).exp())
                })
                .sum::<f64>()
                / (1.0 + epsilon.exp()).powi(k);
            let ours = law.delta(f64::from(k - 2 * i) * epsilon, no_rest);
            assert!((ours - expected).abs() < 1e-11, "{i}: {ours} {expected}");
        }
    }
}
