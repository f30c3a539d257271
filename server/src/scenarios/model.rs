//! What the devices and the operator know.

use std::collections::{HashMap, HashSet};

use eigenveil_client::Study;
use eigenveil_shared::{
    api::{StudyDocument, StudyState},
    codec::{self, ReportFormat},
    mechanism::PayloadKind,
    packed::packed_len,
    report::{Report, ReportId},
};
use rand::{Rng, RngExt};

use super::{
    device::{Device, Mistake},
    identifiable,
    operations::{Fate, REPORTS},
};

pub(super) const P: usize = 3;

/// Studies with the same parameters, and the devices that report to any of them, as if it were one study.
pub(super) struct ParameterSet {
    pub(super) design: serde_json::Value,
    /// The study as the devices know it.
    pub(super) study: Study,
    pub(super) devices: Vec<Device>,
}

impl ParameterSet {
    pub(super) fn new(
        design: serde_json::Value,
        document: &StudyDocument,
        rng: &mut impl Rng,
        mistake: Option<Mistake>,
    ) -> Self {
        let params = document.params.rows().unwrap();
        let mut mark = |number| match params.mechanism().payload_kind() {
            PayloadKind::Seed => rng.random::<[u8; 16]>().to_vec(),
            PayloadKind::Floats | PayloadKind::Integers { .. } => {
                identifiable::payload(packed_len(P), number)
            }
        };
        let server = "http://localhost".parse().unwrap();
        let study = Study::new(&server, &document.id, params.clone());
        let devices = (0..REPORTS).map(|number| Device::new(&study, mark(number), mistake));
        Self {
            design,
            devices: devices.collect(),
            study,
        }
    }

    pub(super) fn report_format(&self) -> ReportFormat {
        ReportFormat::new(self.study.params().rows().unwrap())
    }

    pub(super) fn holds_seeds(&self) -> bool {
        self.report_format().payload_kind() == Some(PayloadKind::Seed)
    }

    /// The report of a device, which takes part now if it has not.
    fn kept(&mut self, number: usize) -> Report {
        let device = &mut self.devices[number];
        if device.report.is_none() {
            device.take_part(0, Fate::Stored);
        }
        Report {
            id: device.report.unwrap(),
            fingerprint: self.study.fingerprint(),
            payload: device.mark.clone(),
        }
    }

    pub(super) fn single(&mut self, report: usize) -> Vec<u8> {
        codec::encode_report(&self.kept(report))
    }

    /// The body that uploads these reports; the one at position `malformed` has an invalid identifier.
    pub(super) fn batch(&mut self, reports: &[usize], malformed: Option<usize>) -> Vec<u8> {
        let kept: Vec<Report> = reports.iter().map(|&number| self.kept(number)).collect();
        let pairs = kept.iter().enumerate().map(|(position, report)| {
            let id = match malformed {
                Some(bad) if bad == position => ReportId([0; 16]),
                _ => report.id,
            };
            (id, report.payload.as_slice())
        });
        codec::encode_batch(&self.report_format(), pairs).unwrap()
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportStatus {
    /// It reached the server while the study may have been open.
    pub(super) may_count: bool,
    /// Its device took a response for its receipt.
    pub(super) acknowledged: bool,
    /// It was on the disk after the last operation.
    pub(super) counted: bool,
}

#[derive(Clone)]
pub(super) struct Exported {
    pub(super) study: String,
    pub(super) parameters: usize,
    pub(super) reports: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RequestedEstimate {
    pub(super) number: u64,
    /// Reports counted at the time of the request.
    pub(super) at_least: u64,
    pub(super) cancelled: bool,
}

pub(super) struct StudyModel {
    pub(super) id: String,
    pub(super) parameters: usize,
    /// The state after the last operation.
    pub(super) state: StudyState,
    pub(super) reports: Vec<ReportStatus>,
    /// Sum of the squared eigenvalues of an estimate at this n.
    pub(super) spectra: HashMap<u64, f64>,
    pub(super) requested: Vec<RequestedEstimate>,
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
