//! Checksums of what was counted: a bit that changed on the disk is noticed before it reaches an estimate.
//!
//! SQLite has none of its own, and any 16 bytes are a seed, any 8 a number of a sum.

use rusqlite::Connection;
use twox_hash::xxhash3_64::Hasher;

use crate::{
    contract::{failure::Failure, study::StudyKey},
    sqlite::schema::has_site_reports,
};

/// The checksum of a row of seeds, of a bucket sum or of a site's report, whose bucket is 0: of its key, its bytes, and
/// its `number` (of the commit, of the sum's reports, or of the report).
pub(crate) fn checksum(study_pk: StudyKey, bucket: u32, number: u64, bytes: &[u8]) -> [u8; 8] {
    let mut key = [0; 20];
    key[..8].copy_from_slice(&study_pk.0.to_le_bytes());
    key[8..12].copy_from_slice(&bucket.to_le_bytes());
    key[12..].copy_from_slice(&number.to_le_bytes());
    Hasher::oneshot_with_seed(Hasher::oneshot(&key), bytes).to_le_bytes()
}

pub(crate) fn verify(
    study_pk: StudyKey,
    bucket: u32,
    number: u64,
    bytes: &[u8],
    stored: [u8; 8],
) -> Result<(), Failure> {
    match checksum(study_pk, bucket, number, bytes) == stored {
        true => Ok(()),
        false => Err(Failure::damaged(format!(
            "seeds, sums or reports of sites in bucket {bucket} differ from their checksum"
        ))),
    }
}

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
