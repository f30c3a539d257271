//! Seeds added up once: an estimate expands those that came since.
//!
//! Of each bucket a **fold** is kept: the sum of its first seeds, copies included, a sample of them for the check whether
//! real rows can have produced them, and their sorted fingerprints, by which copies are found. It is a cache: it may be
//! deleted, and is made anew; seeds are never dropped. What is kept is bounded by `max_fold_bytes`, and moved on only for
//! so many seeds that writing it anew is worth while.
//!
//! * [`fold`] makes folds, in ranges of whole rows, and moves them on by compare-and-swap. Since each range is
//!   added up by itself, a sum has the same bits whether it was kept or not, as long as its rows stay as they are.
//! * [`rounds`] decides which bucket is next where no estimate waits.
//! * [`StoredSeeds`] is what an estimate reads: folds, and the seeds after them, in a file of its own.
//! * [`copies`] has each seed counted once.
//!
//! An engine reads rows, keeps a fold, and drops one whose bucket gets its rows in another order
//! ([`Seeds`](crate::contract::engine::Seeds)).

mod copies;
mod fold;
mod rounds;
mod stored;

pub use self::stored::StoredSeeds;
pub(crate) use self::{
    fold::{Folding, fold_study, move_on},
    rounds::Rounds,
    stored::Use,
};
