//! Judged components: the answer of every estimator.

use eigenveil_shared::estimate::{BucketAgreement, BucketVerdict, CountShares, SparseOutcome};
use nalgebra::DMatrix;

use crate::{
    assessment::{FloorReport, agreement::bucket_agreement},
    input::moment::NoisyMoment,
    report::warning::Warning,
};

/// Judged components of a noisy second-moment matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct ComponentsReport {
    /// `p × k` orthonormal loadings, leading first. k may be 0 (`k = auto` and nothing above the noise).
    pub vectors: DMatrix<f64>,
    /// Eigenvalues of S̃, descending: all p, or the leading ones of a [large](crate::sparse_from_seeds) sparse estimate.
    pub spectrum: Vec<f64>,
    /// Components, floor, expected error and warnings.
    pub floor_report: FloorReport,
    /// How the sparse solver ended; `None` for plain PCA.
    pub sparse: Option<SparseOutcome>,
    /// Whether it is open where the components end (`k = auto`).
    pub k_is_open: bool,
    /// How firm k is; `None` if it was fixed, or nothing stands.
    pub k_shares: Option<CountShares>,
    /// Whether the buckets agree; `None` as [`bucket_agreement`].
    pub bucket_agreement: Option<BucketAgreement>,
}

impl ComponentsReport {
    /// Compares the buckets of the moment that these components are from.
    pub(crate) fn compare_buckets(&mut self, moment: &NoisyMoment) {
        self.bucket_agreement = bucket_agreement(moment, &self.vectors);
        // The first warning, because it puts all others in doubt.
        if let Some(agreement) = &self.bucket_agreement
            && agreement.verdict == BucketVerdict::Disagree
        {
            let warning = Warning::BucketsDisagree(agreement.clone());
            self.floor_report.warnings.insert(0, warning);
        }
    }
}
