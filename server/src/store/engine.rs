//! Which engine keeps the studies, and what it tells.
//!
//! An operation is a method of each engine with the same signature; a [`Store`](super::Store) calls it by [`each!`].
//! Decisions that do not depend on the engine are in [`decide`](super::decide), and called inside its transactions.

use super::embedded::Embedded;
#[cfg(feature = "postgres")]
use super::fleet::Fleet;
#[cfg(test)]
use super::toy::Toy;

pub(super) enum Engine {
    Embedded(Box<Embedded>),
    #[cfg(feature = "postgres")]
    Fleet(Box<Fleet>),
    /// Maps in memory, for tests: what an engine has to do, without a database.
    #[cfg(test)]
    Toy(Box<Toy>),
}

/// Calls an operation of the store's engine.
macro_rules! each {
    ($store:expr, $engine:ident => $call:expr) => {
        match &$store.shared.engine {
            $crate::store::engine::Engine::Embedded($engine) => $call,
            #[cfg(feature = "postgres")]
            $crate::store::engine::Engine::Fleet($engine) => $call,
            #[cfg(test)]
            $crate::store::engine::Engine::Toy($engine) => $call,
        }
    };
}
pub(super) use each;
