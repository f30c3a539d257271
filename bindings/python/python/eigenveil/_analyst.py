"""Running studies: creating them, handing out tokens, estimating."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from numbers import Integral
from typing import Any, NoReturn

from . import _core
from ._command import features_of
from ._estimate import Estimate
from ._participant import Connection, Study
from .errors import EigenveilError, InputError

_log = logging.getLogger("eigenveil")
_MOST_WITH_MOMENT = 1000
# Of Ctrl-C, which does not wait for a server that does not answer.
_CANCEL_WITHIN = 0.3


class Analyst:
    """Whoever runs studies, or reads their estimates.

    Parameters
    ----------
    url : str
        Address of the server.
    token : str
        The operator's token, or an analyst's, who can only read estimates.
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
        self._core = _core.Analyst(url, token, connection)
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
        last_day: str | None = None,
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
            Components of an estimate that does not say.
        bound_rows, radius
            ``"normalize"``, ``"clip"`` or ``"require"``, the latter two at the radius.
        centring : float, optional
            Constant of private centring, 0.01 to 1: the mean is estimated and removed.
        weights, mean_weight
            Participants count by private weights; their public mean.
        enrolment : str
            ``"open"``, or ``"token"``: one report for each of :meth:`tokens`.
        purpose, responsible_party, contact, last_day : str, optional
            What participants are told; fixed with the study. ``last_day`` as ``"2027-03-31"``.
        """
        own = features_of(features)
        if dimension is None and own is None:
            raise InputError("give features or dimension", "invalid-dimension")
        if own is not None and dimension not in (None, len(own)):
            raise InputError(f"dimension is {dimension}, and there are {len(own)} features", "invalid-dimension")
        about = {
            "purpose": purpose,
            "responsible_party": responsible_party,
            "contact": contact,
            "last_day": last_day,
        }
        design = {
            "name": name,
            "dimension": dimension if own is None else len(own),
            "features": own,
            "norm": norm(bound_rows, radius),
            "centring": centring,
            "weights": {"mean": mean_weight} if weights else None,
            "mechanism": mechanism,
            "calibration": calibration,
            "epsilon": float(epsilon),
            "delta": delta,
            "default_k": _count(k),
            "draft": draft,
            "enrolment": enrolment,
            "about": {key: value for key, value in about.items() if value is not None},
        }
        if design["weights"] is None:
            del design["weights"]
        study = self._study(self._core.create_study(to_json(design)))
        _log.info("created %r", study)
        return study

    def _study(self, document: str) -> Study:
        return Study.from_document(document, self.url)

    def study(self, id: str) -> Study:
        """The study of this identifier."""
        return self._study(self._core.study(id))

    def studies(self) -> list[dict[str, Any]]:
        """All studies, oldest first: ``id``, ``name``, ``state``, ``reports_accepted``, …"""
        found: list[dict[str, Any]] = json.loads(self._core.studies())
        return found

    def reports_accepted(self, study: Study | str) -> int:
        """Distinct reports that the study has."""
        return int(json.loads(self._core.study(_id(study)))["reports_accepted"])

    def open(self, study: Study | str) -> Study:
        """Opens a draft: it takes reports from now on."""
        return self._study(self._core.open(_id(study)))

    def close(self, study: Study | str) -> Study:
        """Closes a study: it takes no more reports."""
        return self._study(self._core.close(_id(study)))

    def delete(self, study: Study | str) -> None:
        """Deletes a study that is not open, with its reports and estimates, for good."""
        self._core.delete(_id(study))

    def tokens(self, study: Study | str, count: int) -> list[str]:
        """Makes one-time tokens, for a study with ``enrolment="token"``. Nobody can ask for them again."""
        return self._core.tokens(_id(study), count)

    def token_counts(self, study: Study | str) -> dict[str, int]:
        """``issued`` and ``spent``."""
        found: dict[str, int] = json.loads(self._core.token_counts(_id(study)))
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
        """Estimates the principal subspace from the reports that are there, at no further ε.

        Parameters
        ----------
        k : int, "auto" or None
            Components; ``"auto"`` are those before the last gap that noise does not explain, ``None`` the study's own.
        sparse : bool or dict
            Row-sparse components; as a dict with ``lambda`` (``"auto"``, ``"cv"``, ``"path"`` or a number), ``rho``,
            ``refit``, ``max_iterations``, ``tolerance``.
        moment : bool, optional
            Whether the estimate has covariances and correlations; by default where the server can give them (at most
            1,000 features, and neither missing cells nor weights).
        timeout : float
            Longest wait in seconds. Ctrl-C cancels the estimate on the server, if it answers within 0.3 s.
        """
        id = _id(study)
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
        raise TypeError("an Analyst holds a token, which a pickle would show: make it where it is used, Analyst(url, token)")

    def __repr__(self) -> str:
        return f"Analyst({self.url!r})"


def _id(study: Study | str) -> str:
    return study if isinstance(study, str) else study.id


def norm(bound_rows: str, radius: float | None) -> dict[str, Any]:
    """The JSON of how a row is brought into the unit ball."""
    if bound_rows == "normalize":
        if radius is not None:
            raise InputError(f"radius {radius} is not used with bound_rows='normalize'; leave it out, or give 'clip'")
        return {"kind": "normalize"}
    if bound_rows in ("clip", "require"):
        return {"kind": bound_rows, "radius": 1.0 if radius is None else float(radius)}
    raise InputError(f"bound_rows is {bound_rows!r}; it must be 'normalize', 'clip' or 'require'")


def estimate_request(k: int | str | None, sparse: bool | dict[str, Any], moment: bool) -> str:
    """The JSON of a request for an estimate."""
    settings = (dict(sparse) if isinstance(sparse, dict) else {}) if sparse else None
    return to_json({"k": _count(k), "sparse": settings, "moment": moment})


def _count(k: int | str | None) -> int | str | None:
    if isinstance(k, Integral) and int(k) >= 0:
        return int(k)
    if k is None or k == "auto":
        return k
    raise InputError(f"the number of components is {k!r}; it must be a whole number or 'auto'", "invalid-request")


def to_json(document: dict[str, Any]) -> str:
    """JSON, in which no number may be missing."""
    try:
        return json.dumps(document, allow_nan=False, default=_plain)
    except ValueError as error:
        raise InputError("a number is not finite; give a finite one") from error


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's own."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
