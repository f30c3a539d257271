//! The local randomizers: what each device does to its row. A closed set; the wire knows no other.
//!
//! Everything about one of them is in its folder, as an implementation of `randomizer::LocalRandomizer`; `spec` lists
//! them. [`table`] is what a site does to all its rows at once, [`randomised_response`] what a device does in a
//! preparation.

mod calibration;
mod decoding;
pub mod discrete_gaussian;
pub mod double_cap;
mod gaussian;
mod name;
mod noise;
mod norm_bound;
mod payload;
pub mod randomised_response;
mod randomizer;
mod sampling_cost;
mod spec;
pub mod table;

#[cfg(test)]
mod script;

pub use calibration::Calibration;
pub use decoding::{AuditStatistic, Decoding};
pub use gaussian::{GaussianNoise, IsotropicGaussian, SymmetricGaussian};
pub use name::{AnswerMechanism, MechanismName};
pub use noise::NoiseModel;
pub use norm_bound::{NORM_TAIL, NormBound};
pub(crate) use payload::check_len;
pub use payload::{Floats, Integers, MAX_DENSE_DIMENSION, PackedValues, Payload, PayloadKind};
pub use sampling_cost::SamplingCost;
pub use spec::{DEFAULT_DELTA, Mechanism, MechanismKind};
