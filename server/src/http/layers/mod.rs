//! What each request passes on its way to a handler and back, and the address under which the server is known.

pub(crate) mod drain;
pub(crate) mod host;
pub(crate) mod public_path;
pub(crate) mod rate_limit_layer;
pub(crate) mod response_budget;
pub(crate) mod trace;
