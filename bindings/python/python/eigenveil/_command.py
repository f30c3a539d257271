"""Use cases as functions: the fields of the request are keyword arguments, and the answer is the return value."""

from __future__ import annotations

import csv
import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import _core, _request, _rows
from ._estimate import Estimate
from .errors import InputError

Numbers = float | Sequence[float]
Words = str | Sequence[str]
# How the rows of a file are read.
_READING = ("format", "header", "delimiter", "decimal", "encoding", "keep", "drop", "first_index", "by_position")


class EigenveilWarning(UserWarning):
    """A note or a warning that a command would print on standard error."""


def _answered(answer: str, notes: list[str], depth: int = 3) -> dict[str, Any]:
    for note in notes:
        warnings.warn(note, EigenveilWarning, stacklevel=depth)
    return _request.read_json(answer)


def answer_request(use_case: Callable[[str], tuple[str, list[str]]], arguments: dict[str, Any]) -> dict[str, Any]:
    """Answers a request with these arguments."""
    return _answered(*use_case(_to_json(arguments)), depth=4)


def _to_json(arguments: dict[str, Any]) -> str:
    if arguments.get("centring") is True:
        arguments = {**arguments, "centring": math.sqrt(0.5)}
    return _request.to_json(arguments)


def _pop_given(flags: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Removes the named flags from ``flags``, and returns those that are given."""
    given = {name: flags.pop(name) for name in names if name in flags}
    return {name: _request.plain(name, value) for name, value in given.items() if value is not None}


def _listed(value: Any) -> Any:
    return value if value is None or _request.is_many(value) else [value]


def _path(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        instead = {"rows": ", or LocalDPPCA the rows that you hold", "pilot": ", or an Estimate"}.get(name, "")
        raise InputError(f"{name} is a {type(value).__name__}; give the path of a file{instead}")
    return os.fsdecode(value)


def account(
    *,
    epsilon: float | None = None,
    mechanism: str | None = None,
    delta: float | None = None,
    studies: int = 1,
    p: int | None = None,
    sigma: float | None = None,
    sensitivity: float | None = None,
    calibration: str | None = None,
) -> dict[str, Any]:
    """The privacy cost of one report, or of one in each of several studies: ``true_epsilon``, ``composed_epsilon``,
    ``sum_epsilon``, …, all rounded up.

    Parameters
    ----------
    epsilon : float
        The claimed ε of one report; alternatively, give ``sigma`` and ``sensitivity`` of any Gaussian release.
    mechanism, calibration, p
        ``"double-cap"`` and ``"analytic"`` by default; ``p``, 40 by default, is for ``discrete-gaussian``.
    studies : int
        Studies that one participant takes part in.
    delta : float, optional
        δ at which ε is computed, 1e-6 by default; not for ``double-cap``, whose δ is 0.

    Examples
    --------
    >>> import eigenveil
    >>> round(eigenveil.account(epsilon=4, studies=5)["composed_pure_epsilon"], 4)
    20.0
    """
    return answer_request(_core.account, locals())


def plan(
    *,
    epsilon: Numbers,
    p: int | None = None,
    k: int | None = None,
    spectrum: Sequence[float] | None = None,
    pilot: Estimate | str | os.PathLike[str] | None = None,
    n: int | Sequence[int] | None = None,
    target_error: float | None = None,
    mechanism: Words | None = None,
    delta: float | None = None,
    **flags: Any,
) -> dict[str, Any]:
    """The participants needed for an error, or the error to expect with a number of participants, for every mechanism:
    ``rows``, one for each mechanism and ε, with ``n``, ``error``, ``true_epsilon``, ``report_bytes``.

    Parameters
    ----------
    epsilon : float or sequence
        Of one report.
    p, k : int
        Dimension and components.
    spectrum : sequence of float
        The leading eigenvalues of E[xxᵀ] of the prepared rows, from public data or a guess.
    pilot : Estimate or path
        Instead of ``p`` and ``spectrum``: the estimate of a pilot study.
    n, target_error
        One of them: participants expected, or the error ‖V̂V̂ᵀ − VVᵀ‖ that is wanted.
    **flags
        Others of ``eigenveil plan --help``, such as ``bound_rows="clip"``, or ``sites=10, rows=100_000``: then there are
        also rows for as many sites, with one report of a table each, and for one site that has them all (``sites``).

    Examples
    --------
    >>> import eigenveil
    >>> planned = eigenveil.plan(p=40, k=1, spectrum=[0.4, 0.1], epsilon=4, target_error=0.3, mechanism="double-cap")
    >>> planned["rows"][0]["n"] < 20_000
    True
    """
    plot = _path("plot", flags.pop("plot", None))
    if not isinstance(pilot, Estimate):
        path = _path("pilot", pilot)
        pilot = None if path is None else Estimate.load(path)
    lists = {"epsilon": epsilon, "spectrum": spectrum, "n": n, "mechanism": mechanism}
    lists |= {name: flags.pop(name) for name in ("rows", "site_rows") if name in flags}
    lists = {name: _listed(value) for name, value in lists.items()}
    request = _to_json({**lists, "p": p, "k": k, "target_error": target_error, "delta": delta, **flags})
    return _answered(*_core.plan(request, None if pilot is None else pilot._core, plot))


def simulate(
    *,
    k: int | Sequence[int],
    epsilon: Numbers,
    model: str = "spiked",
    n: int | Sequence[int] | None = None,
    p: int | Sequence[int] | None = None,
    rows: str | os.PathLike[str] | None = None,
    mechanism: str | None = None,
    repeats: int = 1,
    seed: int = 1,
    sparse: bool = False,
    **flags: Any,
) -> dict[str, Any]:
    """Runs studies on a population whose true subspace is known; a simulation protects nobody. Returns ``error_mean``,
    ``error_predicted_from_truth``, ``nonprivate_error``, …, or, with several settings, ``rows`` of them.

    Parameters
    ----------
    n, k, epsilon, p : number or sequence
        Participants, components, ε of a report, dimension. Several values make a sweep.
    model : str
        ``"spiked"``, ``"sparse"`` (with ``s``), ``"wang-xu"``, ``"haystack"`` or ``"plus-minus"``.
    rows : path, optional
        A table to draw participants from instead of a model. For an array that you hold see :class:`LocalDPPCA`.
    **flags
        Others of ``eigenveil simulate --help``, such as ``spike=20``, ``s=15``, ``noise="per-report"``, or
        ``sites=10``: then the ``n`` rows are divided among as many sites, each with one report of its table.

    Examples
    --------
    >>> import eigenveil
    >>> found = eigenveil.simulate(p=10, k=2, n=20_000, epsilon=4, spike=20)
    >>> 0 < found["error_mean"] < 0.5
    True
    """
    reading, features = _pop_given(flags, _READING), flags.pop("features", None)
    path = _path("rows", rows)
    table: tuple[str, str, str | None] | None = None
    if path is not None:
        if {"keep", "drop"} <= reading.keys():
            raise InputError("keep and drop are both given; leave one out")
        if reading.get("first_index", 0) not in (0, 1):
            raise InputError("first_index must be 0 or 1")
        reading |= {name: _names(reading[name]) for name in ("keep", "drop") if name in reading}
        table = (path, _to_json(reading), _path("features", features))
    elif unused := [*reading, *(["features"] if features is not None else [])]:
        raise InputError(f"{unused[0]} is not used without rows")
    plot, title = _path("plot", flags.pop("plot", None)), flags.pop("title", None)
    if plot is None and title is not None:
        raise InputError("title is not used without plot")
    settings = _pop_given(flags, ["lambda", "rho", "refit", "max_iterations", "tolerance"])
    if settings and not sparse:
        raise InputError(f"{next(iter(settings))} is not used without sparse=True")
    lists = {"p": p, "n": n, "k": k, "epsilon": epsilon}
    lists |= {name: flags.pop(name, None) for name in ("s", "sites", "site_rows")}
    request: dict[str, Any] = {name: _listed(value) for name, value in lists.items()}
    request["model_settings"] = _pop_given(flags, ["spike", "inliers", "inlier_noise", "sign_noise"])
    request |= {"mechanism": mechanism, "repeats": repeats, "seed": seed, **flags}
    request |= {"model": model if rows is None else None, "sparse": settings if sparse else None}
    return _answered(*_core.simulate(_to_json(request), table, title, plot))


def _names(names: Any) -> Any:
    """Names of columns, given as one text, as on the command line, or as a sequence."""
    if not isinstance(names, str):
        return names
    return [name.strip() for name in next(csv.reader([names], skipinitialspace=True), [])]


def audit(
    *, p: int, epsilon: float, mechanism: str | None = None, trials: int = 100_000, **flags: Any
) -> dict[str, Any]:
    """Tries to distinguish pairs of rows (with ``max_rows``, of a site's tables) by their reports, and returns the lower
    bound on ε that this proves.

    Examples
    --------
    >>> import eigenveil
    >>> found = eigenveil.audit(p=4, epsilon=1, trials=2_000, pair="axes", randomness="seeded")
    >>> found["epsilon"]
    1.0
    """
    arguments = {"p": p, "epsilon": epsilon, "mechanism": mechanism, "trials": trials}
    return answer_request(_core.audit, {**arguments, **flags, "pair": _listed(flags.get("pair"))})


def prepare(
    rows: Any,
    *,
    k: int,
    n: int,
    epsilon: float,
    mechanism: str = "double-cap",
    delta: float | None = None,
    one_hot: Words | None = None,
    persons: Any = None,
) -> dict[str, Any]:
    """Makes the public constants of a study from **public** rows, and predicts the results of a study with them.

    Returns ``columns`` (each a feature with ``name``, ``center``, ``scale``, the reason, and ``scale_factor``, within
    which the scale of all people is), ``features`` (for :meth:`Analyst.create_study`), ``choices``, ``chosen``,
    ``for_correlations`` (the choice to take where correlations of the values are wanted, if it is another one) and
    ``warnings``. Where cells are missing the features have ``observed`` shares, and a ``section`` where columns lack
    cells together.

    Parameters
    ----------
    rows : data frame
        Public rows of the same kind, never the participants'.
    k, n : int
        Components wanted, participants expected.
    epsilon : float
        Of one report.
    one_hot : str or sequence of str, optional
        Columns of text that become one column of 0 and 1 for each value, or one, ``sex=m|f``, for two; ``country=NA``
        says that NA is a value of country, and not a missing one.
    persons : str or array, optional
        A column, or one label a row, that says whose a row is: persons count alike, however many rows they have.
    """
    found = getattr(rows, "column_names", None)
    names = list(found if found is not None else getattr(rows, "columns", []))
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError("the public rows need names of columns, which become those of the features; give a data frame")
    aside = [persons] if isinstance(persons, str) else []
    texts = [_rows.text(column, "one_hot") for column in _listed(one_hot) or []]
    expected = [f"{name}=" for name in texts]
    read = _rows.table(rows, aside=aside, expected=expected, what="the table of public rows")
    names = [name for name in names if name not in aside]
    persons = read.aside.get(persons) if isinstance(persons, str) else persons
    labels, _ = _rows.holders(rows, len(read.values), persons, None)
    request = _to_json({"k": k, "n": n, "epsilon": epsilon, "mechanism": mechanism, "delta": delta})
    columns = list((read.texts or {}).items())
    answer = _answered(*_core.prepare(request, names, read.values, columns, texts, labels))
    keys = ("name", "center", "scale", "observed", "section")
    answer["features"] = [{key: column[key] for key in keys if key in column} for column in answer["columns"]]
    return answer


def features_of(features: Any) -> list[dict[str, Any]] | None:
    """The features of a study, from any of the accepted forms."""
    return None if features is None else [_feature(item, at) for at, item in enumerate(listed_features(features), 1)]


def notices_of(features: list[Any] | None) -> list[dict[str, str]] | None:
    """What listed features mean to people."""
    notices = [_stated(item, at, ("label", "unit", "description")) for at, item in enumerate(features or [], 1)]
    notices = [{key: text for key, text in notice.items() if text} for notice in notices]
    return notices if any(notices) else None


def listed_features(features: Any) -> list[Any]:
    """The features as mappings, from any of the accepted forms."""
    way = "give a list of names, a frame with name, center and scale, or what eigenveil.prepare returns"
    if isinstance(features, Mapping):
        features = features.get("features")
        if features is None:
            raise InputError(f"features is a mapping without the key features; {way}")
    if hasattr(features, "to_pylist"):
        features = features.to_pylist()  # pyarrow's
    elif hasattr(features, "columns") and hasattr(features, "to_dict"):
        frame = features
        cells = {name: list(frame[name]) for name in frame.columns}
        features = [{name: cells[name][line] for name in cells} for line in range(len(frame))]
    if isinstance(features, (str, bytes)) or not isinstance(features, Iterable):
        raise InputError(f"features is {_rows.shown(features)}; {way}")
    return [{"name": item} if isinstance(item, str) else item for item in features]


def _feature(feature: Any, place: int) -> dict[str, Any]:
    """The constants of a feature, without missing ones, and with plain Python numbers."""
    if not isinstance(feature, Mapping) or not isinstance(feature.get("name"), str):
        raise InputError(f"feature {place} has no name; give names, or a frame or mappings with name, center and scale")
    return _stated(feature, place, ("name", "center", "scale", "observed", "section"))


def _stated(feature: Mapping[str, Any], place: int, keys: Sequence[str]) -> dict[str, Any]:
    """Those of these fields that a feature has."""
    out: dict[str, Any] = {}
    for key in keys:
        value = feature.get(key)
        if _rows.is_missing(value):
            continue
        called = f"{key} of feature {place}"
        is_number = key in ("center", "scale", "observed")
        out[key] = _rows.number(value, called) if is_number else _rows.text(value, called)
    return out
