"""Running studies: creating them, handing out tokens, estimating."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import logging
from collections.abc import Mapping
from typing import Any, NoReturn

from . import _core, _rows
from ._command import features_of, listed_features, notices_of
from ._estimate import Estimate
from ._participant import Connection, Study, id_of, require_connection
from ._request import given, read_json, to_json
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
        mechanism: str | None = None,
        delta: float | None = None,
        calibration: str = "analytic",
        bound_rows: str = "normalize",
        radius: float | None = None,
        centring: float | None = None,
        weights: bool = False,
        mean_weight: float | None = None,
        enrolment: str | None = None,
        purpose: str | None = None,
        responsible_party: str | None = None,
        contact: str | None = None,
        last_day: str | datetime.date | None = None,
        draft: bool = False,
        sites: dict[str, Any] | None = None,
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
            :func:`prepare` returned: public constants, never from the participants' rows. A study with ``observed``
            shares, or with weights, gives components, and no correlations or regressions. Columns ``label``, ``unit``
            and ``description`` tell participants what a feature means.
        dimension : int
            Numbers in a row, where there are no features.
        k : int or "auto"
            Default number of components of an estimate.
        mechanism : str
            ``"double-cap"`` (the default), ``"isotropic-gaussian"``, ``"symmetric-gaussian"`` or
            ``"discrete-gaussian"`` (the default of a study of sites).
        calibration : str
            ``"analytic"``, or ``"as-published"``, whose claim does not hold.
        bound_rows, radius
            How a row is brought into the unit ball: ``"normalize"``, ``"clip"`` or ``"require"`` at the radius.
        centring : float, optional
            Constant of private centring, 0.01 to 1: the mean is estimated and removed. A study of sites has it, unless
            it is 0.
        weights, mean_weight
            Whether participants have private weights; the public mean of the weights.
        enrolment : str
            ``"open"``, or ``"token"``: one report for each of :meth:`tokens`. A study of sites has the latter.
        purpose, responsible_party, contact, last_day : str, optional
            What participants are told; fixed with the study. ``last_day`` as ``"2027-03-31"`` or a date.
        sites : dict, optional
            Each report is a site's table (:func:`site_report`): ``max_rows``, the most rows of a table, and if you want
            ``min_rows``, ``rows_per_person`` (then persons are protected, of whom so many rows count) and
            ``site_weights``, ``"rows"`` or ``"precision"``.
        """
        features = None if features is None else listed_features(features)
        request = {**locals(), "features": features_of(features), "feature_notices": notices_of(features)}
        del request["self"]
        if k is None:
            raise InputError("k is None; it must be a whole number or 'auto'", "invalid-request")
        if isinstance(last_day, datetime.date):
            request["last_day"] = f"{last_day:%Y-%m-%d}"
        study = self._study(self._core.create_study(to_json(request)))
        _log.info("created %r", study)
        return study

    def create_preparation(
        self,
        name: str,
        columns: Mapping[str, str],
        *,
        epsilon: float,
        enrolment: str | None = None,
        purpose: str | None = None,
        responsible_party: str | None = None,
        contact: str | None = None,
        last_day: str | datetime.date | None = None,
        draft: bool = False,
    ) -> Study:
        """Creates a preparation, which finds centers and scales without public rows.

        Each participant answers one question about one column, drawn on the device before the row is looked at.
        :func:`report` and :meth:`Device.participate` take part as in any study; :meth:`prepare` has what was found.

        Parameters
        ----------
        name : str
            Shown to people.
        columns : mapping
            Columns of a row by name, and of each ``"number LO HI"`` (the range that you expect), ``"yes-no"`` or
            ``"categories A|B|C"``, with ``may-be-missing`` behind it where cells may be missing. A column of categories
            becomes a feature ``column=category`` for each, as in :func:`prepare`.
        epsilon : float
            Of one report; delta is 0.
        enrolment, purpose, responsible_party, contact, last_day, draft
            As in :meth:`create_study`.
        """
        named = columns.items()
        kinds = [(_rows.text(column, "the name of a column"), _rows.text(kind, "a column")) for column, kind in named]
        arguments = _preparation(name, epsilon, enrolment, purpose, responsible_party, contact, last_day, draft)
        return self._study(self._core.create_preparation(kinds, to_json(arguments)))

    def create_second_round(
        self,
        name: str,
        first: Study | str,
        *,
        enrolment: str | None = None,
        purpose: str | None = None,
        responsible_party: str | None = None,
        contact: str | None = None,
        last_day: str | datetime.date | None = None,
        draft: bool = False,
    ) -> Study:
        """Creates the second round of a preparation, for other people, in the intervals that the first one has found.

        Whoever took part in the first round is refused by their ledger; :meth:`prepare` takes both rounds together.
        What is not given is as in the first round, but there is no last day.
        """
        arguments = _preparation(name, None, enrolment, purpose, responsible_party, contact, last_day, draft)
        return self._study(self._core.create_second_round(id_of(first), to_json(arguments)))

    def prepare(self, study: Study | str) -> dict[str, Any]:
        """The constants that a preparation (of two rounds: the second one) has found.

        Returns
        -------
        dict
            ``features``, which :meth:`create_study` takes as they are; ``columns``, what was found of each, with errors
            and ``messages`` to look at; ``warnings``; ``people`` of each round. The features' descriptions tell
            participants where center and scale come from.
        """
        found: dict[str, Any] = json.loads(self._core.prepare(id_of(study)))
        return found

    def _study(self, text: str) -> Study:
        return Study.from_document(text, self.url)

    def study(self, id: str) -> Study:
        """The study of this identifier (or the first four digits or more of it), or of this name.

        Wherever a study is asked for, a text is read like this; several studies of one name are an ``InputError``.
        """
        return self._study(self._core.study(id_of(id)))

    def studies(self) -> list[dict[str, Any]]:
        """All studies, oldest first: ``id``, ``name``, ``state``, ``reports_accepted``, …"""
        found: list[dict[str, Any]] = json.loads(self._core.studies())
        return found

    def reports_accepted(self, study: Study | str) -> int:
        """The number of distinct reports accepted so far."""
        return int(read_json(self._core.study(id_of(study)))["reports_accepted"])

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
        """Makes up to ten million one-time tokens of a study with ``enrolment="token"``; they are shown only here."""
        if not 0 <= _rows.number(count, "count") <= _MOST_TOKENS or int(count) != count:
            raise InputError(f"count is {count}; it must be a whole number, at most {_MOST_TOKENS}: ask again for more")
        return self._core.tokens(id_of(study), int(count))

    def site_tokens(self, study: Study | str, sites: Mapping[str, int | None]) -> dict[str, str]:
        """Makes a one-time token for each of these sites of a study of sites, by name; they are shown only here.

        The number is that of the most rows (persons, where persons are protected) that you believe the site to have;
        ``None``: as many as the study allows.
        """
        wanted = [(_rows.text(site, "the name of a site"), most) for site, most in sites.items()]
        return dict(zip(sites, self._core.site_tokens(id_of(study), wanted), strict=True))

    def token_counts(self, study: Study | str) -> dict[str, Any]:
        """``issued`` and ``spent``; in a study of sites also ``sites``, the token of each."""
        return read_json(self._core.token_counts(id_of(study)))

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
        if not 0 <= _rows.number(timeout, "timeout") <= _LONGEST_WAIT:
            raise InputError(f"timeout is {timeout:g} s; it must be from 0 to {_LONGEST_WAIT:g}")
        described = study if isinstance(study, Study) else self.study(study)
        id = described.id
        if moment is None:
            plain = not (described._checked.allows_missing_cells or described._checked.has_weights)
            moment = plain and described.dimension <= _MOST_WITH_MOMENT and not sparse
        options = {"k": k, "sparse": {} if sparse is True else sparse, "moment": moment}
        number = self._core.request_estimate(id, to_json(options))
        _log.info("requested estimate %d of study %s", number, id)
        try:
            return Estimate(self._core.wait_for_estimate(id, number, timeout))
        except KeyboardInterrupt:
            with contextlib.suppress(EigenveilError):
                self._canceller.cancel_estimate(id, number)
            raise

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Analyst holds a token, which a pickle would reveal; make it where it is used, by its url")

    def __repr__(self) -> str:
        return f"Analyst({self.url!r})"


def _preparation(
    name: str,
    epsilon: float | None,
    enrolment: str | None,
    purpose: str | None,
    responsible_party: str | None,
    contact: str | None,
    last_day: str | datetime.date | None,
    draft: bool,
) -> dict[str, Any]:
    """The fields of a request for a preparation, beside its columns."""
    if isinstance(last_day, datetime.date):
        last_day = f"{last_day:%Y-%m-%d}"
    notice = {"purpose": purpose, "responsible_party": responsible_party, "contact": contact, "last_day": last_day}
    return {"name": name, "epsilon": epsilon, "enrolment": enrolment, "draft": draft, "about": given(notice)}
