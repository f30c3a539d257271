//! The default λ, and the features that λ does not rule out.

use eigenveil_estimation::fantope::AdmmSettings;

use super::second_moment::SecondMoment;

/// λ as a share of the largest off-diagonal entry, if that leaves few enough features.
const DEFAULT_LAMBDA_SHARE: f64 = 0.1;
/// Maximum number of features that the default λ leaves to the relaxation: 200 take seconds, thousands minutes.
const MAX_CANDIDATES: usize = 200;
/// Gap and iterations of a relaxation with the default λ: it only starts a pursuit, as on a path of λ.
const COARSE_SOLVE: (f64, usize) = (1e-3, 300);
/// Features that the default λ leaves for each one requested.
const CANDIDATES_PER_FEATURE: usize = 4;

pub(super) struct Penalty {
    pub(super) lambda: f64,
    /// Ascending: those with an off-diagonal entry above λ, and of the others the k with the largest diagonal. The
    /// relaxation has an optimum that is zero on the rest.
    pub(super) candidates: Vec<usize>,
    /// Accuracy of the relaxation: the solver's default for a given λ, otherwise a gap of 1e-3.
    pub(super) settings: AdmmSettings,
}

impl Penalty {
    /// The given λ, or the default for s selected features.
    pub(super) fn new(
        moment: &SecondMoment,
        lambda: Option<f64>,
        support: Option<usize>,
        k: usize,
    ) -> Self {
        let (diagonal, largest) = moment.diagonal_and_row_maxima();
        let mut settings = AdmmSettings::default();
        if lambda.is_none() {
            (settings.tolerance, settings.max_iterations) = COARSE_SOLVE;
        }
        let lambda = lambda.unwrap_or_else(|| default_lambda(&largest, support));
        let (mut candidates, mut alone): (Vec<usize>, Vec<usize>) =
            (0..diagonal.len()).partition(|&row| largest[row] > lambda);
        alone.sort_by(|&a, &b| diagonal[b].total_cmp(&diagonal[a]).then(a.cmp(&b)));
        candidates.extend(alone.into_iter().take(k));
        candidates.sort_unstable();
        Self {
            lambda,
            candidates,
            settings,
        }
    }
}

/// The λ that leaves four features for each of the s requested, 200 at most; without s, or if there are fewer, a tenth
/// of the largest off-diagonal entry, or more if that would leave more than 200 features.
fn default_lambda(largest: &[f64], support: Option<usize>) -> f64 {
    let mut sizes = largest.to_vec();
    sizes.sort_unstable_by(|a, b| b.total_cmp(a));
    // This value leaves as many features as there are larger entries.
    let leaves = |rows: usize| sizes.get(rows).copied();
    let share = DEFAULT_LAMBDA_SHARE * sizes.first().copied().unwrap_or(0.0);
    let most = leaves(MAX_CANDIDATES).unwrap_or(0.0);
    let asked = support.and_then(|s| leaves(s.saturating_mul(CANDIDATES_PER_FEATURE)));
    asked.unwrap_or(share).max(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_lambda_leaves_the_stated_features() {
        let sizes: Vec<f64> = (1..=1_000).map(f64::from).collect();
        let left = |support| {
            let lambda = default_lambda(&sizes, support);
            sizes.iter().filter(|&&size| size > lambda).count()
        };
        assert_eq!(
            (left(Some(20)), left(Some(500)), left(None)),
            (80, 200, 200)
        );
        let few: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (default_lambda(&few, None), default_lambda(&few, Some(50))),
            (10.0, 10.0)
        );
        assert_eq!(default_lambda(&few, Some(10)), 60.0);
        assert_eq!(default_lambda(&[0.0], None), 0.0);
    }
}
