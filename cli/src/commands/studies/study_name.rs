//! Finds a study by its name or by the first digits of its identifier.

use eigenveil_client::http::OperatorClient;
use eigenveil_shared::ErrorCode;

use crate::error::{CliError, Result};

/// The identifier of the one study that is called so: as [`OperatorClient::find_study`].
pub(crate) async fn find_study(client: &OperatorClient, called: &str) -> Result<String> {
    client.find_study(called).await.map_err(not_one_study)
}

/// Calling no study, or several, is wrong usage; an identifier that the server does not know is not.
pub(crate) fn not_one_study(error: eigenveil_client::Error) -> CliError {
    let not_listed = error.code() == Some(ErrorCode::StudyNotFound) && error.status().is_none();
    if not_listed || error.name() == "usage" {
        return CliError::usage(CliError::from(error).to_string());
    }
    error.into()
}
