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

use super::{identifiable, operations::REPORTS};

/// Dimension of every study.
pub(super) const P: usize = 3;

/// Studies of the same parameters, and the reports made for them.
pub(super) struct ParameterSet {
    /// What a study of the parameters is created with.
    pub(super) design: serde_json::Value,
    /// The frozen parameters.
    pub(super) params: StudyParams,
    /// The reports of its devices.
    pub(super) reports: Vec<Report>,
}

impl ParameterSet {
    /// Devices with reports for this study.
    pub(super) fn new(
        design: serde_json::Value,
        document: &StudyDocument,
        rng: &mut impl Rng,
    ) -> Self {
        let shape = StudyShape::new(&document.params);
        let reports = (0..REPORTS)
            .map(|number| {
                let payload = match shape.payload_form() {
                    PayloadForm::Seed => rng.random::<[u8; 16]>().to_vec(),
                    PayloadForm::Floats | PayloadForm::Integers { .. } => {
                        identifiable::payload(packed_len(P), number)
                    }
                };
                Report {
                    id: ReportId::from_parts(1_700_000_000_000, rng.random()),
                    fingerprint: shape.fingerprint(),
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
        StudyShape::new(&self.params)
    }

    pub(super) fn holds_seeds(&self) -> bool {
        self.shape().payload_form() == PayloadForm::Seed
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
}

/// What is known of one report in one study.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportStatus {
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
    pub(super) parameters: usize,
    /// The reports in it.
    pub(super) reports: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// An estimate that was requested for.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestedEstimate {
    pub(super) number: u64,
    /// Reports counted when it was requested for.
    pub(super) at_least: u64,
    pub(super) cancelled: bool,
}

/// What is known of one study.
pub(super) struct StudyModel {
    pub(super) id: String,
    pub(super) parameters: usize,
    /// As of the last operation.
    pub(super) state: StudyState,
    pub(super) reports: Vec<ReportStatus>,
    /// Sum of the squared eigenvalues that an estimate at this n has.
    pub(super) spectra: HashMap<u64, f64>,
    pub(super) requested: Vec<RequestedEstimate>,
    /// Exports whose reports were added to it.
    pub(super) imported: HashSet<usize>,
}

impl StudyModel {
    pub(super) fn new(id: &str, state: StudyState, parameters: usize) -> Self {
        Self {
            id: id.to_owned(),
            parameters,
            state,
            reports: vec![ReportStatus::default(); REPORTS],
            spectra: HashMap::new(),
            requested: Vec::new(),
            imported: HashSet::new(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.reports
            .iter()
            .filter(|report_status| report_status.counted)
            .count() as u64
    }
}
