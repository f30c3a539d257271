//! The local randomizers: what each device does to its row. A closed set; the wire knows no other.

pub mod discrete_gaussian;
pub mod double_cap;
mod gaussian;
mod noise;
mod norm_bound;
mod rounded_gaussian;
mod spec;
mod work;

pub use gaussian::{GaussianNoise, IsotropicGaussian, MAX_DENSE_DIMENSION, SymmetricGaussian};
pub use noise::NoiseModel;
pub use norm_bound::{NORM_TAIL, NormBound};
pub use spec::{
    Calibration, DEFAULT_DELTA, LocalRandomizer, MechanismKind, MechanismSpec, PayloadForm,
};
pub use work::Work;
