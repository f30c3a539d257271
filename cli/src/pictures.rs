//! Pictures of an estimate.

use eigenveil_estimation::floor::grouped;
use eigenveil_plots::{NoiseFloor, Reference, Scree, ScreeComponent, Verdict};
use eigenveil_shared::{
    estimate::{Estimate, Verdict as Standing},
    mechanism::MechanismKind,
};

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
    let delta = match estimate.privacy.delta {
        0.0 => "pure".to_owned(),
        delta => format!("δ\u{a0}=\u{a0}{delta:e}"),
    };
    scree.subtitle = Some(format!(
        "n\u{a0}=\u{a0}{}, {}, ε\u{a0}=\u{a0}{}, {delta}",
        grouped(estimate.n),
        estimate.privacy.mechanism,
        estimate.privacy.epsilon,
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
    scree.reference = without_noise.map(|eigenvalues| reference(estimate, eigenvalues));
    scree
}

/// The non-private spectrum, moved to where the noisy one shows it: `double-cap` reports have trace zero.
fn reference(estimate: &Estimate, eigenvalues: &[f64]) -> Reference {
    let traceless = estimate.privacy.mechanism == MechanismKind::DoubleCap
        && estimate.study.preprocessing().centring.is_none();
    let mean = eigenvalues.iter().sum::<f64>() / eigenvalues.len().max(1) as f64;
    let (name, shift) = if traceless {
        ("without noise, less its mean (non-private)", mean)
    } else {
        ("without noise (non-private)", 0.0)
    };
    Reference {
        name: name.to_owned(),
        eigenvalues: eigenvalues.iter().map(|value| value - shift).collect(),
    }
}
