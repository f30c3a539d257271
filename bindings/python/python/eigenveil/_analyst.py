"""Running studies: creating them, handing out tokens, estimating."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import logging
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, NoReturn

from . import _core, _rows
from ._command import account, features_of
from ._estimate import Estimate
from ._participant import Connection, Study, id_of, require_connection, to_json
from .errors import EigenveilError, InputError

_log = logging.getLogger("eigenveil")
_MOST_WITH_MOMENT = 1000
# Time limit for the cancel request sent on Ctrl-C.
_CANCEL_WITHIN = 0.3
# Thirty years.
_LONGEST_WAIT = 1e9
_MOST_TOKENS = 10_000_000


class Analyst:
    """Whoever runs studies and asks for estimates.

    Parameters
    ----------
    url : str
        Address of the server.
    token : str
        The operator's token. An analyst's token does not work here: it can only read existing estimates
        (``eigenveil estimate --job N --out DIR``, then :meth:`Estimate.load`).
    connection : Connection, optional

    Examples
    --------
    >>> import eigenveil
    >>> with eigenveil.serve() as server:
    ...     analyst = eigenveil.Analyst(server.url, server.token)
    ...     study = analyst.create_study("heights", features=["height", "weight"], epsilon=4)
    ...     study.feature_names, study.is_open
    (['height', 'weight'], True)
    """

    def __init__(self, url: str, token: str, *, connection: Connection | None = None) -> None:
        self.url = url
        self._core = _core.Analyst(url, token, require_connection(connection))
        brief = dataclasses.replace(connection or Connection(), timeout=_CANCEL_WITHIN, retry_for=0.0)
        self._canceller = _core.Analyst(url, token, brief)

    def create_study(
        self,
        name: str,
        *,
        epsilon: float,
        features: Any = None,
        dimension: int | None = None,
        k: int | str = "auto",
        mechanism: str = "double-cap",
        delta: float | None = None,
        calibration: str = "analytic",
        bound_rows: str = "normalize",
        radius: float | None = None,
        centring: float | None = None,
        weights: bool = False,
        mean_weight: float | None = None,
        enrolment: str = "open",
        purpose: str | None = None,
        responsible_party: str | None = None,
        contact: str | None = None,
        last_day: str | datetime.date | None = None,
        draft: bool = False,
    ) -> Study:
        """Creates a study and opens it (unless it is to be a draft).

        Parameters
        ----------
        name : str
            Shown to people.
        epsilon, delta : float
            Of one report; ``delta`` for the Gaussian mechanisms only.
        features : optional
            Names, or a frame with the columns ``name``, ``center``, ``scale`` (and ``observed``, ``section``), or what
            :func:`prepare` returned: public constants, never from the participants' rows.
        dimension : int
            Numbers in a row, where there are no features.
        k : int or "auto"
            Default number of components of an estimate.
        bound_rows, radius
            ``"normalize"``, ``"clip"`` or ``"require"``, the latter two at the radius.
        centring : float, optional
            Constant of private centring, 0.01 to 1: the mean is estimated and removed.
        weights, mean_weight
            Whether participants have private weights; the public mean of the weights.
        enrolment : str
            ``"open"``, or ``"token"``: one report for each of :meth:`tokens`.
        purpose, responsible_party, contact, last_day : str, optional
            What participants are told; fixed with the study. ``last_day`` as ``"2027-03-31"`` or a date.
        """
        own = features_of(features)
        if dimension is None and own is None:
            raise InputError("give features or dimension", "invalid-dimension")
        if own is not None and dimension not in (None, len(own)):
            raise InputError(f"dimension is {dimension}, and there are {len(own)} features", "invalid-dimension")
        if k is None:
            raise InputError("k is None; it must be a whole number or 'auto'", "invalid-request")
        about = {
            "purpose": purpose,
            "responsible_party": responsible_party,
            "contact": contact,
            "last_day": last_day if last_day is None else _day(last_day),
        }
        design = designed(
            name=_rows.text(name, "name"),
            dimension=_rows.whole(dimension, "dimension") if own is None else len(own),
            features=own,
            bound_rows=bound_rows,
            radius=radius,
            centring=centring,
            mechanism=mechanism,
            calibration=calibration,
            epsilon=epsilon,
            delta=delta,
            weights=_rows.switch(weights, "weights"),
            mean_weight=mean_weight,
        )
        design["default_k"] = _count(k)
        design["draft"] = _rows.switch(draft, "draft")
        design["enrolment"] = _rows.word(enrolment, "enrolment", ["open", "token"])
        design["about"] = {key: _rows.text(value, key) for key, value in about.items() if value is not None}
        with explain_unknown_words(design):
            study = self._study(self._core.create_study(to_json(design)))
        _log.info("created %r", study)
        return study

    def _study(self, document: str) -> Study:
        return Study.from_document(document, self.url)

    def study(self, id: str) -> Study:
        """The study of this identifier."""
        return self._study(self._core.study(id_of(id)))

    def studies(self) -> list[dict[str, Any]]:
        """All studies, oldest first: ``id``, ``name``, ``state``, ``reports_accepted``, …"""
        found: list[dict[str, Any]] = json.loads(self._core.studies())
        return found

    def reports_accepted(self, study: Study | str) -> int:
        """The number of distinct reports accepted so far."""
        return int(json.loads(self._core.study(id_of(study)))["reports_accepted"])

    def open(self, study: Study | str) -> Study:
        """Opens a draft: it takes reports from now on."""
        return self._study(self._core.open(id_of(study)))

    def close(self, study: Study | str) -> Study:
        """Closes a study: it takes no more reports."""
        return self._study(self._core.close(id_of(study)))

    def delete(self, study: Study | str) -> None:
        """Deletes a study that is not open, with its reports and estimates, for good."""
        self._core.delete(id_of(study))

    def tokens(self, study: Study | str, count: int) -> list[str]:
        """Makes up to ten million one-time tokens for a study with ``enrolment="token"``. They cannot be retrieved again.
        """
        if _rows.whole(count, "count") > _MOST_TOKENS:
            raise InputError(f"count is {count}; it must be at most {_MOST_TOKENS}: ask again for more")
        return self._core.tokens(id_of(study), count)

    def token_counts(self, study: Study | str) -> dict[str, int]:
        """``issued`` and ``spent``."""
        found: dict[str, int] = json.loads(self._core.token_counts(id_of(study)))
        return found

    def estimate(
        self,
        study: Study | str,
        k: int | str | None = "auto",
        *,
        sparse: bool | dict[str, Any] = False,
        moment: bool | None = None,
        timeout: float = 3600.0,
    ) -> Estimate:
        """Estimates the principal subspace from the reports received so far, at no additional privacy cost.

        Parameters
        ----------
        k : int, "auto" or None
            Number of components; ``"auto"``: those before the last gap that noise does not explain; ``None``: the
            study's default.
        sparse : bool or dict
            Row-sparse components; as a dict with ``lambda`` (``"auto"``, ``"cv"``, ``"path"`` or a number), ``rho``,
            ``refit``, ``max_iterations``, ``tolerance``.
        moment : bool, optional
            Whether the estimate includes covariances and correlations; by default it does if the server can provide
            them (at most 1,000 features, neither missing cells nor weights, not sparse).
        timeout : float
            Longest wait in seconds. Ctrl-C cancels the estimate on the server, if it answers within 0.3 s.
        """
        id = id_of(study)
        if not 0 <= _rows.number(timeout, "timeout") <= _LONGEST_WAIT:
            raise InputError(f"timeout is {timeout:g} s; it must be from 0 to {_LONGEST_WAIT:g}")
        if moment is None:
            own = study if isinstance(study, Study) else self.study(id)
            plain = not (own._checked.allows_missing_cells or own._checked.has_weights)
            moment = plain and own.dimension <= _MOST_WITH_MOMENT and not sparse
        number = self._core.request_estimate(id, estimate_request(k, sparse, moment))
        _log.info("requested estimate %d of study %s", number, id)
        try:
            return Estimate(self._core.wait_for_estimate(id, number, timeout))
        except KeyboardInterrupt:
            with contextlib.suppress(EigenveilError):
                self._canceller.cancel_estimate(id, number)
            raise

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Analyst holds a token, which a pickle would reveal; create it where it is used, with Analyst(url, token)")

    def __repr__(self) -> str:
        return f"Analyst({self.url!r})"


def designed(
    *,
    bound_rows: str,
    radius: float | None,
    centring: float | None,
    mechanism: str,
    calibration: str,
    epsilon: float,
    delta: float | None,
    weights: bool,
    mean_weight: float | None,
    **others: Any,
) -> dict[str, Any]:
    """The study design as a JSON-ready dict, with types checked."""
    if mean_weight is not None and not weights:
        given = _rows.shown(mean_weight)
        raise InputError(f"mean_weight is {given}, and there are no weights; leave it out, or give weights")
    design = {
        "norm": norm(bound_rows, radius),
        "centring": None if centring is None else _rows.number(centring, "centring"),
        "mechanism": _rows.text(mechanism, "mechanism"),
        "calibration": _rows.text(calibration, "calibration"),
        "epsilon": _rows.number(epsilon, "epsilon"),
        "delta": None if delta is None else _rows.number(delta, "delta"),
        **others,
    }
    if weights:
        design["weights"] = {"mean": None if mean_weight is None else _rows.number(mean_weight, "mean_weight")}
    return design


@contextlib.contextmanager
def explain_unknown_words(design: dict[str, Any]) -> Iterator[None]:
    """Replaces the error for an unknown word in a design by one that lists the known words, which are kept in the crates."""
    try:
        yield
    except InputError as error:
        if error.code == "malformed-json":
            account(epsilon=1, mechanism=design["mechanism"], calibration=design["calibration"])
        raise


def _day(day: str | datetime.date) -> str:
    """A date, as 2027-03-31."""
    try:
        return f"{day if isinstance(day, datetime.date) else datetime.date.fromisoformat(day):%Y-%m-%d}"
    except (TypeError, ValueError):
        raise InputError(f"last_day is {_rows.shown(day)}; it must be a date, as '2027-03-31'") from None


def norm(bound_rows: str, radius: float | None) -> dict[str, Any]:
    """The norm (how a row is brought into the unit ball) as a JSON-ready dict."""
    if _rows.word(bound_rows, "bound_rows", ["normalize", "clip", "require"]) == "normalize":
        if radius is not None:
            raise InputError(f"radius {radius} is not used with bound_rows='normalize'; leave it out, or give 'clip'")
        return {"kind": "normalize"}
    return {"kind": bound_rows, "radius": 1.0 if radius is None else _rows.number(radius, "radius")}


def estimate_request(k: int | str | None, sparse: bool | dict[str, Any], moment: bool) -> str:
    """The JSON of a request for an estimate."""
    settings = _sparse(sparse) if isinstance(sparse, dict) else {} if _rows.switch(sparse, "sparse") else None
    return to_json({"k": _count(k), "sparse": settings, "moment": _rows.switch(moment, "moment")})


def _sparse(given: dict[str, Any]) -> dict[str, Any] | None:
    """The settings of a sparse estimate, each checked for its type."""
    read: dict[str, Callable[[Any, str], Any]] = {"rho": _rows.number, "refit": _rows.switch}
    read |= {"max_iterations": _rows.whole, "tolerance": _rows.number}
    settings: dict[str, Any] = {}
    for key, value in given.items():
        if key == "lambda":
            is_word = isinstance(value, str) and value in ("auto", "cv", "path")
            kinds = "'auto', 'cv', 'path' or a number"
            settings[key] = value if is_word else _rows.number(value, "the penalty (lambda)", kinds)
        elif key in read:
            settings[key] = read[key](value, key)
        else:
            raise InputError(f"sparse has {key!r}; it can have lambda, rho, refit, max_iterations and tolerance")
    return settings or None


def _count(k: int | str | None) -> int | str | None:
    if isinstance(k, Integral) and 0 <= int(k) < 2**64:
        return int(k)
    if k is None or isinstance(k, str) and k == "auto":
        return k
    sentence = f"the number of components is {_rows.shown(k)}; it must be a whole number or 'auto'"
    raise InputError(sentence, "invalid-request")
