//! Trusted-curator baselines: PCA by somebody who may see every row.
//!
//! [`ALGORITHMS`] lists the algorithms of the source papers; a [`Baseline`] is one with its parameters. [`accountant`]
//! says how much noise a run needs. [`principal_components`] are the non-private reference of every comparison.
//!
//! ```
//! use eigenveil_central::{Rows, principal_components};
//! use eigenveil_shared::preprocess::{Norm, Preprocessing, Row};
//!
//! let preprocessing = Preprocessing::new(2, Norm::Normalize);
//! let preprocessor = preprocessing.preprocessor()?;
//! let rows = [[3.0, 0.0], [0.0, 1.0], [2.0, 0.0]];
//! let rows = rows.map(|row| preprocessor.prepare_features(&Row::new(row.to_vec())));
//! let found = principal_components(&Rows::collect(rows)?, 1)?;
//! assert_eq!(found.vectors.as_slice(), &[1.0, 0.0]);
//! # Ok::<(), eigenveil_shared::Error>(())
//! ```

pub mod accountant;
mod amin;
mod baseline;
mod dp_pca;
mod exact_pca;
mod fit;
mod input;
mod input_perturbation;
pub mod oja;
pub mod parameter;
mod parts;
pub mod power;
mod privacy;
mod private_power_iteration;
mod registry;
pub mod robust;
mod run;
mod simulate;
mod sparse_pca;
mod stochastic;
#[cfg(test)]
mod testing;

pub use baseline::{AlgorithmInfo, Baseline, DeltaSupport};
pub use fit::{Fit, Request, TracePoint};
pub use input::generator::{Generator, generator, model_row};
pub use input::population::{ModelKind, ModelSettings};
pub use input::rows::Rows;
pub use input::stream::RowStream;
pub use parameter::Options;
pub use parts::gradient_sum::GradientSum;
pub use parts::leading::principal_components;
pub use privacy::{CentralCalibration, Neighbours, Privacy, PrivacyTarget, RunGuarantee};
pub use registry::{ALGORITHMS, find};
pub use run::{
    CentralAnswer, CentralRequest, CentralRun, Diagnostic, FitAnswer, FitPrivacy, fit, run,
};
pub use simulate::{SimulateRequest, simulate};
