//! A study of sites as a site takes part in it.

use std::{fmt, ops::Deref, sync::Arc};

use eigenveil_shared::{
    about::StudyNotice,
    api::{LookUpTokenRequest, SiteToken},
    enrolment::ParticipantToken,
    site_study::SiteStudyParams,
};

use crate::{
    error::{Error, Result},
    exchange::{Request, Response, Server},
    study_info::StudyInfo,
};

/// A checked study of sites. Cheap to clone; safe to share between threads.
///
/// It makes no report by itself: a table is charged first (`upload_site_table`).
#[derive(Clone)]
pub struct SiteStudy(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    info: StudyInfo,
    /// The parameters of `info`.
    params: SiteStudyParams,
}

impl SiteStudy {
    /// A study with these (checked, frozen) parameters, such as ones shipped with the program: open, without a name or
    /// a last day.
    pub fn new(server: &Server, id: &str, params: SiteStudyParams) -> Self {
        let info = StudyInfo::new(server, id, params.clone().into());
        Self(Arc::new(Inner { info, params }))
    }

    /// Adds name and notice, as [`Study::with_info`](crate::Study::with_info) does.
    #[must_use]
    pub fn with_info(mut self, name: impl Into<String>, about: StudyNotice) -> Self {
        Arc::make_mut(&mut self.0).info.set_info(name.into(), about);
        self
    }

    /// States by which name a person called the study, as [`Study::called`](crate::Study::called) does.
    #[must_use]
    pub fn called(mut self, called: &str) -> Self {
        Arc::make_mut(&mut self.0).info.set_called(called);
        self
    }

    /// Its parameters.
    pub fn params(&self) -> &SiteStudyParams {
        &self.0.params
    }

    /// The request for the site and the largest table of a token, which spends nothing.
    pub fn token_request(&self, token: &ParticipantToken) -> Result<Request> {
        let request = LookUpTokenRequest {
            token: token.reveal(),
        };
        let body = serde_json::to_vec(&request)
            .map_err(|error| Error::usage(format!("the request cannot be written: {error}")))?;
        Ok(Request::token_lookup(self.server(), self.id(), body))
    }

    /// Reads a server's response to [`token_request`](Self::token_request).
    ///
    /// # Errors
    /// The server's refusal: `participant-token-unknown`.
    pub fn read_token(&self, response: &Response<'_>) -> Result<SiteToken> {
        response.json(self.server().as_str())
    }
}

impl TryFrom<StudyInfo> for SiteStudy {
    type Error = Error;

    /// # Errors
    /// `invalid-request` for a study of single rows.
    fn try_from(info: StudyInfo) -> Result<Self> {
        let params = info.parameters().sites()?.clone();
        Ok(Self(Arc::new(Inner { info, params })))
    }
}

impl Deref for SiteStudy {
    type Target = StudyInfo;

    fn deref(&self) -> &StudyInfo {
        &self.0.info
    }
}

impl fmt::Debug for SiteStudy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
