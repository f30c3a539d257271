//! All checksums of a database at once.

use rusqlite::Connection;

pub(crate) use crate::contract::checksum::{checksum, verify};
use crate::{contract::failure::Failure, sqlite::schema::has_site_reports};

pub(crate) fn verify_all(connection: &Connection) -> Result<(), Failure> {
    let sites = match has_site_reports(connection)? {
        true => "UNION ALL SELECT study_pk, 0, number, payload, checksum FROM site_reports",
        false => "",
    };
    let mut statement = connection.prepare(&format!(
        "SELECT study_pk, bucket, commit_seq, seeds, checksum FROM seeds
         UNION ALL SELECT study_pk, bucket, n, sum, checksum FROM buckets {sites}"
    ))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(3)?.as_blob().map_err(Failure::damaged)?;
        verify(row.get(0)?, row.get(1)?, row.get(2)?, bytes, row.get(4)?)?;
    }
    Ok(())
}
