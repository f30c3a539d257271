"""The scikit-learn ``PCA`` of an estimate."""

from __future__ import annotations

import numpy as np
from sklearn import decomposition

from ._rows import Floats


class PCA(decomposition.PCA):  # type: ignore[misc]
    """scikit-learn's, with what :meth:`Estimate.to_sklearn` sets instead of a fit."""

    n_features_in_: int

    def get_precision(self) -> Floats:
        """The inverse of :meth:`get_covariance`."""
        # Theirs divides by what a variance exceeds the noise by: of a component below the noise floor that is 0.
        inverse: Floats = np.linalg.inv(self.get_covariance())
        return inverse
