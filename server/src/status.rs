//! The HTTP status of each error code.

use axum::http::StatusCode;
use eigenveil_shared::ErrorCode;

/// The HTTP status of a code.
pub fn status_of(code: ErrorCode) -> StatusCode {
    use ErrorCode as E;
    match code {
        E::MalformedReport
        | E::MalformedParams
        | E::MalformedRequest
        | E::IncompleteBody
        | E::UnsupportedVersion
        | E::MalformedJson
        | E::MalformedExport => StatusCode::BAD_REQUEST,
        E::Unauthorized => StatusCode::UNAUTHORIZED,
        E::Forbidden | E::TokenRequired | E::ParticipantTokenUnknown => StatusCode::FORBIDDEN,
        E::NotFound | E::StudyNotFound | E::EstimateNotFound | E::AnalystTokenNotFound => {
            StatusCode::NOT_FOUND
        }
        E::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        E::StudyNotOpen
        | E::StudyEnded
        | E::InvalidTransition
        | E::EstimateNotReady
        | E::AlreadyParticipated
        | E::TokenSpent
        | E::AlreadyCounted => StatusCode::CONFLICT,
        E::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        E::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        E::InvalidDimension
        | E::InvalidBudget
        | E::InvalidMechanism
        | E::InvalidPreprocessing
        | E::InvalidName
        | E::InvalidAbout
        | E::InvalidRequest
        | E::InvalidConfig
        | E::WrongDimension
        | E::RowNotFinite
        | E::RowOutsideBall
        | E::WrongFingerprint
        | E::WrongPayloadLength
        | E::PayloadNotFinite
        | E::PayloadOutOfRange
        | E::ImplausibleReport
        | E::BudgetExceeded
        | E::EstimateFailed => StatusCode::UNPROCESSABLE_ENTITY,
        E::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        E::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        E::StoreUnavailable | E::CannotListen | E::ShuttingDown | E::RandomnessUnavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        E::StoreFull => StatusCode::INSUFFICIENT_STORAGE,
        E::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        // A code that was added to `shared` and not here.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_an_explicit_error_status() {
        for &code in ErrorCode::ALL {
            let status = status_of(code);
            assert!(
                status.is_client_error() || status.is_server_error(),
                "{code}"
            );
            assert_eq!(
                status == StatusCode::INTERNAL_SERVER_ERROR,
                code == ErrorCode::Internal,
                "{code} has no explicit status"
            );
        }
    }
}
