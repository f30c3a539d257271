//! Which engine keeps the studies, and what it tells.
//!
//! An operation is a method of each engine with the same signature; a [`Store`](super::Store) calls it by [`each!`].
//! Decisions that do not depend on the engine are in [`decide`](super::decide), and called inside its transactions.

use std::sync::Arc;

use eigenveil_shared::Result;

#[cfg(feature = "postgres")]
use super::fleet::Fleet;
use super::{embedded::Embedded, listener::Listener};
use crate::{config::ServerConfig, environment::Environment, metrics::Metrics};

pub(super) enum Engine {
    Embedded(Box<Embedded>),
    #[cfg(feature = "postgres")]
    Fleet(Box<Fleet>),
}

impl Engine {
    pub(super) fn open(
        config: &ServerConfig,
        environment: Environment,
        metrics: Arc<Metrics>,
        listener: Listener,
    ) -> Result<Self> {
        #[cfg(feature = "postgres")]
        if let Some(url) = &config.store {
            let engine = Fleet::open(config, url, environment, metrics, listener)?;
            return Ok(Self::Fleet(Box::new(engine)));
        }
        let engine = Embedded::open(config, environment, metrics, listener)?;
        Ok(Self::Embedded(Box::new(engine)))
    }
}

/// Calls an operation of the store's engine.
macro_rules! each {
    ($store:expr, $engine:ident => $call:expr) => {
        match &$store.shared.engine {
            $crate::store::engine::Engine::Embedded($engine) => $call,
            #[cfg(feature = "postgres")]
            $crate::store::engine::Engine::Fleet($engine) => $call,
        }
    };
}
pub(super) use each;
