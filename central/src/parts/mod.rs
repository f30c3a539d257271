//! Steps that several algorithms share.

pub(crate) mod gradient_sum;
pub(crate) mod leading;
pub(crate) mod noise;
pub(crate) mod poisson;
pub(crate) mod polar;
pub(crate) mod trace;
