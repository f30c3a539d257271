//! A study as every device knows it: where it is, what it says of itself, and its parameters.

use std::fmt;

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    about::{self, StudyNotice, is_readable},
    api::{StudyDocument, StudyState},
    codec,
    enrolment::{Admission, Enrolment, Frame},
    parameters::{Parameters, StudyUnit},
    privacy::PrivacyStatement,
    report::Report,
    study::{Fingerprint, from_hex},
};

use crate::{
    error::{Error, Result, printable},
    exchange::{Request, Response, Server},
};

/// Maximum number of characters of a study's name.
const MAX_NAME_CHARS: usize = 1_000;

/// A checked study of either unit. A [`Study`](crate::Study) and a [`SiteStudy`](crate::SiteStudy) are one and make
/// reports besides.
///
/// Times are arguments, in milliseconds since 1970-01-01 UTC: nothing here reads a clock.
#[derive(Clone)]
pub struct StudyInfo {
    server: Server,
    id: String,
    name: Option<String>,
    about: StudyNotice,
    state: StudyState,
    enrolment: Enrolment,
    params: Parameters,
    fingerprint: Fingerprint,
    max_batch: usize,
    /// Name or beginning of the identifier by which a person called it; `None` for the whole identifier.
    called: Option<String>,
}

impl StudyInfo {
    /// A study with these parameters, open, without a name or a last day. A study of sites takes a report with a token.
    pub(crate) fn new(server: &Server, id: &str, params: Parameters) -> Self {
        Self {
            server: server.clone(),
            id: id.to_owned(),
            name: None,
            about: StudyNotice::default(),
            state: StudyState::Open,
            enrolment: match params.unit() {
                StudyUnit::Row => Enrolment::Open,
                StudyUnit::Site => Enrolment::Token,
            },
            fingerprint: params.fingerprint(),
            max_batch: max_batch(&params),
            params,
            called: None,
        }
    }

    pub(crate) fn set_info(&mut self, name: String, about: StudyNotice) {
        (self.name, self.about) = (Some(name), about);
    }

    /// States by which name a person called the study, as [`Study::called`](crate::Study::called) does.
    #[must_use]
    pub fn called(mut self, called: &str) -> Self {
        self.set_called(called);
        self
    }

    pub(crate) fn set_called(&mut self, called: &str) {
        let is_whole_id = called.eq_ignore_ascii_case(&self.id);
        self.called = (!is_whole_id).then(|| called.to_owned());
    }

    /// Checks a server's response to [`Study::request`](crate::Study::request), as [`Study::read`](crate::Study::read)
    /// does, for a study of either unit.
    ///
    /// # Errors
    /// Those of [`Study::read`](crate::Study::read).
    pub fn read(
        server: &Server,
        id: &str,
        response: &Response<'_>,
        pinned: Option<Fingerprint>,
    ) -> Result<Self> {
        let document: serde_json::Value = response.json(server.as_str())?;
        let document: StudyDocument = serde_json::from_value(document).map_err(|error| {
            Error::malformed_study(format!(
                "the answer of {server} is not the document of a study: {}",
                printable(&error.to_string())
            ))
        })?;
        let malformed = |detail: String| Err(Error::malformed_study(detail));
        if document.id != id {
            return malformed(format!("the server answered with another study than {id}"));
        }
        let Some(canonical) = from_hex(&document.canonical_params) else {
            return Err(SharedError::new(
                ErrorCode::MalformedParams,
                format!("the canonical parameters of study {id} are not hexadecimal"),
            )
            .into());
        };
        let params = Parameters::from_canonical(&canonical)?;
        let fingerprint = params.fingerprint();
        if document.fingerprint != fingerprint.to_string() {
            return Err(SharedError::new(
                ErrorCode::WrongFingerprint,
                format!(
                    "the server gives study {id} a fingerprint that differs from that of its parameters ({fingerprint}); do not take part"
                ),
            )
            .into());
        }
        let report_len = codec::report_len(params.payload_len());
        let max_batch = max_batch(&params);
        if document.report_bytes < report_len
            || !(1..=max_batch).contains(&document.max_batch_reports)
        {
            return malformed(format!(
                "study {id} says that a report may have {} bytes and a batch {} reports, but a report has {report_len} and a batch 1 to {max_batch}",
                document.report_bytes, document.max_batch_reports
            ));
        }
        // These texts are shown to people and stored for the receipt, so they must be valid.
        document.about.check()?;
        document.about.check_features(params.named_features())?;
        if !is_readable(&document.name) || document.name.chars().count() > MAX_NAME_CHARS {
            return malformed(format!(
                "the server gives study {id} a name that cannot be shown; do not take part"
            ));
        }
        if let Some(pinned) = pinned {
            check_fingerprint(fingerprint, pinned)?;
        }
        Ok(Self {
            server: server.clone(),
            id: document.id,
            name: Some(document.name),
            about: document.about,
            state: document.state,
            enrolment: document.enrolment,
            params,
            fingerprint,
            max_batch: document.max_batch_reports,
            called: None,
        })
    }

    /// The server of the study.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Its identifier.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its name, if it is known.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn called_by(&self) -> Option<&str> {
        self.called.as_deref()
    }

    /// The notice; empty if only parameters were given.
    pub fn about(&self) -> &StudyNotice {
        &self.about
    }

    /// Its parameters, of either unit.
    pub fn parameters(&self) -> &Parameters {
        &self.params
    }

    /// The fingerprint of its parameters.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Bytes of one payload.
    pub fn payload_len(&self) -> usize {
        self.params.payload_len()
    }

    /// Maximum number of reports in one request.
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// The privacy guarantee of one report, computed locally.
    pub fn privacy(&self) -> PrivacyStatement {
        self.params.privacy()
    }

    /// Its state when it was read.
    pub fn state(&self) -> StudyState {
        self.state
    }

    /// Who may take part.
    pub fn enrolment(&self) -> Enrolment {
        self.enrolment
    }

    /// Fails unless the study was open when it was read and its last day has not passed. Call it before writing
    /// anything; whatever makes a report does.
    ///
    /// # Errors
    /// `study-not-open`, `study-ended`.
    pub fn check_open(&self, now: u64) -> Result<()> {
        if let (Some(day), true) = (self.about.last_day, self.about.is_over(now)) {
            let name = self.name().unwrap_or_default();
            return Err(about::study_ended_error(
                &format!("{name:?}"),
                day,
                "nothing was perturbed or charged: check this device's clock if that is wrong, or ask whoever runs the study for another one",
            )
            .into());
        }
        if self.state == StudyState::Open {
            return Ok(());
        }
        let way_out = match self.state {
            StudyState::Draft => {
                "fetch the study again when whoever runs it has opened it, or take part in another one"
            }
            _ => "take part in another one, as a closed study never opens again",
        };
        Err(SharedError::new(
            ErrorCode::StudyNotOpen,
            format!(
                "study {} is {} and takes no reports; nothing was perturbed or charged: {way_out}",
                self.id,
                self.state.as_str()
            ),
        )
        .into())
    }

    /// The request that uploads one report.
    ///
    /// # Errors
    /// `wrong-fingerprint` for a report of other parameters; `token-required`.
    pub fn upload_one(&self, report: &Report, admission: &Admission) -> Result<Request> {
        check_fingerprint(report.fingerprint, self.fingerprint)?;
        upload_one(
            &self.server,
            &self.id,
            self.params.unit(),
            report,
            admission,
        )
    }
}

impl fmt::Debug for StudyInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Study({} at {}, parameters {})",
            self.id, self.server, self.fingerprint
        )
    }
}

/// Largest number of reports in one request: a site sends a single one.
fn max_batch(params: &Parameters) -> usize {
    match params.unit() {
        StudyUnit::Row => codec::max_batch(params.payload_len()),
        StudyUnit::Site => 1,
    }
}

/// The request that uploads one report, for which the study's document is not needed.
pub(crate) fn upload_one(
    server: &Server,
    study: &str,
    unit: StudyUnit,
    report: &Report,
    admission: &Admission,
) -> Result<Request> {
    let frame = Frame::new(admission.enrolment(), false);
    let bytes = match unit {
        StudyUnit::Row => codec::encode_report(report),
        StudyUnit::Site => codec::encode_site_report(report),
    };
    Ok(Request::upload(
        server,
        study,
        frame.media_type(),
        frame.write(&[admission], bytes)?,
        vec![report.id],
        false,
    ))
}

/// Refuses parameters that are not the expected ones.
pub(crate) fn check_fingerprint(actual: Fingerprint, expected: Fingerprint) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    Err(SharedError::new(
        ErrorCode::WrongFingerprint,
        format!(
            "the study's parameters have fingerprint {actual} but {expected} was expected; do not take part"
        ),
    )
    .into())
}
