//! The reports of studies of sites: each a row of its own, with the name of its site.

use eigenveil_estimation::SiteSum;
use eigenveil_shared::site_study::SiteStudyParams;
use rusqlite::{Connection, Transaction, params};

use super::checksum::{checksum, verify};
use crate::contract::{failure::Failure, study::StudyKey, sums::SiteDecoder};

/// The bucket in checksums of a study without buckets.
const NO_BUCKET: u32 = 0;

/// Appends a report, which is the study's `number`-th from 0.
pub(crate) fn append(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    number: u64,
    site: &str,
    payload: &[u8],
) -> Result<(), Failure> {
    transaction
        .prepare_cached(
            "INSERT INTO site_reports (study_pk, number, site, payload, checksum) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![
            study_pk,
            number,
            site,
            payload,
            checksum(study_pk, NO_BUCKET, number, payload)
        ])?;
    Ok(())
}

/// Reads all reports of a study, one in memory at a time, in the order in which they were stored.
pub(crate) fn read(
    connection: &Connection,
    study_pk: StudyKey,
    mut take: impl FnMut(&str, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut statement = connection.prepare(
        "SELECT number, site, payload, checksum FROM site_reports WHERE study_pk = ? ORDER BY number",
    )?;
    let mut rows = statement.query([study_pk])?;
    while let Some(row) = rows.next()? {
        let site = row.get_ref(1)?.as_str().map_err(Failure::damaged)?;
        let payload = row.get_ref(2)?.as_blob().map_err(Failure::damaged)?;
        verify(study_pk, NO_BUCKET, row.get(0)?, payload, row.get(3)?)?;
        take(site, payload)?;
    }
    Ok(())
}

/// Reads all reports of a study, decoded.
pub(crate) fn read_sums(
    connection: &Connection,
    study_pk: StudyKey,
    params: &SiteStudyParams,
) -> Result<Vec<SiteSum>, Failure> {
    let decoder = SiteDecoder::new(params);
    let mut sums = Vec::new();
    read(connection, study_pk, |site, payload| {
        sums.push(decoder.decode(site.to_owned(), payload)?);
        Ok(())
    })?;
    Ok(sums)
}
