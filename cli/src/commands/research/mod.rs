//! Costs, plans, simulations, baselines, audits.

pub(crate) mod account;
pub(crate) mod audit;
pub(crate) mod central;
mod model;
pub(crate) mod plan;
pub(crate) mod prepare;
pub(crate) mod reproduce;
pub(crate) mod simulate;
