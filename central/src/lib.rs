//! Trusted-curator baselines: what somebody who may see every row would answer.
//!
//! So far one algorithm, the non-private [`pca`] everything is compared with ([`centred_pca`] for studies with
//! private centring); the private baselines of
//! the source papers come beside it, behind the same [`Fit`].
//!
//! ```
//! use eigenveil_central::pca;
//! use eigenveil_shared::preprocess::{Norm, Preprocessing, Row};
//!
//! let preprocessing = Preprocessing { dimension: 2, features: None, norm: Norm::Normalize, centring: None };
//! let preprocessor = preprocessing.preprocessor()?;
//! let rows = [[3.0, 0.0], [0.0, 1.0], [2.0, 0.0]];
//! let fit = pca(
//!     rows.iter().map(|row| preprocessor.prepare(&Row::new(row.to_vec()))),
//!     2,
//!     1,
//! )?;
//! assert_eq!(fit.subspace.as_slice(), &[1.0, 0.0]);
//! assert_eq!(fit.n, 3);
//! # Ok::<(), eigenveil_shared::Error>(())
//! ```

mod pca;

pub use pca::{Fit, centred_pca, pca};
