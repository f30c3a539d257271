//! Bearer tokens: the operator's is rotated, analysts' are created and revoked.

use std::sync::Arc;

use eigenveil_shared::{
    Result,
    api::{
        AnalystTokenInfo, CreateAnalystTokenRequest, CreateAnalystTokenResponse,
        RotateOperatorTokenResponse,
    },
    error,
    study::from_hex,
};

use super::Store;
use crate::contract::{
    credentials::{Analyst, Identity},
    study::{Study, StudyId, check_name, invalid_study_id},
    token::{self, TokenHash},
};

impl Store {
    /// The identity whose current token has this hash; `None` if it was rotated or revoked.
    pub fn identify_hash(&self, hash: &TokenHash) -> Option<Identity> {
        self.engine().credentials().identify(hash)
    }

    /// Whether this is the operator token.
    pub fn is_operator_token(&self, token: &str) -> bool {
        self.identify_hash(&TokenHash::new(token)) == Some(Identity::Operator)
    }

    /// 256 new random bits, as 64 hexadecimal digits.
    pub fn fresh_secret(&self) -> Result<String> {
        token::generate(&*self.shared.environment.entropy)
    }

    /// Replaces the operator token: returns the new one and writes it to its file. The old one stops working.
    ///
    /// # Errors
    /// `forbidden` if another one has replaced it meanwhile; those of the store.
    pub async fn rotate_operator_token(
        &self,
        old: &TokenHash,
    ) -> Result<RotateOperatorTokenResponse> {
        let token = token::generate(&*self.shared.environment.entropy)?;
        self.engine().rotate_operator(*old, token.clone()).await?;
        Ok(RotateOperatorTokenResponse { token })
    }

    /// Creates an analyst token, which can read estimates of one study or of all.
    ///
    /// # Errors
    /// `invalid-name`; `invalid-request` beyond 1,000 of them; `study-not-found`; those of the store.
    pub async fn create_analyst_token(
        &self,
        request: CreateAnalystTokenRequest,
    ) -> Result<CreateAnalystTokenResponse> {
        check_name("the name of the token", &request.name)?;
        let study: Option<Arc<Study>> = request
            .study
            .map(|text| {
                StudyId::parse(&text)
                    .ok_or_else(invalid_study_id)
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
        self.engine().add_analyst(analyst, study).await?;
        Ok(CreateAnalystTokenResponse {
            analyst: document,
            token,
        })
    }

    /// All analyst tokens, oldest first, without their text, which is not stored.
    pub fn analyst_tokens(&self) -> Vec<AnalystTokenInfo> {
        self.engine().credentials().documents()
    }

    /// Revokes the analyst token with this identifier.
    pub async fn revoke_analyst_token(&self, id: &str) -> Result<()> {
        let missing = || {
            error!(
                AnalystTokenNotFound,
                "there is no analyst token with this identifier; GET /v1/tokens lists them"
            )
        };
        let id: [u8; 8] = from_hex(id)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(missing)?;
        match self.engine().remove_analyst(id).await? {
            true => Ok(()),
            false => Err(missing()),
        }
    }
}
