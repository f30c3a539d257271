//! The HTTP API (`docs/protocol.md`): one file a resource, and what the handlers share. The table of routes is in
//! [`routes`](crate::routes).

pub(crate) mod body;
pub(crate) mod drain;
pub(crate) mod estimates;
pub(crate) mod extract;
mod files;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod problem;
pub(crate) mod rate_limit_layer;
pub(crate) mod reports;
pub(crate) mod response_budget;
pub(crate) mod studies;
pub(crate) mod tokens;
pub(crate) mod trace;
pub(crate) mod transfers;

pub use self::estimates::EstimateList;
pub(crate) use self::{
    problem::ApiError,
    rate_limit_layer::{ClientKey, authenticate, check_token_limit},
};
