//! Checksums of what was counted: a bit that changed on the disk is noticed before it reaches an estimate.
//!
//! SQLite has none of its own, and any 16 bytes are a seed, any 8 a number of a sum.

use twox_hash::xxhash3_64::Hasher;

use crate::contract::{failure::Failure, study::StudyKey};

/// The checksum of a row of seeds, of a sum of a bucket or of a site's report, whose bucket is 0: of its key, its bytes,
/// and its `number` (of the commit, of the sum's reports, or of the report).
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
