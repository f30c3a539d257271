//! What the devices and the operator know, and how a report's multiplicity is read off the sums.

use std::collections::{HashMap, HashSet};

use eigenveil_shared::{
    api::{StudyDocument, StudyState},
    codec::{self, StudyShape},
    mechanism::PayloadForm,
    packed::packed_len,
    report::{Report, ReportId},
    study::StudyParams,
};
use rand::{Rng, RngExt};

use super::operations::REPORTS;

/// Dimension of every study.
pub(super) const P: usize = 3;
/// Reports per entry of the matrix: base-4 digits from 4⁰ down to 4⁻²⁵, which f32 and a sum in f64 hold exactly.
const DIGITS: usize = 26;

/// Studies of the same parameters, and the reports made for them.
pub(super) struct Family {
    /// What a study of the family is created with.
    pub(super) design: serde_json::Value,
    /// The frozen parameters.
    pub(super) params: StudyParams,
    /// The reports of its devices.
    pub(super) reports: Vec<Report>,
}

impl Family {
    /// Devices with reports for this study.
    pub(super) fn new(
        design: serde_json::Value,
        document: &StudyDocument,
        rng: &mut impl Rng,
    ) -> Self {
        let shape = StudyShape::of(&document.params);
        let reports = (0..REPORTS)
            .map(|number| {
                let payload = match shape.payload_form {
                    PayloadForm::Seed => rng.random::<[u8; 16]>().to_vec(),
                    _ => digit(number),
                };
                Report {
                    id: ReportId::from_parts(1_700_000_000_000, rng.random()),
                    fingerprint: shape.fingerprint,
                    payload,
                }
            })
            .collect();
        Self {
            design,
            params: document.params.clone(),
            reports,
        }
    }

    pub(super) fn shape(&self) -> StudyShape {
        StudyShape::of(&self.params)
    }

    pub(super) fn holds_seeds(&self) -> bool {
        self.shape().payload_form == PayloadForm::Seed
    }

    /// The body that uploads one report.
    pub(super) fn single(&self, report: usize) -> Vec<u8> {
        codec::encode_report(&self.reports[report])
    }

    /// The body that uploads these; the one at `malformed` has no proper identifier.
    pub(super) fn batch(&self, reports: &[usize], malformed: Option<usize>) -> Vec<u8> {
        let pairs = reports.iter().enumerate().map(|(place, &number)| {
            let report = &self.reports[number];
            let id = match malformed {
                Some(bad) if bad == place => ReportId([0; 16]),
                _ => report.id,
            };
            (id, report.payload.as_slice())
        });
        codec::encode_batch(&self.shape(), pairs).unwrap()
    }

    /// How often each report is in these sums of numbers.
    ///
    /// # Errors
    /// When they are not what the family's reports add up to.
    pub(super) fn multiplicities(&self, sums: &[f64]) -> Result<Vec<u32>, String> {
        let mut found = vec![0; self.reports.len()];
        for (entry, &sum) in sums.iter().enumerate() {
            // Exact: a whole number of 4⁻²⁵ below 2⁵³.
            let mut units = sum * 4.0_f64.powi(DIGITS as i32 - 1);
            if !(0.0..9.007_199_254_740_992e15).contains(&units) || units.fract() != 0.0 {
                return Err(format!(
                    "entry {entry} of the sums is {sum}, which no reports add up to"
                ));
            }
            for digit in (0..DIGITS).rev() {
                let times = (units % 4.0) as u32;
                units = (units / 4.0).floor();
                match found.get_mut(entry + digit * packed_len(P)) {
                    Some(slot) => *slot = times,
                    None if times == 0 => {}
                    None => {
                        return Err(format!(
                            "the sums hold report {entry}/{digit}, which nobody has"
                        ));
                    }
                }
            }
        }
        Ok(found)
    }
}

/// A payload with one power of 1/4: entry and power are the report's alone.
fn digit(number: usize) -> Vec<u8> {
    let (entry, power) = (number % packed_len(P), number / packed_len(P));
    let mut numbers = vec![0.0_f32; packed_len(P)];
    numbers[entry] = 0.25_f32.powi(power as i32);
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// What is known of one report in one study.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Letter {
    /// It reached the server while the study may have been open.
    pub(super) may_count: bool,
    /// Its device was told 201 or 200.
    pub(super) acknowledged: bool,
    /// It was on the disk after the last operation.
    pub(super) counted: bool,
}

/// A study as the operator exported it.
#[derive(Clone)]
pub(super) struct Exported {
    pub(super) study: String,
    pub(super) family: usize,
    /// The reports in it.
    pub(super) reports: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// An estimate that was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    /// Reports counted when it was asked for.
    pub(super) at_least: u64,
    pub(super) cancelled: bool,
}

/// What is known of one study.
pub(super) struct StudyModel {
    pub(super) id: String,
    pub(super) family: usize,
    /// As of the last operation.
    pub(super) state: StudyState,
    pub(super) letters: Vec<Letter>,
    /// Sum of the squared eigenvalues that an estimate at this n has.
    pub(super) spectra: HashMap<u64, f64>,
    pub(super) asked: Vec<Asked>,
    /// Exports whose reports were added to it.
    pub(super) imported: HashSet<usize>,
}

impl StudyModel {
    pub(super) fn new(document: &StudyDocument, family: usize) -> Self {
        Self {
            id: document.id.clone(),
            family,
            state: document.state,
            letters: vec![Letter::default(); REPORTS],
            spectra: HashMap::new(),
            asked: Vec::new(),
            imported: HashSet::new(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.letters.iter().filter(|letter| letter.counted).count() as u64
    }
}

#[test]
fn multiplicities_are_read_off_exactly() {
    use eigenveil_shared::mechanism::MechanismKind;
    use rand::SeedableRng;
    let design = eigenveil_shared::study::StudyDesign {
        dimension: P,
        features: None,
        norm: eigenveil_shared::preprocess::Norm::Normalize,
        centring: None,
        mechanism: MechanismKind::SymmetricGaussian,
        calibration: eigenveil_shared::mechanism::Calibration::Analytic,
        budget: MechanismKind::SymmetricGaussian.budget(1.0, None).unwrap(),
    };
    let mut rng = rand::rngs::ChaCha8Rng::seed_from_u64(1);
    let family = Family {
        design: serde_json::Value::Null,
        params: StudyParams::freeze(design).unwrap(),
        reports: (0..REPORTS)
            .map(|number| Report {
                id: ReportId::from_parts(0, rng.random()),
                fingerprint: eigenveil_shared::study::Fingerprint([0; 32]),
                payload: digit(number),
            })
            .collect(),
    };
    let wanted: Vec<u32> = (0..REPORTS).map(|number| number as u32 % 4).collect();
    let mut sums = vec![0.0; packed_len(P)];
    for (report, &times) in family.reports.iter().zip(&wanted) {
        for (sum, bytes) in sums.iter_mut().zip(report.payload.chunks_exact(4)) {
            *sum += f64::from(times) * f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
        }
    }
    assert_eq!(family.multiplicities(&sums).unwrap(), wanted);
    sums[2] += 1e-9;
    assert!(family.multiplicities(&sums).is_err());
}
