//! Participant tokens on their way into a store.

use eigenveil_shared::{Error, Result, about::is_visible, enrolment::AdmissionKey, error};
use unicode_normalization::is_nfc;

use crate::{
    config::StoreConfig,
    contract::study::{Study, StudyId, check_name},
};

/// A token that is to be stored.
pub(crate) struct NewToken {
    pub(crate) key: AdmissionKey,
    /// In a study of sites its site, and the most rows of the report that it is for.
    pub(crate) site: Option<(String, u64)>,
}

/// Rejects a site's token that nobody could use, or whose name cannot be shown or looks like another one's.
pub(crate) fn check_site(study: &Study, site: &str, max_rows: u64) -> Result<()> {
    check_name("the name of a site", site).map_err(|error| error.with_field("sites"))?;
    let is_plain = |c: char| c == ' ' || is_visible(c);
    if site.trim() != site || site.contains("  ") || !site.chars().all(is_plain) || !is_nfc(site) {
        return Err(error!(
            InvalidName,
            "the name of a site begins or ends with a blank, or has two in a row or one that is no space, an invisible character, or a letter that is not in Unicode's form NFC, so that it looks like another one's; write it without"
        )
        .with_field("sites"));
    }
    let terms = study.params().sites()?.terms();
    if (terms.min_rows..=terms.max_rows).contains(&max_rows) {
        return Ok(());
    }
    Err(Error::invalid_request(format!(
        "the token of {site:?} is for at most {max_rows} {unit}, but in study {} a table has {} to {} {unit}; give a number within these, or none for the largest",
        study.id(),
        terms.min_rows,
        terms.max_rows,
        unit = terms.unit()
    ))
    .with_field("sites"))
}

/// How many reports a study of sites may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteRoom {
    study: StudyId,
    payload_len: usize,
    max_reports: u64,
}

impl SiteRoom {
    /// The room of a study; `None` for one of single rows.
    pub(crate) fn of(study: &Study, config: &StoreConfig) -> Option<Self> {
        study.has_sites().then(|| Self {
            study: study.id(),
            payload_len: study.payload_len(),
            max_reports: study.max_reports(config),
        })
    }

    /// Rejects more tokens than there is room for their reports.
    pub(crate) fn check_tokens(self, issued: u64, more: usize) -> Result<()> {
        if issued.saturating_add(more as u64) <= self.max_reports {
            return Ok(());
        }
        Err(Error::invalid_request(format!(
            "study {} has {issued} tokens and {more} more are asked for, but this server keeps at most {}; ask for fewer, or raise that",
            self.study,
            self.bound()
        ))
        .with_field("sites"))
    }

    /// Rejects an import with which a study has more reports than it may.
    pub(crate) fn check_reports(self, reports: u64) -> Result<()> {
        if reports <= self.max_reports {
            return Ok(());
        }
        Err(error!(
            StoreFull,
            "with this export study {} would have {reports} reports, but this server keeps at most {}; nothing was imported: raise that",
            self.study,
            self.bound()
        ))
    }

    /// The bound in words.
    pub(crate) fn bound(self) -> String {
        format!(
            "{} reports of {} bytes of one study (max_site_bytes)",
            self.max_reports, self.payload_len
        )
    }
}
