"""Scikit-learn estimators whose ``fit`` simulates a study."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _core, _rows
from ._estimate import Estimate
from ._request import to_json
from ._rows import Floats
from .errors import InputError

_DESIGN = ("epsilon", "mechanism", "calibration", "delta", "bound_rows", "radius", "centring", "mean_weight")


@dataclass(eq=False, repr=False)
class LocalDPPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """PCA under local differential privacy: its ``fit`` is a simulation on rows that you hold, and protects nobody.

    Each row is one participant: it is perturbed, encoded, decoded and added up as devices and servers do it, with noise
    from a seeded generator. For people who keep their rows see :class:`Study` and :class:`Analyst`.

    Parameters
    ----------
    n_components : int or "auto"
        Components; ``"auto"`` are those before the last gap that noise does not explain.
    epsilon, delta : float
        Of one report.
    mechanism, calibration, bound_rows, radius, centring
        As in :meth:`Analyst.create_study`.
    center, scale : array of p, mapping or Series by feature name, optional
        Public constants, subtracted from each row and dividing it.
    observed : array of p or float, optional
        Public share of the participants who have each value; then NaN is a missing cell.
    mean_weight : float, optional
        Public mean of the weights that ``fit`` is given, if it is known.
    random_state : int, RandomState, Generator or None
        Seed of the noise.

    Attributes
    ----------
    estimate_ : Estimate
        All that a study's estimate has.
    components_, explained_variance_, explained_variance_ratio_, mean_, verdicts_, expected_error_, privacy_
        As in :class:`Estimate`.
    n_features_in_, n_components_, n_samples_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import LocalDPPCA
    >>> rows = np.random.default_rng(1).normal(size=(20_000, 6)) * [4, 3, 1, 1, 1, 1]
    >>> pca = LocalDPPCA(n_components=2, epsilon=4, random_state=1).fit(rows)
    >>> pca.verdicts_
    ['above', 'above']
    >>> pca.transform(rows).shape
    (20000, 2)
    """

    n_components: int | str = 2
    epsilon: float = 4.0
    _: KW_ONLY
    mechanism: str = "double-cap"
    calibration: str = "analytic"
    delta: float | None = None
    bound_rows: str = "normalize"
    radius: float | None = None
    centring: float | None = None
    center: Any = None
    scale: Any = None
    observed: Any = None
    mean_weight: float | None = None
    random_state: Any = None

    def _sparse(self) -> dict[str, Any] | None:
        return None

    def fit(self, X: Any, y: Any = None, *, weights: Any = None, persons: Any = None) -> LocalDPPCA:
        """Simulates a study of these rows.

        Parameters
        ----------
        X : array or data frame of n × p
            The rows; they go nowhere.
        y : ignored
        weights : array of n, optional
            What each row counts, above 0 and at most 1; more counts as 1.
        persons : array of n, optional
            The person each row belongs to: one row of each person, drawn at random, is reported.
        """
        values = self._validated(X, reset=True)
        if values.shape[1] < 2:
            raise InputError("n_features = 1 is not enough; PCA needs at least 2 features", "invalid-dimension")
        holders = _rows.holders(X, len(values), persons, weights)
        design = {name: getattr(self, name) for name in _DESIGN}
        design |= {"dimension": values.shape[1], "features": self._features(values.shape[1])}
        design["weights"] = weights is not None
        asked = {"n_components": self.n_components, "sparse": self._sparse(), "random_state": _seed(self.random_state)}
        moment = weights is None and self.observed is None and values.shape[1] <= 1000
        request = to_json({**asked, "moment": moment})
        with self._hide_cell_like_names():
            try:
                core = _core.simulated(values, *holders, to_json(design), request)
            except InputError as error:
                if error.code != "invalid-name" or self._has_constants():
                    raise
                # A frame may have names that no study may have, such as those with line breaks: it has none then.
                design["features"] = None
                core = _core.simulated(values, *holders, to_json(design), request)
        self.estimate_ = Estimate(core)
        self.components_ = self.estimate_.components_
        self.explained_variance_ = self.estimate_.explained_variance_
        self.explained_variance_ratio_ = self.estimate_.explained_variance_ratio_
        self.mean_ = self.estimate_.mean_
        self.verdicts_ = self.estimate_.verdicts_
        self.expected_error_ = self.estimate_.expected_error_
        self.privacy_ = self.estimate_.privacy_
        self.n_components_ = self.estimate_.n_components_
        self.n_samples_ = len(values)
        return self

    def _has_constants(self) -> bool:
        return not (self.center is None and self.scale is None and self.observed is None)

    def _features(self, p: int) -> list[dict[str, Any]] | None:
        names = getattr(self, "feature_names_in_", None)
        if names is None and not self._has_constants():
            return None
        columns = {"center": self.center, "scale": self.scale, "observed": self.observed}
        given = {key: _per_feature(value, names, p, key) for key, value in columns.items() if value is not None}
        return [
            {"name": str(name), **{key: float(value[i]) for key, value in given.items()}}
            for i, name in enumerate([f"x{i + 1}" for i in range(p)] if names is None else names)
        ]

    @contextlib.contextmanager
    def _hide_cell_like_names(self) -> Iterator[None]:
        """Calls features by their places, if the first row of a file could be their names."""
        try:
            yield
        except InputError as error:
            said = str(error)
            names = getattr(self, "feature_names_in_", ())
            if any(f'"{name}"' in said for name in names) and any(map(_rows.could_be_a_cell, names)):
                for place, name in enumerate(names, 1):
                    said = said.replace(f'"{name}"', str(place))
                raise InputError(said, error.code, error.values) from None
            raise

    def _validated(self, X: Any, *, reset: bool) -> Floats:
        finite: bool | str = True if self.observed is None else "allow-nan"
        X = _rows.unmasked(X)
        _rows.check_columns(X)
        try:
            values = validate_data(self, X, reset=reset, dtype=np.float64, order="C", ensure_all_finite=finite)
        except ValueError as error:
            # The message may contain cell values.
            said = str(error)
            if "could not convert string" in said:
                raise InputError("the rows have text, not numbers; convert or drop it", "invalid-dtype") from None
            if said.startswith("Expected 2D"):
                sentence = "the rows are not two-dimensional. Reshape your data: one row is array.reshape(1, -1)"
                raise InputError(sentence, "wrong-dimension") from None
            if said.startswith("Complex data"):
                raise InputError("Complex data not supported", "invalid-dtype") from None
            if said.startswith("The feature names should match"):
                known = [str(name) for name in getattr(self, "feature_names_in_", ())]
                found = [str(name) for name in getattr(X, "column_names", getattr(X, "columns", ()))]
                if any(map(_rows.could_be_a_cell, [*known, *found])):
                    _alone(lambda: _rows.refuse_other_names(found, known, "the table of fit"))
            raise
        except MemoryError:
            raise
        except Exception as error:
            if hasattr(X, "columns"):
                # Says which column it is.
                _alone(lambda: _rows.ordered(_rows.table(X), None, "the table"))
            if "sparse" in str(error).lower():
                sentence = "sparse rows are not supported; give dense ones, as rows.toarray()"
                raise InputError(sentence, "invalid-dtype") from None
            if getattr(X, "dtype", None) == object:
                raise  # As its checks want it: names the kind of a cell.
            raise InputError(
                f"the rows are a {type(X).__name__} that cannot be read; give an array of numbers, or a data frame",
                "invalid-dtype",
            ) from None
        return np.require(values, np.float64, ["C", "A"])

    def transform(self, X: Any) -> Any:
        """Scores of rows on the components, n × k: of the rows as the study prepares them."""
        check_is_fitted(self)
        return self.estimate_._core.transform(self._validated(X, reset=False))

    def inverse_transform(self, X: Any) -> Floats:
        """The prepared rows nearest to these scores, n × p."""
        check_is_fitted(self)
        return self.estimate_.inverse_transform(X)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.observed is not None
        return tags


@dataclass(eq=False, repr=False)
class LocalDPSparsePCA(LocalDPPCA):
    """Row-sparse PCA under local differential privacy: its ``fit`` is a simulation on rows that you hold.

    The components share one small set of features: Fantope projection by ADMM, with its optimality gap reported.

    Parameters
    ----------
    penalty : "auto", "cv", "path" or float
        λ: from the known noise, by cross-validation over buckets of reports, or in units of the second moment.
    refit : bool
        Run PCA on the selected features, which removes the shrinkage; without it the error is not known (NaN).
    max_iterations, tolerance
        When the solver stops.
    n_components, epsilon, …
        As in :class:`LocalDPPCA`.

    Attributes
    ----------
    support_ : array of int
        The selected features.
    converged_ : bool
    """

    _: KW_ONLY
    penalty: str | float = "auto"
    refit: bool = True
    max_iterations: int = 2000
    tolerance: float = 1e-6

    def _sparse(self) -> dict[str, Any] | None:
        others = {name: getattr(self, name) for name in ("refit", "max_iterations", "tolerance")}
        return {"lambda": self.penalty, **others}

    def fit(self, X: Any, y: Any = None, *, weights: Any = None, persons: Any = None) -> LocalDPSparsePCA:
        """As :meth:`LocalDPPCA.fit`."""
        super().fit(X, y, weights=weights, persons=persons)
        sparse = self.estimate_._document["sparse"]
        self.support_ = np.array(sparse["support"], dtype=np.intp)
        self.converged_ = bool(sparse["converged"])
        return self


def _per_feature(value: Any, names: Any, p: int, what: str) -> Floats:
    """A number for each feature: by their names, if both have names."""
    if names is not None and _rows.named(value) is not None:
        return _rows.row(value, [str(name) for name in names], "the table of fit", what)
    array = _rows.floats(value, what)
    if array.shape not in ((), (1,), (p,)):
        raise InputError(f"{what} has shape {array.shape}; give one number, or one for each of {p} features")
    found: Floats = np.broadcast_to(array, (p,))
    return found


def _alone(refuses: Callable[[], object]) -> None:
    """Raises what this refuses without the error that led to it, whose text is in a traceback, too."""
    try:
        refuses()
    except InputError as refusal:
        raise refusal from None


def _seed(random_state: Any) -> int:
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    return int(check_random_state(random_state).randint(2**31))
