"""Taking part in studies: one device with one row, or a program that reports a table of rows."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from . import _core, _rows
from .errors import EigenveilError, InputError, LedgerError

# Never a value of a row, nor what depends on one, nor a token.
_log = logging.getLogger("eigenveil")

Path = str | os.PathLike[str]
Progress = bool | Callable[[int, int], object] | None


@dataclass(frozen=True)
class Connection:
    """How to reach a server; the defaults are right for most.

    Parameters
    ----------
    ca_certificate : path, optional
        PEM file of a certificate to trust besides the system's.
    insecure_http : bool
        Whether ``http://`` to another machine is allowed; anybody on the way can then read reports and tokens.
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


def reached_by(connection: Connection | None) -> Connection | None:
    """The connection, if it is one."""
    if connection is not None and not isinstance(connection, Connection):
        raise InputError(f"connection is a {type(connection).__name__}; give an eigenveil.Connection")
    return connection


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Study(_rows.Copies):
    """A study, checked: its parameters have its fingerprint, and its noise keeps the budget.

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
    if TYPE_CHECKING:  # No field: dataclasses.asdict has none of it.
        _checked: _core.Study

    def __init__(self, checked: _core.Study | None = None, *_: object, **__: object) -> None:
        if not isinstance(checked, _core.Study):
            raise TypeError("a study is made by Study.fetch, Study.from_document, Analyst.study or create_study")
        vars(self).update(_object(checked.described()), _checked=checked)

    @classmethod
    def fetch(
        cls, url: str, id: str, fingerprint: str | None = None, *, connection: Connection | None = None
    ) -> Study:
        """Fetches a study from its server and checks it.

        Parameters
        ----------
        url : str
            Address of the server, such as ``"https://study.example"``.
        id : str
            Identifier of the study, 32 hexadecimal digits.
        fingerprint : str, optional
            The fingerprint that the study must have. Ship it with the program: without it a server could give each
            participant other constants and recognise its report by them.

        Raises
        ------
        StudyError
            ``wrong-fingerprint``, ``study-not-found``, parameters whose noise does not keep the budget.
        ServerError
            The server could not be reached.
        """
        study = cls(_core.Study.fetch(url, id, fingerprint, reached_by(connection)))
        _log.info("fetched %r", study)
        return study

    @classmethod
    def from_document(cls, document: str | bytes | Mapping[str, Any], url: str, fingerprint: str | None = None) -> Study:
        """Checks a study's document (of ``GET /v1/studies/ID``) that came by another way."""
        if isinstance(document, bytes):
            try:
                document = document.decode()
            except UnicodeDecodeError as error:
                raise InputError("the document is not UTF-8", "malformed-json") from error
        text = document if isinstance(document, str) else json.dumps(document)
        return cls(_core.Study.from_document(text, url, fingerprint))

    @property
    def is_open(self) -> bool:
        """Whether it took reports when it was read, and its last day has not passed."""
        return self._checked.is_open

    @property
    def privacy(self) -> dict[str, Any]:
        """What one report promises, worked out on this side; ``sentence`` says it in words."""
        return _object(self._checked.privacy())

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
        ``"owed"``, ``"acknowledged"`` or ``"refused"``.
    epsilon, delta : float
        What was charged: what holds, at least what is claimed.
    local_warning : str or None
        Why the row was sent as the zero row, if it was. **For the participant only**: it depends on the row.
    """

    new: bool
    study: str
    report: str
    state: Literal["owed", "acknowledged", "refused"]
    epsilon: float
    delta: float
    local_warning: str | None = None


@dataclass(frozen=True)
class Sent(_rows.Copies):
    """What became of reports that were sent.

    Attributes
    ----------
    accepted, duplicates, refused, pending : int
        Reports counted now; counted before, as an answer was lost; refused for good; still to be sent.
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


_AnySent = TypeVar("_AnySent", bound=Sent)


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
        return cls(**_object(document), _text=text)

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
    Keep one file for the device's whole life.

    Parameters
    ----------
    path : path
        The file. It is made, readable by its owner only, if it is not there.
    existing : bool
        Refuse to make a new one: for a device that knows that it has one. A lost ledger looks like a first run.

    Raises
    ------
    LedgerError
        ``locked`` if another process (or another ``Ledger``) has it open; ``file`` if it is damaged or no ledger.

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ledger is a file that one process has open, and is not pickled: open its path where it is used")

    def close(self) -> None:
        """Closes the file, so that another process can open it."""
        self._core.close()

    def take_part(self, study: Study, row: Any, *, token: str | None = None) -> Participation:
        """Perturbs the row and keeps its report, charged and durable; once a study, however often it is called.

        Parameters
        ----------
        study : Study
        row : array of p numbers, or mapping, named tuple or pandas Series by feature name
            ``None``, NaN, ``pandas.NA`` and masked cells are missing cells. A row that cannot be used (a NaN where the
            study allows no missing cells) is sent as the zero row, so that taking part says nothing of the data;
            ``local_warning`` says so.
        token : str, optional
            The one-time token of a study that needs one.

        Raises
        ------
        InputError
            ``wrong-dimension``, ``wrong-names``, ``invalid-dtype``, or a text that is no token: nothing was perturbed
            or charged.
        LedgerError
            ``budget-exceeded``, ``already-participated``.
        StudyError
            ``study-not-open``, ``study-ended``.
        """
        checked = _checked(study)
        numbers = _rows.row(row, study.feature_names, f"study {study.id}")
        kept = _object(self._core.take_part(checked, numbers, None if token is None else _token(token)))
        _log.info("%s in study %s", "took part" if kept["new"] else "had taken part", study.id)
        return Participation(**kept)

    def set_token(self, study: Study | str, token: str) -> bool:
        """Keeps the one-time token for a report that is not acknowledged yet; returns whether it is of use."""
        return self._core.set_token(id_of(study), _token(token))

    def send(self, *, connection: Connection | None = None) -> Sent:
        """Sends what is owed, the same bytes each time; what cannot be sent now stays owed.

        An unreachable server is no exception: see ``failures``.
        """
        return _logged(Sent(**_object(self._core.send(reached_by(connection)))))

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
    """The identifier of a study, or what is one."""
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


def _logged(sent: _AnySent) -> _AnySent:
    _log.info(
        "%d reports accepted, %d duplicates, %d refused, %d still to be sent",
        sent.accepted, sent.duplicates, sent.refused, sent.pending,
    )  # fmt: skip
    for failure in sent.failures:
        _log.warning("study %s: %s [%s]", failure["study"], failure["detail"], failure["code"])
    return sent


@dataclass(frozen=True)
class Reported(Sent):
    """What became of a table's reports: as :class:`Sent`, where ``refused`` and ``pending`` are those of the study.

    Attributes
    ----------
    participants, prepared, acknowledged : int
        Rows or persons; those charged by this call; those that the server has.
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

    Parameters
    ----------
    study : Study
    rows : array, or data frame (pandas, Polars, pyarrow, Arrow stream)
        n × p. Columns are matched with the study's features by name, in any order; an array is in the study's order.
        Cells that are null, NaN or masked are missing.
    ledger : path
        File of what these participants have spent, made if it is not there. Keep it with the rows.
    persons : str or array, optional
        Column (or one label a row) that says whose the row is, as one text or number: one row of each person, drawn at
        random, is reported.
    weights : str or array, optional
        Column (or one number a row), above 0 and at most 1, in a study with weights; more counts as 1, so divide by the
        largest that there can be. A pandas Series, also as
        ``persons``, must have the index of a frame of rows.
    tokens : iterable of str, optional
        One-time tokens, one a participant; needed once.
    same_participants : bool
        The table has changed since earlier studies, but row *i* is still participant *i*. In a study that was begun
        the rows must be the same (``rows-changed``).
    moved, accept_new_purpose, resend_refused : bool
        The study has another address; it says another purpose than before; send refused reports again, unchanged.
    epsilon_per_study, epsilon_total, delta_total : float, optional
        Changes what each row may spend in one study and in all.
    progress : bool or callable, optional
        ``True`` for a bar by tqdm; or called with ``(done, total)`` a few times a second.

    Raises
    ------
    ServerError, StudyError, TokenError
        Reports are still to be sent; ``values`` has ``pending`` and ``acknowledged``. Call it again to finish.
    """
    if persons is not None and weights is not None:
        raise InputError("persons and weights cannot be combined; give one of them")
    checked = _checked(study)
    if checked.has_weights != (weights is not None):
        raise InputError(
            "participants of this study count by weights; give weights, above 0 and at most 1"
            if weights is None
            else "all participants of this study count the same; leave weights out"
        )
    aside = [label for label in (persons, weights) if isinstance(label, str)]
    read = _rows.table(rows, aside=aside)
    values = _rows.ordered(read, study.feature_names, f"study {study.id}")
    n = len(values)
    if n == 0:
        raise InputError("the table has no rows; give at least one")
    _rows.refuse_other_index(rows, persons, "persons")
    _rows.refuse_other_index(rows, weights, "weights")
    labels = read.aside.get(persons) if isinstance(persons, str) else persons
    weight = read.aside.get(weights) if isinstance(weights, str) else weights
    numbers = None if labels is None else _rows.numbered(labels, n)
    participants = n if numbers is None else int(numbers.max()) + 1
    own = None if tokens is None else list(map(_token, tokens))
    if own is not None and len(own) < participants:
        raise InputError(f"there are {len(own)} tokens for {participants} participants; give one for each")
    if not 1 <= _rows.whole(connections, "connections") <= 1024:
        raise InputError(f"connections is {connections}; it must be from 1 to 1024")
    with _Bar(progress, "reports") as told, _in_python():
        answer = _core.report(
            ledger,
            checked,
            values,
            numbers,
            None if weight is None else _rows.weights(weight, n),
            own,
            {
                "same_participants": same_participants,
                "moved": moved,
                "accept_new_purpose": accept_new_purpose,
                "resend_refused": resend_refused,
                "connections": connections,
                "epsilon_per_study": epsilon_per_study,
                "epsilon_total": epsilon_total,
                "delta_total": delta_total,
            },
            told,
            reached_by(connection),
        )
    reported = _logged(Reported(**_object(answer)))
    if reported.failures:
        raise _failure(reported)
    return reported


@contextlib.contextmanager
def _in_python() -> Iterator[None]:
    """Says how this function is told that other rows are of the same participants."""
    try:
        yield
    except LedgerError as error:
        if error.code != "other-rows":
            raise
        sentence = str(error).replace("this file differs from the ones", "these rows differ from those")
        sentence = sentence.replace(", say so;", ", give same_participants=True;")
        raise LedgerError(sentence, error.code, error.values) from None


def _failure(reported: Reported) -> EigenveilError:
    """Why reports are still to be sent, as an exception of the kind that its code has."""
    failure = reported.failures[0]
    sentence = (
        f"{failure['detail']}; {reported.acknowledged} reports are acknowledged and {reported.pending} still to be "
        "sent: call it again to finish"
    )
    values: dict[str, float | str] = {"pending": float(reported.pending), "acknowledged": float(reported.acknowledged)}
    if failure["retryable"]:
        values["retryable"] = 1.0
    return _core.exception(failure["code"], sentence, values)


def receipt(ledger: Path) -> Receipt:
    """The receipt of the ledger of a table, as :func:`report` uses it."""
    return Receipt._of(*_core.receipt(ledger))


class _Bar:
    """What is called with progress: a function, or tqdm if it is there."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._bar: Any = None
        self._progress: Callable[[int, int], object] | None = None
        if progress is True:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self._bar = tqdm(desc=what, unit="")
            self._progress = self._draw
        elif callable(progress):
            self._progress = progress

    def _draw(self, done: int, total: int) -> None:
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def __enter__(self) -> Callable[[int, int], object] | None:
        return self._progress

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _object(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    return document
