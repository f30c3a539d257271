//! What an engine does: a trait for each of the files that one has.
//!
//! Decisions that do not depend on the engine are in [`decide`](super::decide), and called inside its transactions.

use std::{any::Any, fmt::Debug, fs::File, path::PathBuf, pin::Pin, sync::Arc};

use eigenveil_estimation::SiteSum;
use eigenveil_shared::{
    Result,
    api::{EstimateJob, EstimateRequest, SiteToken, StudyState, TokenCounts},
    enrolment::AdmissionKey,
};

use super::{
    arrivals::ArrivalCount,
    credentials::{Analyst, Credentials},
    failure::Failure,
    job::{Ended, Job, StoredEstimate},
    memory::Reservation,
    participant_token::NewToken,
    report::{Outcomes, Reports},
    study::{NewStudy, Study, StudyId, StudyIndex},
    sums::BucketSums,
    token::TokenHash,
    transfer::{Imported, VerifiedExport},
};

/// A result that comes later.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An engine: it takes reports, and has all the other traits. What [`Store`](crate::Store) says of an operation of the
/// same name holds for each.
pub(crate) trait Engine:
    Studies
    + Tokens
    + Expiry
    + Removal
    + Snapshot
    + Seeds
    + Jobs
    + Analysts
    + Transfer
    + Any
    + Debug
    + Send
    + Sync
{
    fn studies(&self) -> &StudyIndex;
    fn credentials(&self) -> &Credentials;
    /// Counts the reports in one commit, and returns after it.
    fn append(
        &self,
        study: &Arc<Study>,
        reports: Reports,
        reservation: Reservation,
    ) -> Pending<'_, Result<Outcomes>>;
    fn close(&self);
    fn ended(&self) -> Pending<'_, ()>;
    fn check_running(&self) -> Result<()>;
    fn check_writable(&self) -> Pending<'_, Result<()>>;
    fn is_damaged(&self) -> bool;
    fn look_again(&self) -> Pending<'_, Result<()>>;
    /// Now, by the engine's clock as this process knows it.
    fn unix_ms(&self) -> u64;
    fn token_path(&self) -> PathBuf;
}

/// Studies: created, and moved to another state.
pub(crate) trait Studies {
    fn create(&self, id: StudyId, design: NewStudy) -> Pending<'_, Result<Arc<Study>>>;
    fn set_state(&self, study: &Arc<Study>, wanted: StudyState) -> Pending<'_, Result<()>>;
}

/// Tokens of participants.
pub(crate) trait Tokens {
    fn issue(&self, study: &Study, tokens: Vec<NewToken>) -> Pending<'_, Result<()>>;
    fn token_counts(&self, study: &Study) -> Result<TokenCounts>;
    /// The token of a study of sites with this key, if there is one. Blocks.
    fn site_token(&self, study: &Study, key: &AdmissionKey) -> Result<Option<SiteToken>>;
}

/// The end of a study's last day.
pub(crate) trait Expiry {
    /// Now, by the clock that decides. Blocks.
    fn moment_ms(&self) -> Result<u64>;
    /// Closes a study whose last day was over at `over_at`, or reopens one that a wrong clock closed. Blocks.
    fn end(&self, study: &Arc<Study>, wanted: StudyState, over_at: u64, now: u64) -> Result<()>;
}

/// Removal of studies, of identifiers past their time, and of traces.
pub(crate) trait Removal {
    fn delete(&self, study: &Arc<Study>) -> Pending<'_, Result<()>>;
    fn sweep(&self, stopping: &dyn Fn() -> bool) -> Result<()>;
    fn is_rewritten(&self, study: &Study) -> Result<bool>;
}

/// Sums of one moment, arrivals, sizes. All block.
pub(crate) trait Snapshot {
    /// The sums of a study whose payloads are numbers.
    fn sums(&self, study: &Study) -> Result<BucketSums>;
    /// The reports of a study of sites, in the order in which they were stored.
    fn site_sums(&self, study: &Study) -> Result<Vec<SiteSum>>;
    fn arrivals(&self, study: &Study) -> Result<Vec<ArrivalCount>>;
    fn measure(&self) -> Result<()>;
}

/// Seeds, and what is kept of their sums ([`folds`](crate::folds)). All block.
pub(crate) trait Seeds {
    /// Passes the seeds of one moment to `read`.
    fn read_seeds(&self, study: &Study, read: &mut ReadSeeds<'_>) -> Result<()>;
    /// Whether so many bytes of a fold leave enough room to reports.
    fn has_room(&self, bytes: u64) -> bool;
    /// Keeps this fold in the place of what is kept; false if that is no longer of this generation, or the fold has not as
    /// many seeds as there are up to its last row.
    fn keep_fold(&self, study: &Study, bucket: u32, generation: i64, fold: NewFold)
    -> Result<bool>;
    /// Drops the fold that is kept, if it is of this generation.
    fn drop_fold(&self, study: &Study, bucket: u32, generation: i64) -> Result<()>;
}

pub(crate) type ReadSeeds<'a> = dyn FnMut(&dyn SeedReader) -> Result<(), Failure> + 'a;
/// Takes something with the number of a row, and says whether to go on.
pub(crate) type RowSink<'a> = dyn FnMut(i64, &[u8]) -> Result<bool, Failure> + 'a;

/// The seeds of a study at one moment. Rows of a bucket are numbered in the order of their commits, from 0 or 1 on.
pub(crate) trait SeedReader {
    /// Number of reports that the study has accepted.
    fn accepted(&self) -> u64;
    /// The fold of a bucket, without bytes.
    fn kept(&self, bucket: u32) -> Result<Kept, Failure>;
    /// The bytes of a bucket's fold.
    fn fold(&self, bucket: u32) -> Result<Option<Vec<u8>>, Failure>;
    /// The last row of a bucket; without rows one before all.
    fn last(&self, bucket: u32) -> Result<i64, Failure>;
    /// Passes the rows of a bucket's seeds after one, in order.
    fn rows(&self, bucket: u32, after: i64, take: &mut RowSink<'_>) -> Result<(), Failure>;
}

/// The fold of a bucket, without bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kept {
    /// A larger one each time that a fold is kept or dropped, or rows get another order.
    pub(crate) generation: i64,
    /// The fold's last row; without a fold one before all rows.
    pub(crate) upto: i64,
    /// Number of its seeds; 0 without a fold.
    pub(crate) n: u64,
}

/// A fold to be kept.
pub(crate) struct NewFold {
    /// Its last row.
    pub(crate) upto: i64,
    /// Number of its seeds.
    pub(crate) n: u64,
    pub(crate) body: Vec<u8>,
}

/// Estimates: requested, computed in order, finished or cancelled.
pub(crate) trait Jobs {
    fn add_job(&self, study: &Study, request: EstimateRequest) -> Pending<'_, Result<EstimateJob>>;
    fn cancel_job(&self, study: &Study, number: u64) -> Pending<'_, Result<EstimateJob>>;
    fn job(&self, study: &Study, number: u64) -> Result<StoredEstimate>;
    fn jobs(&self, study: &Study) -> Result<Vec<EstimateJob>>;
    fn claim_job(&self) -> Result<Option<(Arc<Study>, Job)>>;
    fn finish_job(&self, job: i64, ended: Ended) -> Result<()>;
    fn put_back_job(&self, job: i64) -> Result<()>;
}

/// Bearer tokens of the operator and of analysts.
pub(crate) trait Analysts {
    fn rotate_operator(&self, old: TokenHash, token: String) -> Pending<'_, Result<()>>;
    fn add_analyst(&self, analyst: Analyst, study: Option<Arc<Study>>) -> Pending<'_, Result<()>>;
    /// Deletes the token; returns whether it existed.
    fn remove_analyst(&self, id: [u8; 8]) -> Pending<'_, Result<bool>>;
}

/// Studies and whole stores as files.
pub(crate) trait Transfer {
    fn export(&self, study: &Study) -> Result<File>;
    fn import(
        &self,
        export: VerifiedExport,
        into: Option<Arc<Study>>,
    ) -> Pending<'_, Result<Imported>>;
    fn backup(&self) -> Result<File>;
    fn temporary_file(&self) -> Result<File>;
}
