//! One study that a device took part in.

use eigenveil_shared::{
    about::UtcDate,
    enrolment::ParticipantToken,
    parameters::{Parameters, StudyUnit},
    privacy::Budget,
    report::{Report, ReportId},
    study::Fingerprint,
};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result, printable},
    exchange::{Request, Server},
    rules::StudyTerms,
    study_info::upload_one,
};

/// The state of a report. Its bytes are kept while it is pending or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryState {
    /// Stored, and still to be sent.
    #[serde(rename = "owed")]
    Pending,
    /// The server has it; its bytes are gone from here.
    Acknowledged,
    /// The server refused it permanently. Its bytes are kept; see
    /// [`Ledger::requeue_refused`](crate::Ledger::requeue_refused).
    Refused {
        /// Stable code.
        code: String,
        /// The server's message.
        detail: String,
    },
    /// Given up by its owner before a server acknowledged it, which may have it all the same; its bytes are gone from
    /// here, and it is never sent again.
    GivenUp,
}

impl EntryState {
    /// Whether the report can still be sent, now or after a refusal: its bytes are kept.
    pub(crate) fn can_be_sent(&self) -> bool {
        match self {
            Self::Pending | Self::Refused { .. } => true,
            Self::Acknowledged | Self::GivenUp => false,
        }
    }

    /// The state, for a person.
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::Pending => "not yet known to have arrived".to_owned(),
            Self::Acknowledged => "the server has it".to_owned(),
            Self::Refused { code, detail } => format!(
                "refused by the server ({}: {}); charged all the same, since it may have been seen",
                printable(code),
                printable(detail)
            ),
            Self::GivenUp => {
                "given up, and never sent again; charged all the same, since the server may have it already"
                    .to_owned()
            }
        }
    }
}

/// A study that a device took part in, with the state of its report. The report's bytes are stored separately.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub(crate) number: u64,
    /// Addresses of the study, oldest first; the last is the current one.
    pub(crate) servers: Vec<Server>,
    pub(crate) study: String,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) payload_len: usize,
    pub(crate) mechanism: String,
    pub(crate) dimension: u64,
    pub(crate) neighbours: String,
    pub(crate) sentence: String,
    pub(crate) charge: Budget,
    pub(crate) day: UtcDate,
    pub(crate) report: ReportId,
    pub(crate) state: EntryState,
    pub(crate) token: Option<ParticipantToken>,
    pub(crate) canonical_params: Vec<u8>,
    /// Terms of the study; their parameters are the decoded `canonical_params`, if this version can read them.
    pub(crate) terms: StudyTerms,
}

impl Entry {
    /// Identifier of the study.
    pub fn study(&self) -> &str {
        &self.study
    }

    /// The server that the report is sent to.
    pub fn server(&self) -> &Server {
        // `servers` is never empty.
        &self.servers[self.servers.len() - 1]
    }

    /// Identifier of the report.
    pub fn report(&self) -> ReportId {
        self.report
    }

    /// The state of the report.
    pub fn state(&self) -> &EntryState {
        &self.state
    }

    /// The charge of the report.
    pub fn charge(&self) -> Budget {
        self.charge
    }

    /// Whether it is a round of the preparation whose first round has this fingerprint.
    pub(crate) fn is_round_of(&self, first: Fingerprint) -> bool {
        let params = self.terms.parameters.as_ref();
        params.and_then(Parameters::first_round) == Some(first)
    }

    /// The key of the record with the report's bytes.
    pub fn payload_key(&self) -> String {
        format!("payload/{}", self.number)
    }

    /// The request that sends the report with this payload. Read the payload from the store for each request: a report
    /// that was given up meanwhile, by this program or another one, has none any more.
    ///
    /// # Errors
    /// If the payload has the wrong length.
    pub fn request(&self, payload: Vec<u8>) -> Result<Request> {
        if payload.len() != self.payload_len {
            return Err(Error::usage(format!(
                "the report for study {} has {} bytes instead of {}",
                self.study,
                payload.len(),
                self.payload_len
            )));
        }
        let report = Report {
            id: self.report,
            fingerprint: self.fingerprint,
            payload,
        };
        upload_one(
            self.server(),
            &self.study,
            StudyUnit::Row,
            &report,
            &self.token.clone().into(),
        )
    }
}
