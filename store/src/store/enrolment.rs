//! One-time participant tokens.
//!
//! A token is redeemed in the transaction that stores its report. No column links the two; what transactions and copies
//! of the files show: docs/limitations.md.

use bytes::Bytes;
use eigenveil_shared::{
    Error, Result,
    api::{IssueTokensRequest, IssueTokensResponse, SiteToken, TokenCounts},
    enrolment::{Admission, MAX_SITE_TOKENS_PER_REQUEST, MAX_TOKENS_PER_REQUEST, ParticipantToken},
    error,
};

use super::Store;
use crate::contract::{
    participant_token::{NewToken, SiteRoom, check_site},
    report::NewReport,
    study::Study,
};

impl Store {
    /// Creates one-time tokens for the participants of a study of single rows. Their text is only in the response.
    ///
    /// # Errors
    /// `invalid-request` for none or more than 100,000, and for a study of sites; `invalid-transition` for a study that
    /// is closed or has open enrolment; `study-not-found`; those of the store; `randomness-unavailable`.
    pub async fn issue_tokens(&self, study: &Study, count: usize) -> Result<IssueTokensResponse> {
        self.issue(
            study,
            IssueTokensRequest {
                count: Some(count),
                sites: Vec::new(),
            },
        )
        .await
    }

    /// Creates the one-time tokens of a request: so many, or in a study of sites one for each that is named, in this
    /// order.
    ///
    /// # Errors
    /// Those of [`issue_tokens`](Self::issue_tokens); in a study of sites `invalid-name`, and `invalid-request` for
    /// numbers of rows beyond the study's, and for more tokens than there is room for reports (`max_site_bytes`).
    pub async fn issue(
        &self,
        study: &Study,
        request: IssueTokensRequest,
    ) -> Result<IssueTokensResponse> {
        let sites = sites_of(study, request)?;
        let mut tokens = Vec::with_capacity(sites.len());
        let mut new = Vec::with_capacity(sites.len());
        for site in sites {
            let mut random = [0; 32];
            self.shared.environment.entropy.fill(&mut random)?;
            let token = ParticipantToken::from_bytes(random);
            tokens.push(token.reveal());
            new.push(NewToken {
                key: token.digest(),
                site,
            });
        }
        // In index order: fast, and the stored order reveals nothing about the order of the response.
        new.sort_unstable_by_key(|token| token.key);
        self.engine().issue(study, new).await?;
        Ok(IssueTokensResponse { tokens })
    }

    /// How many participant tokens a study has, and in a study of sites the site of each. Blocks.
    pub fn token_counts(&self, study: &Study) -> Result<TokenCounts> {
        self.engine().token_counts(study)
    }

    /// The site of a token, for whoever has it. Blocks.
    ///
    /// # Errors
    /// `participant-token-unknown`; `invalid-request` for a study of single rows; those of the store.
    pub fn look_up_token(&self, study: &Study, token: &ParticipantToken) -> Result<SiteToken> {
        study.params().sites()?;
        let site = self.engine().site_token(study, &token.digest())?;
        site.ok_or_else(|| {
            error!(
                ParticipantTokenUnknown,
                "study {} has no such token; check that it was copied completely and is for this study",
                study.id()
            )
        })
    }

    /// Decodes a site's report, and tests it if its token is unspent: the test is of the token's number of rows, and
    /// takes as long as a factorisation of the matrix. What fails it is refused by the commit, unless it was counted
    /// before ([`NewReport::refusal`]). Blocks.
    ///
    /// # Errors
    /// Those of the codec; `invalid-request` for a study of single rows; those of the store.
    pub fn read_site_report(
        &self,
        study: &Study,
        body: &Bytes,
        admission: &Admission,
    ) -> Result<NewReport> {
        study.params().sites()?;
        let mut report = NewReport::decode(body, study)?.admitted_by(admission);
        if let Some(key) = admission.key()
            && let Some(token) = self.engine().site_token(study, &key)?
            && !token.spent
        {
            report.test(study, token)?;
        }
        Ok(report)
    }

    /// The error for a site's report that a study has no room for.
    pub fn no_room(&self, study: &Study) -> Error {
        let room = SiteRoom::of(study, &self.shared.config);
        let bound = room.map(SiteRoom::bound).unwrap_or_default();
        error!(
            StoreFull,
            "this server keeps at most {bound}, which study {} has; this one was not counted: the operator has to raise that, send it again afterwards",
            study.id()
        )
    }
}

/// The site of each token that is asked for, with the most rows of its report; none in a study of single rows.
fn sites_of(study: &Study, request: IssueTokensRequest) -> Result<Vec<Option<(String, u64)>>> {
    let IssueTokensRequest { count, sites } = request;
    if !study.has_sites() {
        let why = "each report of the study is of a single row";
        Error::reject_if_given(&[("sites", !sites.is_empty())], why)?;
        let count = count.unwrap_or(0);
        if !(1..=MAX_TOKENS_PER_REQUEST).contains(&count) {
            return Err(Error::invalid_request(format!(
                "count is {count}; one request makes 1 to {MAX_TOKENS_PER_REQUEST} tokens"
            )));
        }
        return Ok(vec![None; count]);
    }
    Error::reject_if_given(
        &[("count", count.is_some())],
        "the study is one of sites, and `sites` names that of each token",
    )?;
    if !(1..=MAX_SITE_TOKENS_PER_REQUEST).contains(&sites.len()) {
        return Err(Error::invalid_request(format!(
            "`sites` names {} sites; one request makes 1 to {MAX_SITE_TOKENS_PER_REQUEST} tokens of a study of sites",
            sites.len()
        ))
        .with_field("sites"));
    }
    let most = study.params().sites()?.terms().max_rows;
    sites
        .into_iter()
        .map(|asked| {
            let max_rows = asked.max_rows.unwrap_or(most);
            check_site(study, &asked.site, max_rows)?;
            Ok(Some((asked.site, max_rows)))
        })
        .collect()
}
