//! Finds a study by its name or by the first digits of its identifier.

use eigenveil_shared::{ErrorCode, api::StudySummary};

use crate::error::{CliError, Result};

/// The identifier of the one study that is called so: as [`eigenveil_client::resolve_study_id`].
pub(crate) async fn resolve_study_id(
    list: impl Future<Output = eigenveil_client::Result<Vec<StudySummary>>>,
    called: &str,
) -> Result<String> {
    let id = eigenveil_client::resolve_study_id(list, called).await;
    id.map_err(not_one_study)
}

/// Calling no study, or several, is wrong usage; an identifier that the server does not know is not.
pub(crate) fn not_one_study(error: eigenveil_client::Error) -> CliError {
    let not_listed = error.code() == Some(ErrorCode::StudyNotFound) && error.status().is_none();
    if not_listed || error.name() == "usage" {
        return CliError::usage(CliError::from(error).to_string());
    }
    error.into()
}
