//! The durable store of studies and reports, over one of two engines.
//!
//! No acknowledged report is ever lost, and uploads are idempotent: taking a report's identifier decides whether the
//! report is new, its payload is added to a sum (or its seed appended) in the same transaction, and the reply is sent
//! after the commit.
//!
//! * [`Store`]: what a server does with its studies, reports, tokens and estimates. [`StoreConfig`]: its settings.
//! * `contract`: what every engine has in common: decisions, submissions, the export, tokens, memory.
//! * `folds`: seeds added up once, over either engine.
//! * `sqlite`: one file with a single writer thread. `postgres` (a feature): a database that several servers share. The
//!   engines are independent of each other, and nothing here uses the network.
//! * `testing` (a feature): fixtures, faults, and databases for tests.

mod config;
mod contract;
mod counters;
mod environment;
mod faults;
mod folds;
#[cfg(feature = "postgres")]
mod postgres;
pub mod request_id;
mod sqlite;
mod store;
mod store_url;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(any(test, feature = "testing"))]
pub use self::faults::{Fault, Faults, Mutation};
#[cfg(feature = "postgres")]
pub use self::postgres::{Migrated, migrate_store};
pub use self::{
    config::StoreConfig,
    contract::{
        arrivals::ArrivalCount,
        credentials::Identity,
        decide::SubmitOutcome,
        failure::{file_failed, unavailable},
        job::{Job, StoredEstimate, estimate_settings},
        listener::Notice,
        memory::{ClientKey, MAX_SMALL_BYTES, MemoryBudget, Reservation},
        report::{NewReport, Outcomes, Reports, no_batches},
        study::{
            MAX_BUCKETS, Study, StudyId, StudyKey, check_about, check_component_count,
            check_enrolment, check_name, invalid_study_id, study_not_found,
        },
        sums::BucketSums,
        token::{TokenHash, token_replaced},
        transfer::{Imported, VerifiedExport},
    },
    counters::{StoreCounters, signed},
    environment::{Clock, Entropy, Environment, SystemClock, SystemEntropy},
    folds::StoredSeeds,
    sqlite::{database_path, rotate_operator_token},
    store::{Store, check},
    store_url::{Durability, StoreUrl},
};
