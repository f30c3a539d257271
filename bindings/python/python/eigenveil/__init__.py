"""Principal components of data that never leaves its owners, under local differential privacy.

Whoever takes part: :class:`Study`, :class:`Ledger`, :func:`report`, :func:`site_report`, :func:`give_up`. Whoever asks:
:class:`Analyst`, :class:`Estimate`, :func:`serve`. Whoever wants to know what it would give: :class:`LocalDPPCA`,
:func:`plan`, :func:`simulate`, :func:`account`, :func:`audit`, :func:`prepare`, :mod:`eigenveil.central`.

All of it is the compiled Rust of Eigenveil; see :mod:`eigenveil.errors` for what can go wrong.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import errors
from ._core import __version__

if TYPE_CHECKING:
    from . import central
    from ._analyst import Analyst
    from ._command import EigenveilWarning, account, audit, plan, prepare, simulate
    from ._estimate import Estimate, Intervals
    from ._participant import (
        Connection, GivenUp, Ledger, Participation, Receipt, Reported, Sent, SiteReported, Study, give_up, receipt,
        report, site_report,
    )  # fmt: skip
    from ._pca import LocalDPPCA, LocalDPSparsePCA
    from ._serve import Server, serve

__all__ = [
    "Analyst", "Connection", "EigenveilWarning", "Estimate", "GivenUp", "Intervals", "Ledger", "LocalDPPCA",
    "LocalDPSparsePCA", "Participation", "Receipt", "Reported", "Sent", "Server", "SiteReported", "Study",
    "__version__", "account", "audit", "central", "errors", "give_up", "plan", "prepare", "receipt", "report", "serve",
    "simulate", "site_report",
]  # fmt: skip

# A device needs none of the analyst's modules, nor their imports: each is loaded when it is asked for.
_MODULES = {
    "_analyst": ["Analyst"],
    "_command": ["EigenveilWarning", "account", "audit", "plan", "prepare", "simulate"],
    "_estimate": ["Estimate", "Intervals"],
    "_pca": ["LocalDPPCA", "LocalDPSparsePCA"],
    "_serve": ["Server", "serve"],
}


def __getattr__(name: str) -> Any:
    if name == "central":
        return import_module(".central", __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _MODULES.items() if name in names), "_participant")
    try:
        found = getattr(import_module(f".{module}", __name__), name)
    except ImportError as error:
        if module != "_pca":
            raise
        raise ImportError(f"{name} is a scikit-learn estimator: pip install scikit-learn ({error})") from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
