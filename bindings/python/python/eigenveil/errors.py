"""Exceptions by kind. Each has a message, a stable ``code`` and, for programs, ``values``.

>>> import eigenveil, eigenveil.errors
>>> try:
...     eigenveil.account(epsilon=-1)
... except eigenveil.errors.InputError as error:
...     print(error.code)
invalid-budget
"""

from __future__ import annotations

from collections.abc import Mapping


class EigenveilError(Exception):
    """Base class of the exceptions of this package.

    Attributes
    ----------
    code : str
        Stable name, such as ``"study-not-open"``; those of the HTTP interface are in its documentation.
    values : dict
        Further values for programs, often none: ``field`` (the member of the request that is wrong), ``status``
        (of HTTP), ``retry_after`` (seconds), ``retryable`` (1 if the same call may succeed later), ``pending`` and
        ``acknowledged`` (reports).
    """

    code: str
    values: dict[str, float | str]

    def __init__(self, sentence: str, code: str = "usage", values: Mapping[str, float | str] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.values = dict(values or {})

    def __reduce__(self) -> tuple[type[EigenveilError], tuple[str, str, dict[str, float | str]]]:
        return (type(self), (str(self), self.code, self.values))


class InputError(EigenveilError, ValueError):
    """An argument cannot be used: its shape, its kind, its names, a number out of range."""


class StudyError(EigenveilError):
    """The study contradicts its own document, is not the expected one, or takes no reports now."""


class LedgerError(EigenveilError):
    """The ledger refuses the report (limits, another study of this name), is in use, or cannot be read or written."""


class TokenError(EigenveilError):
    """A token is missing, unknown, spent, or does not allow the request."""


class EstimateError(EigenveilError):
    """The estimate is not there, not ready, or could not be made; a statistic is refused."""


class ServerError(EigenveilError):
    """The server could not be reached, or refused or failed."""


class InternalError(EigenveilError):
    """A fault of this package; please report it."""
