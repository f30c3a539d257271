//! Rules for the ledgers of devices and of rows, without I/O: when a study is one already taken part in, and when it
//! has moved; what taking part costs, and the limits; which terms must not change; which errors another token may fix.

mod limits;
mod terms;

use eigenveil_shared::{Error as SharedError, ErrorCode, study::Fingerprint};

use crate::{
    error::{Error, Hint, Result},
    exchange::Server,
    study_info::{StudyInfo, check_fingerprint},
};

pub use limits::{Limits, PrivacyCost};
pub(crate) use limits::{charge, compose};
pub use terms::StudyTerms;

/// Error codes that another token may fix.
pub(crate) const TOKEN_ERRORS: [ErrorCode; 3] = [
    ErrorCode::TokenRequired,
    ErrorCode::ParticipantTokenUnknown,
    ErrorCode::TokenSpent,
];

/// Refuses a study that `who` already took part in, at another address or with other parameters.
pub(crate) fn check_known(
    study: &StudyInfo,
    who: &str,
    server: &Server,
    fingerprint: Fingerprint,
) -> Result<()> {
    let id = study.id();
    if server != study.server() {
        let here = study.server();
        let error = SharedError::new(
            ErrorCode::AlreadyParticipated,
            format!(
                "{who} took part in study {id} at {server} and cannot take part again at {here}: a second report could reach the same study. Use {server}, or declare that the study has moved, so that the same report is sent to {here}"
            ),
        );
        return Err(Error::from(error).with_hint(Hint::Move(server.to_string())));
    }
    if fingerprint != study.fingerprint() {
        let now = study.fingerprint();
        return Err(SharedError::new(
            ErrorCode::WrongFingerprint,
            format!(
                "{who} took part in study {id} with parameters {fingerprint}, and now the server gives it parameters {now}; do not take part again"
            ),
        )
        .into());
    }
    Ok(())
}

/// The error for a round of a preparation, in another round of which `who` took part as study `other`.
pub(crate) fn took_part_in_other_round(study: &StudyInfo, who: &str, other: &str) -> Error {
    SharedError::new(
        ErrorCode::AlreadyParticipated,
        format!(
            "{who} took part in study {other}, a round of the preparation that study {} is a round of, too: each person answers in one of the rounds. Leave this round to others; the study that is prepared may still be taken part in",
            study.id()
        ),
    )
    .into()
}

/// Refuses the move of a study whose parameters differ from `fingerprint`, or whose purpose or responsible party
/// differs from `recorded_terms`.
pub(crate) fn check_move(
    study: &StudyInfo,
    fingerprint: Fingerprint,
    recorded_terms: &StudyTerms,
) -> Result<()> {
    check_fingerprint(study.fingerprint(), fingerprint)?;
    recorded_terms.check_unchanged(study.about())
}
