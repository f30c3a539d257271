"""Commands of the command line as functions: their flags are keyword arguments, their JSON is what they return."""

from __future__ import annotations

import json
import numbers
import os
import re
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core, _rows
from .errors import EigenveilError, InputError

if TYPE_CHECKING:
    from ._estimate import Estimate

Numbers = float | Sequence[float]
Words = str | Sequence[str]
# Flags whose value is a file. Whatever else was given is not printed: it may be rows.
_PATHS = ("rows", "pilot", "features", "description", "plot", "out")


class EigenveilWarning(UserWarning):
    """What a command would print as a note or a warning on standard error."""


def run(command: str, **flags: Any) -> dict[str, Any]:
    """Runs ``eigenveil COMMAND --json`` in this process. ``some_flag=x`` is ``--some-flag x``."""
    words = ["eigenveil", command]
    for name, value in flags.items():
        if value is None or value is False:
            continue
        flag = "--" + name.replace("_", "-")
        if value is True and name not in _PATHS:
            words.append(flag)
        elif name == "centring":
            words.append(f"{flag}={_word(name, value)}")
        else:
            words += [flag, _path(name, value) if name in _PATHS else _words(name, value)]
    try:
        answer, notes = _core.answer(words)
    except EigenveilError as error:
        raise type(error)(in_python(str(error)), error.code, error.values) from None
    for note in notes:
        warnings.warn(in_python(note.removeprefix("warning: ").removeprefix("note: ")), EigenveilWarning, stacklevel=3)
    found: dict[str, Any] = json.loads(answer)
    return found


def _path(name: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        instead = {"rows": ", or LocalDPPCA the rows that you hold", "pilot": ", or an Estimate"}.get(name, "")
        raise InputError(f"{name} is a {type(value).__name__}; give the path of a file{instead}")
    return os.fsdecode(value)


def _words(name: str, value: Any) -> str:
    many = isinstance(value, Iterable) and not isinstance(value, str) and getattr(value, "ndim", 1) == 1
    return ",".join(_word(name, own) for own in value) if many else _word(name, value)


def _word(name: str, value: Any) -> str:
    if not isinstance(value, (str, numbers.Number, np.generic)):
        raise InputError(f"{name} has a {type(value).__name__} where a number or a word must be; give one, or a list")
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
    return str(value)


def in_python(sentence: str) -> str:
    """``--some-flag`` as ``some_flag``, and nothing of the command line's usage."""
    sentence = re.sub(r"^error: ", "", sentence)
    sentence = re.sub(r"\n\n(Usage:|For more information).*", "", sentence, flags=re.DOTALL)
    sentence = re.sub(r"(--[a-z-]+) <[^>]*>", r"\1", sentence)
    sentence = sentence.replace("invalid digit found in string", "it must be a whole number")
    return re.sub(r"--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), sentence)


def account(
    *,
    epsilon: float | None = None,
    mechanism: str = "double-cap",
    delta: float | None = None,
    studies: int = 1,
    p: int = 40,
    sigma: float | None = None,
    sensitivity: float | None = None,
    calibration: str = "analytic",
) -> dict[str, Any]:
    """The privacy cost of one report, or of one in each of several studies.

    Parameters
    ----------
    epsilon : float
        What is claimed for one report; or ``sigma`` and ``sensitivity`` of any Gaussian release.
    studies : int
        Studies that one participant takes part in.
    delta : float, optional
        At which ε is computed, 1e-6 by default; not for ``double-cap``, whose δ is 0.

    Returns
    -------
    dict
        ``true_epsilon``, ``composed_epsilon``, ``sum_epsilon``, … All are rounded up.

    Examples
    --------
    >>> import eigenveil
    >>> round(eigenveil.account(epsilon=4, studies=5)["composed_pure_epsilon"], 4)
    20.0
    """
    return run(
        "account",
        epsilon=epsilon,
        mechanism=mechanism,
        delta=delta,
        studies=studies,
        p=p,
        sigma=sigma,
        sensitivity=sensitivity,
        calibration=calibration,
    )


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
    """How many participants an error needs, or the error to expect with so many, for every mechanism.

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
        Others of ``eigenveil plan --help``, such as ``bound_rows="clip"``.

    Returns
    -------
    dict
        ``rows``: one for each mechanism and ε, with ``n``, ``error``, ``true_epsilon``, ``report_bytes``.

    Examples
    --------
    >>> import eigenveil
    >>> planned = eigenveil.plan(p=40, k=2, spectrum=[0.3, 0.2], epsilon=4, target_error=0.3, mechanism="double-cap")
    >>> planned["rows"][0]["n"] < 20_000
    True
    """
    # It imports this module.
    from ._estimate import Estimate

    if n is None and target_error is None:
        raise InputError("plan needs n, the participants expected, or target_error")
    own = {"p": p, "k": k, "spectrum": spectrum, "n": n, "target_error": target_error, "delta": delta}
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(pilot, Estimate):
            path = os.path.join(folder, "estimate.json")
            pilot.save(path)
            pilot = path
        return run("plan", epsilon=epsilon, mechanism=mechanism, pilot=pilot, **own, **flags)


def simulate(
    *,
    n: int | Sequence[int],
    k: int | Sequence[int],
    epsilon: Numbers,
    model: str = "spiked",
    p: int | Sequence[int] | None = None,
    rows: str | os.PathLike[str] | None = None,
    mechanism: str = "double-cap",
    repeats: int = 1,
    seed: int = 1,
    sparse: bool = False,
    **flags: Any,
) -> dict[str, Any]:
    """Runs studies on a population whose true subspace is known; a simulation protects nobody.

    Parameters
    ----------
    n, k, epsilon, p : number or sequence
        Participants, components, ε of a report, dimension. Several values make a sweep.
    model : str
        ``"spiked"``, ``"sparse"`` (with ``s``), ``"wang-xu"``, ``"haystack"`` or ``"plus-minus"``.
    rows : path, optional
        A table to draw participants from instead of a model. For an array that you hold see :class:`LocalDPPCA`.
    **flags
        Others of ``eigenveil simulate --help``, such as ``spike=20``, ``s=15``, ``noise="per-report"``.

    Returns
    -------
    dict
        ``error_mean``, ``error_predicted_from_truth``, ``nonprivate_error``, …; with several settings ``rows`` of them.

    Examples
    --------
    >>> import eigenveil
    >>> found = eigenveil.simulate(p=10, k=2, n=20_000, epsilon=4, spike=20)
    >>> 0 < found["error_mean"] < 0.5
    True
    """
    return run(
        "simulate",
        model=None if rows is not None else model,
        rows=rows,
        p=p,
        n=n,
        k=k,
        epsilon=epsilon,
        mechanism=mechanism,
        repeats=repeats,
        seed=seed,
        sparse=sparse,
        **flags,
    )


def audit(
    *, p: int, epsilon: float, mechanism: str = "double-cap", trials: int = 100_000, **flags: Any
) -> dict[str, Any]:
    """Tries to tell pairs of rows apart by their reports, and gives the ε that this proves.

    Examples
    --------
    >>> import eigenveil
    >>> found = eigenveil.audit(p=4, epsilon=1, trials=2_000, pair="axes", randomness="seeded")
    >>> found["epsilon"]
    1.0
    """
    return run("audit", p=p, epsilon=epsilon, mechanism=mechanism, trials=trials, **flags)


def prepare(
    rows: Any,
    *,
    k: int,
    n: int,
    epsilon: float,
    mechanism: str = "double-cap",
    delta: float | None = None,
    one_hot: Words | None = None,
) -> dict[str, Any]:
    """Makes the public constants of a study from **public** rows, and says what a study would get with them.

    Parameters
    ----------
    rows : data frame
        Public rows of the same kind, never the participants'. They are written to a temporary file.
    k, n : int
        Components wanted, participants expected.
    epsilon : float
        Of one report.
    one_hot : str or sequence of str, optional
        Columns of text that become one column of 0 and 1 for each value.

    Returns
    -------
    dict
        ``columns`` (each a feature with ``name``, ``center``, ``scale`` and the reason), ``features`` (for
        :meth:`Analyst.create_study`), ``choices``, ``chosen`` and ``warnings``.
    """
    columns = getattr(rows, "column_names", None)
    names = list(columns if columns is not None else getattr(rows, "columns", []))
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError("the public rows need names of columns, which become those of the features; give a data frame")
    texts = [] if one_hot is None else [one_hot] if isinstance(one_hot, str) else list(one_hot)
    for own in texts:
        _rows.text(own, "one_hot")
    with tempfile.TemporaryDirectory() as folder:
        path, out = os.path.join(folder, "public.csv"), os.path.join(folder, "features.csv")
        _write_csv(path, rows, names, texts)
        try:
            found = run(
                "prepare", rows=path, out=out, k=k, n=n, epsilon=epsilon, mechanism=mechanism, delta=delta,
                header="yes", one_hot=texts or None,
            )  # fmt: skip
        except EigenveilError as error:
            # The caller does not know this file.
            sentence = str(error).replace(path, "the public rows, written as CSV")
            raise type(error)(sentence, error.code, error.values) from None
    del found["out"]
    keys = ("name", "center", "scale", "observed", "section")
    found["features"] = [{key: own[key] for key in keys if key in own} for own in found["columns"]]
    return found


def _write_csv(path: str, rows: Any, names: Sequence[str], texts: Sequence[str]) -> None:
    import csv

    read = _rows.table(rows, aside=[name for name in names if name in texts], what="the table of public rows")
    numbers = dict(zip(read.names or [], read.values.T, strict=True))
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        columns: list[Any] = [_rows.cells(read.aside[name]) if name in texts else numbers[name] for name in names]
        for place, row in enumerate(zip(*columns, strict=True)):
            line = ["" if _rows.is_missing(cell) else cell for cell in row]
            for name, cell in zip(names, line, strict=True):
                if name in texts and len(str(cell).splitlines()) > 1:
                    raise InputError(
                        f"column {name!r} has a line break in row {place + 1}; replace it, as its texts become names"
                    )
            writer.writerow(line)


def features_of(features: Any) -> list[dict[str, Any]] | None:
    """The features of a study, from whatever says them."""
    if features is None:
        return None
    if isinstance(features, Mapping):
        own = features.get("features")
        if own is None:
            raise InputError("a mapping of features is what eigenveil.prepare returns; give that, or a list")
        features = own
    if hasattr(features, "to_pylist"):
        features = features.to_pylist()  # pyarrow's
    elif hasattr(features, "columns") and hasattr(features, "to_dict"):
        frame = features
        cells = {name: list(frame[name]) for name in frame.columns}
        features = [{name: cells[name][line] for name in cells} for line in range(len(frame))]
    if isinstance(features, (str, bytes)) or not isinstance(features, Iterable):
        raise InputError(
            f"features is {_rows.shown(features)}; give a list of names, a frame with name, center and scale, or what "
            "eigenveil.prepare returns"
        )
    return [{"name": str(own)} if isinstance(own, str) else _plain(own, place) for place, own in enumerate(features, 1)]


def _plain(feature: Any, place: int) -> dict[str, Any]:
    """What a study has of a feature, without what is missing, and with Python's own numbers."""
    if not isinstance(feature, Mapping) or not isinstance(feature.get("name"), str):
        raise InputError(
            f"feature {place} has no name; give names, or each feature's name, center and scale, as a frame or mappings"
        )
    out: dict[str, Any] = {}
    for key in ("name", "center", "scale", "observed", "section"):
        value = feature.get(key)
        if _rows.is_missing(value):
            continue
        called = f"{key} of feature {place}"
        out[key] = _rows.text(value, called) if key in ("name", "section") else _rows.number(value, called)
    return out
