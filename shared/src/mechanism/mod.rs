//! The local randomizers: what each device does to its row. A closed set; the wire knows no other.
//!
//! Everything about one of them is in its folder, as an implementation of `randomizer::LocalRandomizer`; `spec` lists
//! them.

mod calibration;
pub mod discrete_gaussian;
pub mod double_cap;
mod gaussian;
mod noise;
mod norm_bound;
mod payload;
mod randomizer;
mod reading;
mod spec;
mod work;

pub use calibration::Calibration;
pub use gaussian::{GaussianNoise, IsotropicGaussian, SymmetricGaussian};
pub use noise::NoiseModel;
pub use norm_bound::{NORM_TAIL, NormBound};
pub(crate) use payload::check_len;
pub use payload::{Floats, Integers, MAX_DENSE_DIMENSION, Numbers, Payload, PayloadKind};
pub use reading::{AuditStatistic, Decoding};
pub use spec::{DEFAULT_DELTA, MechanismKind, MechanismSpec};
pub use work::Work;
