"""Taking part in studies: one device with one row, or a program that reports a table of rows."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from . import _core, _rows
from ._request import given, read_json, to_json
from .errors import InputError

# Never a value of a row, nor what depends on one, nor a token.
_log = logging.getLogger("eigenveil")

Path = str | os.PathLike[str]
Progress = bool | Callable[[int, int], object] | None


@dataclass(frozen=True)
class Connection:
    """Connection settings; the defaults suit most users.

    Parameters
    ----------
    ca_certificate : path, optional
        PEM file of a certificate to trust besides the system's.
    insecure_http : bool
        Whether ``http://`` to another machine is allowed; anyone on the network path can then read reports and tokens.
    proxy : str, optional
        Address of a proxy, or ``"none"``. By default the environment says (``HTTPS_PROXY``, ``NO_PROXY``).
    timeout : float
        Longest time for one attempt, in seconds.
    retry_for : float
        No new attempt begins later than this after the first, in seconds.
    """

    ca_certificate: Path | None = None
    insecure_http: bool = False
    # Not shown: it may hold a password.
    proxy: str | None = field(default=None, repr=False)
    timeout: float = 60.0
    retry_for: float = 60.0


def require_connection(connection: Connection | None) -> Connection | None:
    """The connection, if it is one."""
    if connection is not None and not isinstance(connection, Connection):
        raise InputError(f"connection is a {type(connection).__name__}; give an eigenveil.Connection")
    return connection


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Study(_rows.Copies):
    """A verified study: its parameters match the fingerprint and its noise satisfies the budget.

    Made by :meth:`fetch` or :meth:`from_document`.

    Attributes
    ----------
    id, name, url, fingerprint, mechanism, enrolment : str
    dimension : int
        Numbers in a row, p.
    feature_names : list of str, or None
    epsilon, delta : float
        What is claimed of one report; :attr:`privacy` has what holds.
    about : dict
        What the study says of itself: ``purpose``, ``responsible_party``, ``contact``, ``last_day``.
    sites : dict or None
        Of a study of sites, whose reports :func:`site_report` makes, the terms: ``min_rows``, ``max_rows``,
        ``rows_per_person`` where persons are protected, ``site_weights``.
    is_open : bool
        Whether it took reports when it was read, and its last day has not passed.
    """

    id: str
    name: str | None
    url: str
    fingerprint: str
    dimension: int
    feature_names: list[str] | None
    epsilon: float
    delta: float
    mechanism: str
    enrolment: str
    about: dict[str, Any]
    sites: dict[str, Any] | None
    if TYPE_CHECKING:  # No field: dataclasses.asdict has none of it.
        _checked: _core.Study

    def __init__(self, checked: _core.Study | None = None, *_: object, **__: object) -> None:
        if not isinstance(checked, _core.Study):
            raise TypeError("a study is made by Study.fetch, Study.from_document, Analyst.study or create_study")
        vars(self).update(read_json(checked.described()), _checked=checked)

    @classmethod
    def fetch(
        cls, url: str, id: str, fingerprint: str | None = None, *, connection: Connection | None = None
    ) -> Study:
        """Fetches a study from its server and checks it.

        Raises ``StudyError`` (``wrong-fingerprint``, ``study-not-found``, parameters whose noise does not keep the
        budget), ``InputError`` (several studies have the name) and ``ServerError`` (no answer).

        Parameters
        ----------
        url : str
            Address of the server, such as ``"https://study.example"``.
        id : str
            Identifier of the study (32 hexadecimal digits), the first four digits or more of it, or its name. A ledger
            that knows another study of this server by that beginning or name refuses this one
            (``already-participated``): give the whole identifier.
        fingerprint : str, optional
            The fingerprint that the study must have. Ship it with the program: without it a server could give each
            participant other constants and recognise its report by them.
        """
        study = cls(_core.Study.fetch(url, id, fingerprint, require_connection(connection)))
        _log.info("fetched %r", study)
        return study

    @classmethod
    def from_document(
        cls, document: str | bytes | Mapping[str, Any], url: str, fingerprint: str | None = None
    ) -> Study:
        """Checks a study's document (of ``GET /v1/studies/ID``) obtained by other means."""
        if not isinstance(document, bytes):
            document = (document if isinstance(document, str) else json.dumps(document)).encode()
        return cls(_core.Study.from_document(document, url, fingerprint))

    @property
    def is_open(self) -> bool:
        """Whether it took reports when it was read, and its last day has not passed."""
        return self._checked.is_open

    @property
    def privacy(self) -> dict[str, Any]:
        """What one report promises, worked out on this side; ``sentence`` says it in words."""
        return read_json(self._checked.privacy())

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return (Study.from_document, (self._checked.to_document(), self.url))

    def __repr__(self) -> str:
        return f"Study({self.id} at {self.url}, parameters {self.fingerprint})"


@dataclass(frozen=True)
class Participation:
    """What a ledger keeps of one study.

    Attributes
    ----------
    new : bool
        Whether this call made the report; otherwise the device took part before and the row was not looked at.
    study, report : str
        Identifiers.
    state : str
        ``"owed"``, ``"acknowledged"``, ``"refused"`` or ``"given-up"``.
    epsilon, delta : float
        The charge: the actual budget, never less than the claimed one.
    local_warning : str or None
        Why the row was sent as the zero row, if it was. **For the participant only**: it depends on the row.
    """

    new: bool
    study: str
    report: str
    state: Literal["owed", "acknowledged", "refused", "given-up"]
    epsilon: float
    delta: float
    local_warning: str | None = None


@dataclass(frozen=True)
class Sent(_rows.Copies):
    """What became of reports that were sent.

    Attributes
    ----------
    accepted, duplicates, refused, pending : int
        Reports counted now; counted earlier, because a response was lost; refused for good; still to be sent.
    failures : list of dict
        Why reports are still to be sent: ``url``, ``study``, ``code``, ``detail``, ``retryable``.
    bytes, retries, seconds
        What it took.
    """

    accepted: int
    duplicates: int
    refused: int
    pending: int
    failures: list[dict[str, Any]] = field(default_factory=list)
    bytes: int = 0
    retries: int = 0
    seconds: float = 0.0

    def _logged(self) -> Self:
        counts = (self.accepted, self.duplicates, self.refused, self.pending)
        _log.info("reports: %d accepted, %d duplicates, %d refused, %d still to be sent", *counts)
        for failure in self.failures:
            _log.warning("study %s: %s [%s]", failure["study"], failure["detail"], failure["code"])
        return self


@dataclass(frozen=True)
class GivenUp:
    """The reports of one study in a ledger, after those that no server had acknowledged were given up. ``str`` is for
    people.

    Attributes
    ----------
    study : str
        Identifier.
    given_up, acknowledged : int
        Reports never sent again from here; reports that the server has, which stay counted.
    epsilon, delta : float
        The charge of each row, or person, which stays: the server may have a report whose acknowledgement was lost.
    """

    study: str
    given_up: int
    acknowledged: int
    epsilon: float
    delta: float
    _text: str = field(repr=False)

    @classmethod
    def _of(cls, text: str, document: str) -> GivenUp:
        done = read_json(document)
        charged = done.pop("charged")
        _log.info("reports given up for study %s: %d", done["study"], done["given_up"])
        return cls(**done, **charged, _text=text)

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True, eq=False, repr=False)
class Receipt(_rows.Copies):
    """Which studies a ledger took part in, and what remains under its limits. ``str`` is for people.

    Attributes
    ----------
    limits : dict
    spent : dict
        ``epsilon`` and ``delta`` of all reports together, rounded up.
    remaining : dict
        What the limits leave, rounded down.
    studies : list of dict
        The studies, in the order in which the ledger took part.
    """

    limits: dict[str, float]
    spent: dict[str, float]
    remaining: dict[str, float]
    studies: list[dict[str, Any]]
    _text: str

    @classmethod
    def _of(cls, text: str, document: str) -> Receipt:
        return cls(**read_json(document), _text=text)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"limits": self.limits, "spent": self.spent, "remaining": self.remaining, "studies": self.studies}

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        count = len(self.studies)
        return f"Receipt({count} {'study' if count == 1 else 'studies'}, spent {self.spent})"


class Ledger:
    """The durable file of one device with one participant: which studies it reported to, and what it may spend.

    A study has no report of this device, or exactly one, which is charged and on the disk before anything is sent.
    Keep one file for the device's whole life. Raises ``LedgerError``: ``locked`` if another process (or another
    ``Ledger``) has it open, ``file`` if it is damaged or no ledger.

    Parameters
    ----------
    path : path
        The file. It is made, readable by its owner only, if it is not there.
    existing : bool
        Refuse to make a new one: use it once the ledger has been created. A lost ledger looks like a first run.

    Examples
    --------
    >>> import eigenveil, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "device.ledger")
    >>> with eigenveil.Ledger(path) as ledger:
    ...     print(ledger.receipt().remaining["epsilon"])
    16.01
    """

    def __init__(self, path: Path, *, existing: bool = False) -> None:
        self._core = _core.Ledger(path, existing)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ledger is a file that one process has open, and not pickled: open its path where it is used")

    def close(self) -> None:
        """Closes the file, so that another process can open it."""
        self._core.close()

    def take_part(
        self, study: Study, row: Any, *, weight: float | None = None, token: str | None = None
    ) -> Participation:
        """Perturbs the row and keeps its report, charged and durable; once per study, however often it is called.

        Raises, before anything is perturbed or charged, ``InputError`` (``wrong-dimension``, ``wrong-names``,
        ``invalid-dtype``, a text that is no token), ``LedgerError`` (``budget-exceeded``, ``already-participated``) and
        ``StudyError`` (``study-not-open``, ``study-ended``).

        Parameters
        ----------
        study : Study
        row : array of p numbers, or mapping, named tuple or pandas Series by feature name
            ``None``, NaN, ``pandas.NA`` and masked cells are missing cells. A row that cannot be used (a NaN where the
            study allows no missing cells, a cell that is no number) is sent as the zero row, so that taking part says
            nothing of the data; ``local_warning`` says so.
        weight : float, optional
            How much the row counts in a study with weights, above 0 and at most 1 (more counts as 1); protected with the
            row. Such a study is refused without one.
        token : str, optional
            The one-time token of a study that needs one.
        """
        checked = _checked(study)
        numbers = _rows.row(row, study.feature_names, f"study {study.id}")
        counts = None if weight is None else float(_rows.weights([weight], 1)[0])
        kept = read_json(self._core.take_part(checked, numbers, counts, None if token is None else _token(token)))
        _log.info("%s in study %s", "took part" if kept["new"] else "had taken part", study.id)
        return Participation(**kept)

    def set_token(self, study: Study | str, token: str) -> bool:
        """Keeps the one-time token of a report that is not acknowledged yet; returns whether it is still needed."""
        return self._core.set_token(id_of(study), _token(token))

    def give_up(self, study: Study | str) -> GivenUp:
        """Gives up the report of a study that no server has acknowledged: it is never sent, its charge stays, and no
        other report is made for this study. The server may have it already, if only its response was lost."""
        return GivenUp._of(*self._core.give_up(id_of(study)))

    def send(self, *, connection: Connection | None = None) -> Sent:
        """Sends what is pending, the same bytes each time; what cannot be sent now stays pending.

        An unreachable server is no exception: see ``failures``.
        """
        return Sent(**read_json(self._core.send(require_connection(connection))))._logged()

    def receipt(self) -> Receipt:
        """Which studies the device took part in, and what remains."""
        return Receipt._of(*self._core.receipt())

    def set_limits(
        self,
        *,
        epsilon_per_study: float | None = None,
        epsilon_total: float | None = None,
        delta_total: float | None = None,
    ) -> None:
        """Changes what the device may spend; what is not given stays."""
        self._core.set_limits(epsilon_per_study, epsilon_total, delta_total)

    def requeue_refused(self) -> int:
        """Sends refused reports again with the next :meth:`send`, unchanged; returns how many."""
        return self._core.requeue_refused()

    def accept_move(self, study: Study) -> None:
        """Records that a study is at another address now. Ask the participant first."""
        self._core.accept_move(_checked(study))


def id_of(study: Study | str) -> str:
    """The study's identifier; a string is returned unchanged."""
    if not isinstance(study, (str, Study)):
        raise InputError(f"the study is a {type(study).__name__}; give a Study or its id")
    return study if isinstance(study, str) else study.id


def _token(token: str) -> str:
    if not isinstance(token, str):
        raise InputError(f"the token is a {type(token).__name__}; give the text of it")
    return token


def _checked(study: Study) -> _core.Study:
    if not isinstance(study, Study):
        kind = type(study).__name__
        raise InputError(f"the study is a {kind}; give what Study.fetch or Analyst.study returned")
    return study._checked


@dataclass(frozen=True)
class Reported(Sent):
    """What became of a table's reports: as :class:`Sent`, where ``refused`` and ``pending`` are those of the study.

    Attributes
    ----------
    participants, prepared, acknowledged, given_up : int
        Rows or persons; those charged by this call; those that the server has; those given up before.
    unusable : int
        Of those prepared, how many were sent as the zero row. **For whoever holds the rows only.**
    epsilon, delta : float
        What each participant was charged.
    refusals : list of dict
        The first refused reports: ``row`` (from 0), ``code``, ``detail``.
    """

    participants: int = 0
    prepared: int = 0
    acknowledged: int = 0
    given_up: int = 0
    unusable: int = 0
    epsilon: float = 0.0
    delta: float = 0.0
    refusals: list[dict[str, Any]] = field(default_factory=list)


def report(
    study: Study,
    rows: Any,
    *,
    ledger: Path,
    persons: Any = None,
    weights: Any = None,
    tokens: Iterable[str] | None = None,
    same_participants: bool = False,
    moved: bool = False,
    accept_new_purpose: bool = False,
    resend_refused: bool = False,
    epsilon_per_study: float | None = None,
    epsilon_total: float | None = None,
    delta_total: float | None = None,
    connections: int = 4,
    progress: Progress = None,
    connection: Connection | None = None,
) -> Reported:
    """Perturbs each row of a table, one participant each, and uploads the reports.

    Each row is perturbed once, and its report is in the ledger before it is sent. Called again, it finishes what was
    interrupted, and counts no row twice: row *i* of every table used with a ledger is participant *i*.

    Raises ``InputError``, ``LedgerError``, ``StudyError`` or ``TokenError`` before anything is perturbed, charged or
    stored: tokens that are missing or the same, limits, another address or purpose, other rows, a closed study. With
    ``pending`` and ``acknowledged`` in its ``values``, a ``ServerError``, ``StudyError`` or ``TokenError`` says why
    reports are still to be sent: call it again to finish.

    Parameters
    ----------
    study : Study
    rows : array, or data frame (pandas, Polars, pyarrow, Arrow stream)
        n × p. Columns are matched with the study's features by name, in any order; an array is in the study's order.
        Cells that are null, NaN or masked are missing. Lists and columns of text or objects are read cell by cell, as
        in a file; a column of 20 cells or more is refused where more than half of them are no numbers, or none of the
        study's categories (never with ``persons``; in a preparation such a text is another category). How many cells
        are not used is logged before anything is charged.
    ledger : path
        File of what these participants have spent, made if it is not there. Keep it with the rows.
    persons : str or array, optional
        Column (or one label per row) that identifies the person of each row, as text or a whole number: one row of each
        person, drawn at random, is reported.
    weights : str or array, optional
        Column (or one number per row), above 0 and at most 1, in a study with weights; more counts as 1, so divide by
        the largest that there can be. A pandas Series, also as ``persons``, must have the index of a frame of rows.
    tokens : iterable of str, optional
        One-time tokens, one a participant; needed once.
    same_participants : bool
        The table has changed since earlier studies, but row *i* is still participant *i*. In a study that was begun
        the rows must be the same (``rows-changed``).
    moved, accept_new_purpose, resend_refused : bool
        Confirm that the study moved to a new address; accept a changed purpose; resend refused reports unchanged.
    epsilon_per_study, epsilon_total, delta_total : float, optional
        Changes what each row may spend in one study and in all.
    progress : bool or callable, optional
        ``True`` for a bar by tqdm; or called with ``(done, total)`` a few times a second.
    """
    checked = _checked(study)
    aside = [label for label in (persons, weights) if isinstance(label, str)]
    names = study.feature_names
    table = _rows.table(rows, aside=aside, expected=names)
    others = study.mechanism == "randomised-response"
    of = f"study {study.id}"
    values = _rows.ordered(table, names, of, reports=True, persons=persons is not None, others=others)
    n = len(values)
    if n == 0:
        raise InputError("the table has no rows; give at least one")
    persons = table.aside.get(persons) if isinstance(persons, str) else persons
    weights = table.aside.get(weights) if isinstance(weights, str) else weights
    holders = _rows.holders(rows, n, persons, weights)
    _rows.tell(values, holders[1], names)
    for sentence in _core.cell_notices(checked, values) if others else []:
        _log.warning("shown only to you: %s", sentence)
    arguments = {
        "same_participants": same_participants, "moved": moved, "accept_new_purpose": accept_new_purpose,
        "resend_refused": resend_refused, "connections": connections, "epsilon_per_study": epsilon_per_study,
        "epsilon_total": epsilon_total, "delta_total": delta_total,
    }  # fmt: skip
    with _told(progress) as told:
        answer = _core.report(
            ledger,
            checked,
            values,
            *holders,
            None if tokens is None else list(map(_token, tokens)),
            to_json(arguments),
            told,
            require_connection(connection),
        )
    done = read_json(answer)
    charged = done.pop("charged")
    done |= {"participants": done.pop("rows"), "prepared": charged["rows"]}
    done |= {"epsilon": charged["epsilon"], "delta": charged["delta"]}
    del done["study"]
    return Reported(**done)._logged()


@dataclass(frozen=True)
class SiteReported(_rows.Copies):
    """What a site's table would send, or has sent. **For the site only.**

    Attributes
    ----------
    rows, charged : int
        Rows of the table; rows, or persons where persons are protected, that a new report has (or would have).
    charged_before, beyond_cap : int
        Rows that are left out because their person was charged before, or has more rows than the study counts.
    unusable : int
        Rows that cannot be used and are in neither the sum nor the count.
    waiting : int
        Rows or persons that were never charged and are in no report before an earlier one has arrived or was given up.
    known_others : int
        Persons whom the ledger knows, if none of the table's is among them: if some were in an earlier table, their
        identifiers are spelled otherwise, and they would be charged again. Otherwise 0.
    sent : Sent or None
        What became of the report; ``None`` if it was not approved.
    acknowledged, given_up : int
        Reports of the site to the study that the server has; those given up before.
    epsilon, delta : float
        What each row, or person, of a new report was charged.
    refusals : list of dict
        Why the server refused a report: ``code``, ``detail``.
    """

    rows: int
    charged: int
    charged_before: int
    beyond_cap: int
    unusable: int
    waiting: int
    known_others: int
    sent: Sent | None = None
    acknowledged: int = 0
    given_up: int = 0
    epsilon: float = 0.0
    delta: float = 0.0
    refusals: list[dict[str, Any]] = field(default_factory=list)


def site_report(
    study: Study,
    rows: Any,
    *,
    site: str,
    token: str | None = None,
    ledger: Path,
    persons: Any = None,
    min_rows: int | None = None,
    approve: bool = False,
    same_participants: bool = False,
    moved: bool = False,
    accept_new_purpose: bool = False,
    resend_refused: bool = False,
    epsilon_per_study: float | None = None,
    epsilon_total: float | None = None,
    delta_total: float | None = None,
    progress: Progress = None,
    connection: Connection | None = None,
) -> SiteReported:
    """Reports a site's table to a study of sites: one report for all its rows.

    Every row, or person, is charged in the ledger before the report leaves, its noise is drawn once, and a further call
    sends the same bytes. With ``persons`` a later table may have the same persons again, in any order: those who were
    charged are left out, and the rest makes a report of its own, with a token of its own. Without, a table makes one
    report, and must stay as it is.

    No cell refuses the table. Call it first without ``approve``, which charges and sends nothing, and look at what is
    returned; how many cells are not used is logged, too.

    Raises ``InputError``, ``LedgerError``, ``StudyError`` or ``TokenError`` before anything is perturbed, charged or
    stored: a table beyond the study's bounds, a token that is missing, spent or another site's, limits, other rows.
    ``ServerError`` after that: the report is charged and still to be sent, so call it again.

    Parameters
    ----------
    study : Study
        One of sites.
    rows : array, or data frame (pandas, Polars, pyarrow, Arrow stream)
        n × p, matched with the study's features as by :func:`report`. Prepare a row by public constants and that row
        alone: the site's own means, scales or imputed values void the guarantee.
    site : str
        Name of the site, as its token has it.
    token : str, optional
        The site's one-time token, for a new report.
    ledger : path
        File of what these rows or persons have spent, the same one for all tables of the site.
    persons : str or array, optional
        Column (or one label per row) that identifies the person of each row, as text or a whole number, in a study that
        protects persons. The ledger has salted hashes of them.
    min_rows : int, optional
        Fewest rows, or persons, of a report. Whoever learns of a refusal learns that there are fewer: ε does not cover
        that.
    approve : bool
        Whether the report may be charged and sent.
    same_participants, moved, accept_new_purpose, resend_refused, epsilon_per_study, epsilon_total, delta_total
        As for :func:`report`.
    progress : bool or callable, optional
        ``True`` for a bar by tqdm; or called with ``(done, total)`` rows a few times a second.
    """
    checked = _checked(study)
    names = study.feature_names
    table = _rows.table(rows, aside=[persons] if isinstance(persons, str) else [], expected=names)
    # A site is told of what cannot be used, and nothing is refused because of it.
    values = _rows.ordered(table, names, f"study {study.id}", reports=True, persons=True)
    if len(values) == 0:
        raise InputError("the table has no rows; give at least one")
    labels = table.aside.get(persons) if isinstance(persons, str) else persons
    labels, _ = _rows.holders(rows, len(values), labels, None)
    _rows.tell(values, None, names)
    upload = {
        "same_participants": same_participants, "moved": moved, "accept_new_purpose": accept_new_purpose,
        "resend_refused": resend_refused, "epsilon_per_study": epsilon_per_study, "epsilon_total": epsilon_total,
        "delta_total": delta_total,
    }  # fmt: skip
    arguments = {"site": _rows.text(site, "site"), "min_rows": min_rows, "upload": given(upload)}
    with _told(progress) as told:
        answer = _core.site_report(
            ledger,
            checked,
            values,
            labels,
            None if token is None else _token(token),
            to_json(arguments),
            bool(approve),
            told,
            require_connection(connection),
        )
    done = read_json(answer)
    counts = done.pop("counts")
    if not done:
        return SiteReported(**counts)
    charged = done.pop("charged")
    outcome = {name: done[name] for name in ("acknowledged", "given_up", "refusals") if name in done}
    sent = Sent(**{each.name: done[each.name] for each in fields(Sent) if each.name in done})._logged()
    return SiteReported(**counts, **outcome, sent=sent, epsilon=charged["epsilon"], delta=charged["delta"])


def receipt(ledger: Path) -> Receipt:
    """The receipt of the ledger of a table, as :func:`report` and :func:`site_report` use it."""
    return Receipt._of(*_core.receipt(ledger))


def give_up(ledger: Path, study: Study | str) -> GivenUp:
    """Gives up the reports of a study in the ledger of a table, as :meth:`Ledger.give_up` does for a device."""
    return GivenUp._of(*_core.give_up(ledger, id_of(study)))


@contextlib.contextmanager
def _told(progress: Progress) -> Iterator[Callable[[int, int], object] | None]:
    """What is called with progress: a function, or a bar by tqdm if it is there."""
    if progress is not True:
        yield progress if callable(progress) else None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield None
        return
    with tqdm(desc="reports", unit="") as bar:

        def draw(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield draw
