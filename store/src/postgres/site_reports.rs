//! The reports of studies of sites: each a row of its own, with the name of its site.

use eigenveil_estimation::SiteSum;
use eigenveil_shared::site_study::SiteStudyParams;

use super::{Inner, connection::Session};
use crate::contract::{failure::Failure, study::Study, sums::SiteDecoder};

/// Bytes of payloads that are fetched together, unless one alone has more.
const FETCHED_BYTES: usize = 16 << 20;
/// Reports that are fetched together.
const FETCHED: usize = 1_024;

/// Takes the name of a site and its payload.
type Take<'a> = &'a mut dyn FnMut(&str, &[u8]) -> Result<(), Failure>;

impl Inner {
    /// Reads all reports of a study in a snapshot, in the order in which they were stored. Blocks.
    pub(super) fn read_site_reports(
        &self,
        session: &Session,
        study: &Study,
        take: Take<'_>,
    ) -> Result<(), Failure> {
        let together = (FETCHED_BYTES / study.payload_len()).clamp(1, FETCHED) as i64;
        let mut last = 0_i64;
        loop {
            let select =
                "SELECT number, site, payload FROM site_reports WHERE study = $1 AND number > $2
                          ORDER BY number LIMIT $3";
            let rows = self.wait(session.query(select, &[&study.key.0, &last, &together]))?;
            let Some(end) = rows.last() else {
                return Ok(());
            };
            last = end.try_get(0)?;
            for row in &rows {
                take(row.try_get(1)?, row.try_get(2)?)?;
            }
        }
    }

    /// Reads all reports of a study in a snapshot, decoded. Blocks.
    pub(super) fn read_site_sums(
        &self,
        session: &Session,
        study: &Study,
        params: &SiteStudyParams,
    ) -> Result<Vec<SiteSum>, Failure> {
        let decoder = SiteDecoder::new(params);
        let mut sums = Vec::new();
        self.read_site_reports(session, study, &mut |site, payload| {
            sums.push(decoder.decode(site.to_owned(), payload)?);
            Ok(())
        })?;
        Ok(sums)
    }
}
