"""Baselines of a trusted curator, who sees every row: the cost of local privacy is measured against them.

>>> import eigenveil.central
>>> "analyze-gauss" in [algorithm["name"] for algorithm in eigenveil.central.algorithms()]
True
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _core, _rows
from ._command import features_of
from ._request import read_json, to_json
from ._rows import Floats
from .errors import InputError


@dataclass(frozen=True, eq=False)
class Fit(_rows.Copies):
    """The result of a baseline.

    Attributes
    ----------
    components_ : array of k × p
        Orthonormal, leading first.
    privacy_ : dict or None
        The statement: ``epsilon`` and ``delta`` asked for, ``true_epsilon`` that holds for the whole run (None if none
        does), ``claim_holds``, ``neighbours``, ``calibration``, ``guarantee`` in words. None for a run without noise.
    captured_variance : float
        Share of the rows' second moment. **Not private.**
    diagnostics : dict
        Noise scales, steps. **Not private.**
    n : int
        Rows used.
    """

    components_: Floats
    privacy_: dict[str, Any] | None
    captured_variance: float
    n: int
    diagnostics: dict[str, float] = field(default_factory=dict)


def algorithms() -> list[dict[str, Any]]:
    """All baselines: ``name``, ``source``, ``description``, ``guarantee``, ``neighbours``, ``parameters``."""
    found: list[dict[str, Any]] = json.loads(_core.algorithms())
    return found


def fit(
    algorithm: str,
    rows: Any,
    *,
    k: int,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbours: str | None = None,
    calibration: str | None = None,
    features: Any = None,
    bound_rows: str = "normalize",
    radius: float | None = None,
    seed: int | None = None,
    **parameters: Any,
) -> Fit:
    """Runs a baseline on rows.

    Parameters
    ----------
    algorithm : str
        One of :func:`algorithms`, such as ``"analyze-gauss"`` or ``"pca"``.
    rows : array or data frame
        n × p.
    k : int
        Components.
    epsilon, delta : float, optional
        Of the whole run; without ``epsilon`` there is no noise.
    neighbours : str, optional
        With ``epsilon``: ``"replace"`` (one row by any other; the default), ``"zero-out"`` or ``"entry"``.
    calibration : str, optional
        With ``epsilon``: ``"accounted"`` (the default), or ``"as-published"``, which reports what really holds.
    features, bound_rows, radius
        How rows are prepared, as in :meth:`Analyst.create_study`.
    seed : int, optional
        Makes the noise repeatable, and protects nobody; leave it out for a result that you release.
    **parameters
        The algorithm's own, such as ``iterations=20``.

    Examples
    --------
    >>> import eigenveil.central, numpy as np
    >>> rows = np.random.default_rng(1).normal(size=(2000, 6)) * [3, 2, 1, 1, 1, 1]
    >>> fit = eigenveil.central.fit("analyze-gauss", rows, k=2, epsilon=1, delta=1e-6, seed=1)
    >>> fit.privacy_["claim_holds"]
    True
    """
    feature_list = features_of(features)
    expected = None if feature_list is None else [str(feature["name"]) for feature in feature_list]
    values = _rows.ordered(_rows.table(rows, expected=expected), expected, "the features")
    request = {
        "algorithm": algorithm, "k": k, "epsilon": epsilon, "delta": delta, "neighbours": neighbours,
        "calibration": calibration, "features": feature_list, "bound_rows": bound_rows, "radius": radius, "seed": seed,
        "options": parameters,
    }  # fmt: skip
    components, rest = _core.central(to_json(request), values)
    components.setflags(write=False)
    answer = read_json(rest)
    return Fit(components, answer["privacy"], answer["captured_variance"], answer["n"], answer["diagnostics"])


@dataclass(frozen=True, eq=False)
class Sparse(_rows.Copies):
    """Row-sparse components of a matrix, with a proof of how good they are.

    Attributes
    ----------
    components_ : array of k × p
        Orthonormal; columns outside ``support`` are exactly zero.
    support : list of int
        The selected features.
    objective, gap, relative_gap : float
        ⟨S, X⟩ − λ‖X‖₁; a proved bound on how far it is below the optimum; the bound over the leading variance.
    converged : bool
    iterations : int
    """

    components_: Floats
    support: list[int]
    objective: float
    gap: float
    relative_gap: float
    iterations: int
    converged: bool


def sparse_components(
    matrix: Any, *, k: int, penalty: float, max_iterations: int = 2000, tolerance: float = 1e-6, threads: int = 1
) -> Sparse:
    """Row-sparse components of a given symmetric matrix, by Fantope projection; nothing here is private.

    Parameters
    ----------
    matrix : array of p × p
    k : int
        Components.
    penalty : float
        λ ≥ 0, in units of the matrix.
    max_iterations, tolerance
        When to stop: the tolerance is that of the relative duality gap.
    threads : int
        Of the linear algebra; the result does not depend on it.

    Examples
    --------
    >>> import eigenveil.central
    >>> matrix = [[2, 0.9, 0.05], [0.9, 2, -0.05], [0.05, -0.05, 1]]
    >>> found = eigenveil.central.sparse_components(matrix, k=1, penalty=0.1)
    >>> found.support, found.converged
    ([0, 1], True)
    """
    values = _rows.floats(matrix, "the matrix")
    if values.ndim != 2:
        raise InputError(f"the matrix has {values.ndim} dimensions; it must have two", "wrong-dimension")
    if not 0 <= _rows.number(penalty, "penalty") < np.inf:
        raise InputError(f"penalty is {penalty}; it must be a finite number of at least 0")
    request = {"k": k, "penalty": penalty, "max_iterations": max_iterations, "tolerance": tolerance, "threads": threads}
    components, rest = _core.fantope(to_json(request), values)
    components.setflags(write=False)
    return Sparse(components, **read_json(rest))
