//! Reports that were decoded and validated, on their way to the engine.

use bytes::Bytes;
use eigenveil_estimation::check_site_report;
use eigenveil_shared::{
    Error, Result,
    api::SiteToken,
    codec::{self, ReportFormat, SiteReportFormat},
    enrolment::{Admission, AdmissionKey},
    error,
    mechanism::{Payload, table::TablePayload},
    report::{ReportId, ValidatedReport},
    study::Fingerprint,
};
use smallvec::SmallVec;

use crate::contract::{
    decide::{Claim, SubmitOutcome},
    study::{Study, StudyFormat},
};

/// Payloads up to this size are copied out of the body, so that its buffer, at least 8 KiB, is free for the
/// connection's next request at once instead of after the commit.
const MAX_COPIED_PAYLOAD: usize = 256;

/// A validated report waiting for its commit.
#[derive(Clone)]
pub struct NewReport {
    pub(crate) id: ReportId,
    /// Fingerprint of the study it was validated for.
    fingerprint: Fingerprint,
    /// A long payload stays in the body it came in.
    pub(crate) content: Content,
    /// Hash of the participant token it came with.
    pub(crate) token: Option<Box<AdmissionKey>>,
}

/// The part of a report that its study gets.
#[derive(Clone)]
pub(crate) enum Content {
    Row(Payload<Bytes>),
    Table(Box<SiteTable>),
}

/// A site's table, kept apart from others.
#[derive(Clone)]
pub(crate) struct SiteTable {
    pub(crate) payload: TablePayload<Bytes>,
    /// The site of its token, if it passed the test of a report; `None` if the study has no such token left.
    pub(crate) site: Option<Result<String>>,
}

impl Content {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Row(payload) => payload.as_bytes(),
            Self::Table(table) => table.payload.as_bytes(),
        }
    }
}

/// The reports of a request. Usually one, which needs no allocation.
pub type Reports = SmallVec<[NewReport; 1]>;
/// The outcome of each report.
pub type Outcomes = SmallVec<[SubmitOutcome; 16]>;

impl NewReport {
    /// Decodes and validates the body of one report. That of a site counts only if
    /// [`Store::read_site_report`](crate::Store::read_site_report) has decoded it.
    pub fn decode(body: &Bytes, study: &Study) -> Result<Self> {
        match study.format() {
            StudyFormat::Rows(format) => {
                let report = codec::decode_report(body, format)?;
                Ok(Self::new(body, format, report, MAX_COPIED_PAYLOAD))
            }
            StudyFormat::Sites(format) => Self::of_site(body, format),
        }
    }

    /// Decodes a batch: an outer error if the envelope is wrong, an inner one for each malformed report.
    ///
    /// # Errors
    /// Those of the codec; `unsupported-media-type` for a study of sites.
    pub fn decode_batch(body: &Bytes, study: &Study) -> Result<Vec<Result<Self>>> {
        let StudyFormat::Rows(format) = study.format() else {
            return Err(no_batches(study));
        };
        let reports = codec::decode_batch(body, format)?;
        Ok(reports
            .into_iter()
            .map(|report| report.map(|report| Self::new(body, format, report, 0)))
            .collect())
    }

    fn of_site(body: &Bytes, format: &SiteReportFormat) -> Result<Self> {
        let report = codec::decode_site_report(body, format)?;
        let payload = report.payload();
        let table = SiteTable {
            payload: format.payload(body.slice_ref(payload.as_bytes()))?,
            site: None,
        };
        Ok(Self {
            id: report.id(),
            fingerprint: format.fingerprint(),
            content: Content::Table(Box::new(table)),
            token: None,
        })
    }

    /// Tests a site's report for an unspent token of its study. Takes as long as a factorisation of the matrix.
    ///
    /// # Errors
    /// `invalid-request` for the report of a single row.
    pub(crate) fn test(&mut self, study: &Study, token: SiteToken) -> Result<()> {
        let params = study.params().sites()?;
        if let Content::Table(table) = &mut self.content {
            let noisy = params.mechanism().decode(&table.payload);
            let tested = check_site_report(params, &noisy, token.max_rows);
            table.site = Some(tested.map(|()| token.site));
        }
        Ok(())
    }

    /// Why it is refused whatever its token is, unless it was counted before: a site's report that failed the test.
    pub fn refusal(&self) -> Option<&Error> {
        match &self.content {
            Content::Table(table) => table.site.as_ref()?.as_ref().err(),
            Content::Row(_) => None,
        }
    }

    pub(crate) fn payload_bytes(&self) -> usize {
        self.content.as_bytes().len()
    }

    /// The claim that decides about it.
    pub(crate) fn claim(&self) -> Claim<'_> {
        Claim {
            id: &self.id.0,
            key: self.token.as_deref(),
            passed: match &self.content {
                Content::Table(table) => table.site.as_ref().map(Result::is_ok),
                Content::Row(_) => None,
            },
        }
    }

    /// The codec borrows from the body, so the payload always lies inside it.
    fn new(
        body: &Bytes,
        format: &ReportFormat,
        report: ValidatedReport<'_>,
        copied: usize,
    ) -> Self {
        let store = |bytes: &[u8]| {
            if bytes.len() <= copied {
                Bytes::copy_from_slice(bytes)
            } else {
                body.slice_ref(bytes)
            }
        };
        Self {
            id: report.id(),
            fingerprint: format.fingerprint(),
            content: Content::Row(report.payload().map_bytes(store)),
            token: None,
        }
    }

    /// Whether it was validated for this study, or for one with the same parameters.
    pub(crate) fn is_for(&self, study: &Study) -> bool {
        self.fingerprint == study.fingerprint()
    }

    /// Adds the credential that the report came with.
    #[must_use]
    pub fn admitted_by(mut self, admission: &Admission) -> Self {
        self.token = admission.key().map(Box::new);
        self
    }
}

impl std::fmt::Debug for NewReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "NewReport({}, {} payload bytes)",
            self.id,
            self.payload_bytes()
        )
    }
}

/// The error for a batch of reports of sites.
pub fn no_batches(study: &Study) -> Error {
    error!(
        UnsupportedMediaType,
        "study {} takes one site's report a request, and no batches; send each on its own",
        study.id()
    )
}
