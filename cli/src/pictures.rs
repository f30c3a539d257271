//! Pictures of an estimate.

use eigenveil_plots::{NoiseFloor, Reference, Scree, ScreeComponent, Verdict};
use eigenveil_shared::estimate::{Estimate, Verdict as Standing};

/// 1234567 as 1,234,567.
pub(crate) fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The scree plot of an estimate with its noise floor; `without_noise` adds the non-private spectrum.
pub(crate) fn scree(estimate: &Estimate, without_noise: Option<&[f64]>) -> Scree {
    let mut scree = Scree::new(
        format!("Eigenvalues of the noisy moment, {}", estimate.name),
        estimate.eigenvalues.clone(),
    );
    scree.subtitle = Some(format!(
        "n\u{a0}=\u{a0}{}, {}, ε\u{a0}=\u{a0}{}, δ\u{a0}=\u{a0}{:e}",
        thousands(estimate.n),
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
