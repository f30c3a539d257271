//! Bearer tokens: the operator's is rotated, analysts' are created and revoked.

use std::sync::Arc;

use eigenveil_shared::{
    Error, ErrorCode, Result,
    api::{AnalystTokenInfo, CreateAnalystRequest, CreateAnalystResponse, RotateTokenResponse},
    study::from_hex,
};
use rusqlite::params;

use super::{
    Store,
    credentials::{Analyst, Identity},
    rows,
    study::{Study, StudyId, check_name},
    token::{self, TokenHash},
};

/// Maximum number of analyst tokens: each presented token is compared with all of them.
const MAX_ANALYST_TOKENS: usize = 1_000;

impl Store {
    /// Whose token has this hash now; `None` if it was rotated or revoked.
    pub(crate) fn identify_hash(&self, hash: &TokenHash) -> Option<Identity> {
        self.shared.credentials.identify(hash)
    }

    /// 256 new random bits, as 64 hexadecimal digits.
    pub(crate) fn fresh_secret(&self) -> Result<String> {
        token::generate(&*self.shared.environment.entropy)
    }

    /// Replaces the operator token, in the response and in its file. The old one stops working.
    pub async fn rotate_operator_token(&self) -> Result<RotateTokenResponse> {
        let token = token::generate(&*self.shared.environment.entropy)?;
        let hash = TokenHash::new(&token);
        let files = self.shared.directory.token_files();
        let credentials = Arc::clone(&self.shared.credentials);
        let staged = (files.clone(), token.clone());
        self.write(
            move |transaction| {
                let (files, token) = staged;
                files.stage(&token)?;
                token::save_hash(transaction, &hash)
            },
            move |(), _| {
                credentials.change(|table| table.operator = hash);
                // The next start repeats this; the response has the token in any case.
                if let Err(error) = files.adopt() {
                    tracing::error!(%error, "the new operator token could not be written to its file");
                }
            },
        )
        .await?;
        Ok(RotateTokenResponse { token })
    }

    /// Creates an analyst token, which can read estimates of one study or of all.
    ///
    /// # Errors
    /// `invalid-name`; `invalid-request` beyond 1,000 of them; `study-not-found`; those of the store.
    pub async fn create_analyst_token(
        &self,
        request: CreateAnalystRequest,
    ) -> Result<CreateAnalystResponse> {
        check_name("the name of the token", &request.name)?;
        let study: Option<Arc<Study>> = request
            .study
            .map(|text| {
                StudyId::parse(&text)
                    .ok_or_else(rows::invalid_study_id)
                    .and_then(|id| self.study(id))
            })
            .transpose()?;
        let mut id = [0; 8];
        self.shared.environment.entropy.fill(&mut id)?;
        let token = token::generate(&*self.shared.environment.entropy)?;
        let analyst = Analyst {
            id,
            name: request.name,
            study: study.as_ref().map(|study| study.id()),
            created_at_ms: self.unix_ms(),
            hash: TokenHash::new(&token),
        };
        let document = analyst.document();
        let credentials = Arc::clone(&self.shared.credentials);
        self.write(
            move |transaction| {
                if let Some(study) = &study {
                    rows::require(transaction, study.pk, study.id())?;
                }
                let existing: usize =
                    transaction.query_row("SELECT count(*) FROM analyst_tokens", [], |row| {
                        row.get(0)
                    })?;
                if existing >= MAX_ANALYST_TOKENS {
                    return Err(Error::invalid_request(format!("there are {existing} analyst tokens and the limit is {MAX_ANALYST_TOKENS}; revoke some first"))
                    .into());
                }
                transaction.execute(
                    "INSERT INTO analyst_tokens (id, name, study_pk, created_at_ms, hash)
                     VALUES (?, ?, ?, ?, ?)",
                    params![
                        analyst.id,
                        analyst.name,
                        study.map(|study| study.pk),
                        analyst.created_at_ms,
                        analyst.hash.bytes()
                    ],
                )?;
                Ok(analyst)
            },
            move |analyst, _| credentials.change(|table| table.analysts.push(analyst.clone())),
        )
        .await?;
        Ok(CreateAnalystResponse {
            analyst: document,
            token,
        })
    }

    /// All analyst tokens, oldest first, without their text, which is not stored.
    pub fn analyst_tokens(&self) -> Vec<AnalystTokenInfo> {
        self.shared.credentials.documents()
    }

    /// Revokes the analyst token with this identifier.
    pub async fn revoke_analyst_token(&self, id: &str) -> Result<()> {
        let missing = || {
            Error::new(
                ErrorCode::AnalystTokenNotFound,
                "there is no analyst token with this identifier; list them with `eigenveil token list` or GET /v1/tokens",
            )
        };
        let id: [u8; 8] = from_hex(id)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(missing)?;
        let credentials = Arc::clone(&self.shared.credentials);
        self.write(
            move |transaction| match transaction
                .execute("DELETE FROM analyst_tokens WHERE id = ?", params![id])?
            {
                0 => Err(missing().into()),
                _ => Ok(()),
            },
            move |(), _| credentials.change(|table| table.analysts.retain(|other| other.id != id)),
        )
        .await
    }
}
