//! Layouts of studies of sites: parameters of version 3, and reports of wire version 2.

use serde::{Deserialize, Serialize};

use super::{
    WireParams, check_canonical, check_id, decode_envelope, encode_envelope, malformed_params,
    params_version, read_params, write,
};
use crate::{
    error::{Result, error},
    mechanism::table::{TableMechanism, TablePayload},
    privacy::Budget,
    report::{Report, ReportId},
    site_study::{PARAMS_VERSION_SITES, SiteStudyParams, SiteTerms, SiteWeights},
    study::Fingerprint,
};

/// Version of the layout of a site's report: that of a row's report, with another payload.
pub const SITE_WIRE_VERSION: u16 = 2;

/// The fields after [`WireParams`] in version 3.
#[derive(Serialize, Deserialize)]
struct WireTerms {
    min_rows: u64,
    max_rows: u64,
    rows_per_person: Option<u16>,
    site_weights: u8,
}

/// Encodes a site's report.
pub fn encode_site_report(report: &Report) -> Vec<u8> {
    encode_envelope(SITE_WIRE_VERSION, report)
}

/// Decodes and validates a site's report for the study it claims.
///
/// # Errors
/// `malformed-report`, `unsupported-version` for the report of a single row too, `wrong-fingerprint`,
/// `wrong-payload-length`, `payload-out-of-range`. Nothing is allocated, whatever a length prefix says.
pub fn decode_site_report<'a>(
    bytes: &'a [u8],
    study: &SiteReportFormat,
) -> Result<ValidatedSiteReport<'a>> {
    let len = study.payload_len();
    let (id, payload) = decode_envelope(bytes, SITE_WIRE_VERSION, study.fingerprint, len)?;
    check_id(id)?;
    let payload = study.payload(payload)?;
    Ok(ValidatedSiteReport { id, payload })
}

/// The format of the reports of a study of sites: fingerprint and payload, computed once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteReportFormat {
    fingerprint: Fingerprint,
    mechanism: TableMechanism,
}

impl SiteReportFormat {
    /// The format of these parameters' reports.
    pub fn new(params: &SiteStudyParams) -> Self {
        Self {
            fingerprint: params.fingerprint(),
            mechanism: *params.mechanism(),
        }
    }

    /// Fingerprint of the study's parameters.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Bytes of one payload.
    pub fn payload_len(&self) -> usize {
        self.mechanism.payload_len()
    }

    /// Validates a payload. Nothing else turns bytes into a table that can be decoded.
    ///
    /// # Errors
    /// `wrong-payload-length`, `payload-out-of-range`.
    pub fn payload<B: AsRef<[u8]>>(&self, bytes: B) -> Result<TablePayload<B>> {
        self.mechanism.read(bytes)
    }
}

/// A site's report that fits its study: right fingerprint, well-formed identifier, checked payload. Made by
/// [`decode_site_report`] only; borrows the bytes it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidatedSiteReport<'a> {
    id: ReportId,
    payload: TablePayload<&'a [u8]>,
}

impl<'a> ValidatedSiteReport<'a> {
    /// Its identifier.
    pub fn id(&self) -> ReportId {
        self.id
    }

    /// Its payload.
    pub fn payload(&self) -> TablePayload<&'a [u8]> {
        self.payload
    }
}

/// The canonical bytes of a study of sites.
pub(crate) fn encode_site_params(params: &SiteStudyParams) -> Vec<u8> {
    let (mechanism, terms) = (params.mechanism(), params.terms());
    let wire = WireParams {
        mechanism: mechanism.kind().number(),
        constants: mechanism.constants(),
        ..WireParams::without_mechanism(
            PARAMS_VERSION_SITES,
            params.preprocessing(),
            params.budget(),
        )
    };
    let terms = WireTerms {
        min_rows: terms.min_rows,
        max_rows: terms.max_rows,
        rows_per_person: terms.rows_per_person,
        site_weights: match terms.site_weights {
            SiteWeights::Rows => 0,
            SiteWeights::Precision => 1,
        },
    };
    let mut bytes = Vec::new();
    write(&mut bytes, &wire);
    write(&mut bytes, &terms);
    bytes
}

/// Reads canonical bytes of a study of sites; the result has been checked as a site must.
pub(crate) fn decode_site_params(bytes: &[u8]) -> Result<SiteStudyParams> {
    let version = params_version(bytes)?;
    if version != PARAMS_VERSION_SITES {
        return Err(error!(
            UnsupportedVersion,
            "the study parameters have layout version {version}, which is not that of a study of sites ({PARAMS_VERSION_SITES}); a table's rows are reported one by one to a study of single rows, and later versions need a newer program"
        ));
    }
    let (mut wire, terms): (WireParams, WireTerms) = read_params(bytes)?;
    let (preprocessing, kind, calibration) = wire.read()?;
    let terms = SiteTerms {
        min_rows: terms.min_rows,
        max_rows: terms.max_rows,
        rows_per_person: terms.rows_per_person,
        site_weights: match terms.site_weights {
            0 => SiteWeights::Rows,
            1 => SiteWeights::Precision,
            tag => return Err(malformed_params(format!("unknown site weights {tag}"))),
        },
    };
    let dimension = preprocessing.report_dimension();
    // Constants are those of a triangle one larger, which has room for the count.
    let mechanism = TableMechanism::new(
        wire.read_mechanism(kind, calibration, dimension + 1)?,
        dimension,
        terms.max_rows,
        terms.rows_per_person.unwrap_or(1),
    )?;
    let budget = Budget::new(wire.epsilon, wire.delta)?;
    let params = SiteStudyParams::new_checked(preprocessing, mechanism, budget, terms)?;
    check_canonical(bytes, &encode_site_params(&params))?;
    Ok(params)
}
