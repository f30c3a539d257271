//! Pictures of an estimate.

use eigenveil_estimation::floor::grouped;
use eigenveil_plots::{NoiseFloor, Reference, Scree, ScreeComponent, Verdict};
use eigenveil_shared::estimate::{Estimate, Verdict as Standing};

/// The scree plot of an estimate with its noise floor; `without_noise` adds the non-private spectrum.
pub(crate) fn scree(estimate: &Estimate, without_noise: Option<&[f64]>) -> Scree {
    let what = if estimate.mean.is_some() {
        "covariance"
    } else {
        "moment"
    };
    let mut scree = Scree::new(
        format!("Eigenvalues of the noisy {what}, {}", estimate.name),
        estimate.eigenvalues.clone(),
    );
    scree.subtitle = Some(format!(
        "n\u{a0}=\u{a0}{}, {}, ε\u{a0}=\u{a0}{}, δ\u{a0}=\u{a0}{:e}",
        grouped(estimate.n),
        estimate.privacy.mechanism,
        estimate.privacy.epsilon,
        estimate.privacy.delta
    ));
    let floor = &estimate.floor;
    scree.floor = Some(NoiseFloor {
        lower: Some(floor.centre - 2.0 * floor.radius),
        edge: floor.edge,
        threshold: floor.threshold,
    });
    scree.components = estimate
        .components
        .iter()
        .map(|component| ScreeComponent {
            verdict: match component.verdict {
                Standing::Above => Verdict::Above,
                Standing::At => Verdict::At,
                Standing::Below => Verdict::Below,
            },
            alignment: Some(component.expected_alignment),
        })
        .collect();
    scree.reference = without_noise.map(|eigenvalues| Reference {
        name: "without noise (non-private)".to_owned(),
        eigenvalues: eigenvalues.to_vec(),
    });
    scree
}
