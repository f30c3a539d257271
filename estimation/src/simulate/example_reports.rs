//! Reports of rows that nobody has, for a picture of what a report looks like.

use eigenveil_shared::{
    Result,
    preprocess::{Norm, Row},
    study::StudyParams,
};
use rand::{SeedableRng, rngs::ChaCha20Rng};

/// Reports of each row.
const REPORTS: usize = 2;
/// Most work for a report: expected attempts × coordinates of a seed, or bytes of a payload. A millisecond or two.
const MAX_SEED_WORK: f64 = 50_000.0;
const MAX_PAYLOAD_BYTES: usize = 8_192;
/// Angle between neighbouring features of each row: they have hardly anything in common.
const TURNS: [f64; 2] = [0.9, 2.5];

/// A row that nobody has, and reports of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ExampleReports {
    /// The row as the study prepares it, p numbers.
    pub row: Vec<f64>,
    /// Payloads of reports, each with noise of its own.
    pub payloads: Vec<Vec<u8>>,
}

/// Whether [`example_reports`] of this study are made in milliseconds.
pub fn has_example_reports(params: &StudyParams) -> bool {
    match params.mechanism().expected_attempts() {
        Some(attempts) => attempts * params.report_dimension() as f64 <= MAX_SEED_WORK,
        None => params.payload_len() <= MAX_PAYLOAD_BYTES,
    }
}

/// Two rows, and two reports of each, made as a device makes them; with a seeded generator, which protects nobody, as
/// there is nobody to protect.
///
/// # Errors
/// Those of preparing a row.
pub fn example_reports(params: &StudyParams) -> Result<Vec<ExampleReports>> {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let preprocessor = params.preprocessor();
    let mut examples = Vec::new();
    for turn in TURNS {
        let row = raw_row(params, turn);
        let bounded = match params.preprocessing().weights {
            None => preprocessor.prepare(&row)?,
            Some(_) => preprocessor.prepare_weighted(&row, 1.0)?.0,
        };
        let report = |_| params.mechanism().perturb_with(&bounded, &mut rng);
        examples.push(ExampleReports {
            payloads: (0..REPORTS).map(report).collect(),
            row: preprocessor.prepare_features(&row)?.as_slice().to_vec(),
        });
    }
    Ok(examples)
}

/// A row in the study's own units, within the length that it allows.
fn raw_row(params: &StudyParams, turn: f64) -> Row {
    let p = params.dimension();
    let wave: Vec<f64> = (1..=p).map(|i| (turn * i as f64).cos()).collect();
    let length = wave.iter().map(|x| x * x).sum::<f64>().sqrt();
    let preprocessing = params.preprocessing();
    let reach = match preprocessing.norm {
        Norm::Normalize => 1.0,
        Norm::Clip { radius } | Norm::Require { radius } => 0.9 * radius / length,
    };
    let features = preprocessing.features.as_deref().unwrap_or_default();
    let value = |(i, x): (usize, &f64)| match features.get(i) {
        Some(feature) => feature.center + feature.scale * reach * x,
        None => reach * x,
    };
    Row::new(wave.iter().enumerate().map(value).collect())
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{mechanism::MechanismKind, preprocess::Feature, study::StudyDesign};

    use super::*;

    /// They are the payloads of such a study's reports, and no two are alike; rows are those that it allows.
    #[test]
    fn examples_are_reports_of_the_study() {
        for &kind in MechanismKind::ALL {
            for norm in [Norm::Normalize, Norm::Require { radius: 2.0 }] {
                let features = ["a", "b", "c"].map(|name| Feature::new(name, 70.0, 15.0));
                let params = StudyParams::freeze(StudyDesign {
                    features: Some(features.to_vec()),
                    norm,
                    ..StudyDesign::new(kind, 3, kind.budget(4.0, None).unwrap())
                })
                .unwrap();
                assert!(has_example_reports(&params));
                let examples = example_reports(&params).unwrap();
                let mut payloads: Vec<Vec<u8>> = Vec::new();
                for example in &examples {
                    let length: f64 = example.row.iter().map(|x| x * x).sum();
                    assert!((0.8..1.0 + 1e-9).contains(&length), "{kind}: {length}");
                    payloads.extend(example.payloads.iter().cloned());
                }
                assert!(
                    payloads
                        .iter()
                        .all(|bytes| bytes.len() == params.payload_len())
                );
                payloads.sort();
                payloads.dedup();
                assert_eq!(payloads.len(), 4, "{kind}");
            }
        }
        let large = StudyDesign::new(
            MechanismKind::SymmetricGaussian,
            400,
            MechanismKind::SymmetricGaussian.budget(4.0, None).unwrap(),
        );
        assert!(!has_example_reports(&StudyParams::freeze(large).unwrap()));
    }
}
