"""Tables and rows of any library as float64 arrays in C order, with their names checked and brought into order.

A table that is a float64 array in C order already is used as it is. The messages name features and kinds, never values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .errors import InputError

Floats = npt.NDArray[np.float64]

_SHOWN = 8


class Table(NamedTuple):
    """A table: its numbers (rows × columns), the names of its columns, and labels of rows that were set aside."""

    values: Floats
    names: list[str] | None
    labels: dict[str, npt.NDArray[Any]]


def floats(values: Any, what: str) -> Floats:
    """A float64 array in C order of what is an array of numbers (or of booleans)."""
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "buif":
        values = np.ma.filled(values.astype(np.float64), np.nan)
    array: npt.NDArray[Any] = np.asarray(values)
    if array.dtype.kind not in "buif":
        kind = "objects" if array.dtype.kind == "O" else f"{array.dtype}"
        raise InputError(
            f"{what} has {kind}, not numbers; convert it first, for example with .astype(float)", "invalid-dtype"
        )
    return np.ascontiguousarray(array, dtype=np.float64)


def _names(columns: Iterable[Any]) -> list[str] | None:
    """The names, if all of them are text; as in scikit-learn, other columns have none."""
    names = list(columns)
    texts = [isinstance(name, str) for name in names]
    if not any(texts):
        return None
    if not all(texts):
        raise InputError(
            "some columns have names that are text and some have not; give all of them text, as with "
            "frame.columns = frame.columns.astype(str)",
            "wrong-names",
        )
    return names


def _column(values: Any, name: str) -> npt.NDArray[Any]:
    """One column of a data frame, missing cells as NaN where it has numbers."""
    if hasattr(values, "to_numpy"):
        try:
            # pandas: its nullable kinds become objects otherwise.
            if getattr(values, "dtype", None) is not None and hasattr(values, "isna") and _is_extension(values):
                return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
            array = np.asarray(values.to_numpy())
        except (TypeError, ValueError) as error:
            raise InputError(
                f"column {name!r} has {getattr(values, 'dtype', 'values')}, not numbers; convert or drop it",
                "invalid-dtype",
            ) from error
        return array
    return np.asarray(values)


def _is_extension(values: Any) -> bool:
    dtype = values.dtype
    return not isinstance(dtype, np.dtype) and getattr(dtype, "kind", "O") in "buif"


def table(rows: Any, *, aside: Sequence[str] = (), what: str = "the table") -> Table:
    """Reads an array, a pandas or Polars frame, a pyarrow table, or what has Arrow's stream, and sets columns aside."""
    if hasattr(rows, "columns") and hasattr(rows, "__getitem__") and not isinstance(rows, np.ndarray):
        columns: list[Any] = list(rows.columns)
        if columns and not isinstance(columns[0], str) and hasattr(rows, "column_names"):
            columns = list(rows.column_names)  # pyarrow
    elif hasattr(rows, "__arrow_c_stream__"):
        return table(_from_arrow(rows), aside=aside, what=what)
    else:
        if aside:
            raise InputError(f"{what} has no column {aside[0]!r}: it is an array without names", "wrong-names")
        return Table(_two_dimensional(floats(rows, what), what), None, {})
    for name in aside:
        if name not in columns:
            raise InputError(f"{what} has no column {name!r}; it has {_listed(columns)}", "wrong-names")
    labels = {name: _column(rows[name], name) for name in aside}
    taken = [column for column in columns if column not in aside]
    doubles = sorted({str(name) for name in taken if taken.count(name) > 1})
    if doubles:
        raise InputError(f"{what} has two columns named {doubles[0]!r}; give each its own name", "wrong-names")
    whole = _whole(rows) if not aside else None
    if whole is not None:
        return Table(whole, _names(taken), labels)
    values = np.empty((len(rows), len(taken)), dtype=np.float64)
    for place, name in enumerate(taken):
        values[:, place] = floats(_column(rows[name], str(name)), f"column {name!r}")
    return Table(values, _names(taken), labels)


def _whole(rows: Any) -> Floats | None:
    """A frame whose numbers lie together as float64 in C order, without a copy."""
    if not hasattr(rows, "to_numpy"):
        return None
    dtypes = getattr(rows, "dtypes", None)
    if dtypes is None or any(str(dtype) != "float64" for dtype in dtypes):
        return None
    array = rows.to_numpy()
    return array if array.ndim == 2 and array.flags.c_contiguous else None


def _from_arrow(stream: Any) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise InputError(
            f"{type(stream).__name__} gives its columns by Arrow, which needs pyarrow here: pip install pyarrow",
            "missing-package",
        ) from error
    return pyarrow.table(stream)


def _two_dimensional(array: Floats, what: str) -> Floats:
    if array.ndim != 2:
        raise InputError(
            f"{what} has {array.ndim} dimensions; it must have two, rows × columns. One row is array.reshape(1, -1)",
            "wrong-dimension",
        )
    return array


def ordered(values: Table, expected: Sequence[str] | None, of: str) -> Floats:
    """The columns in the order of these names; refused if names are missing, or not expected."""
    if expected is None or values.names is None:
        return values.values
    if list(values.names) == list(expected):
        return values.values
    refuse_other_names(values.names, expected, of)
    places = {name: place for place, name in enumerate(values.names)}
    return np.ascontiguousarray(values.values[:, [places[name] for name in expected]])


def refuse_other_names(found: Sequence[str], expected: Sequence[str], of: str) -> None:
    """Raises unless both have the same names."""
    known, own = set(expected), set(found)
    missing = [name for name in expected if name not in own]
    unknown = [name for name in found if name not in known]
    if missing or unknown:
        parts = []
        if missing:
            parts.append(f"lacks {_listed(missing)}")
        if unknown:
            parts.append(f"has {_listed(unknown)}, which {of} does not have")
        raise InputError(
            f"the names differ from those of {of}: this {' and '.join(parts)}. Rename or drop columns", "wrong-names"
        )


def row(values: Any, expected: Sequence[str] | None, of: str) -> Floats:
    """One row: an array, or a mapping (or a pandas Series) from the features' names, in any order."""
    if isinstance(values, Mapping) or (hasattr(values, "index") and hasattr(values, "to_dict")):
        named = values if isinstance(values, Mapping) else values.to_dict()
        if expected is None:
            raise InputError(
                f"{of} has no names of features, so a mapping has no order; give an array", "wrong-names"
            )
        refuse_other_names([str(name) for name in named], expected, of)
        numbers = np.empty(len(expected))
        for place, name in enumerate(expected):
            numbers[place] = _cell(named[name], name)
        return numbers
    array = floats(values, "the row")
    if array.ndim != 1:
        raise InputError(
            f"the row has {array.ndim} dimensions; it must have one. For tables see eigenveil.report", "wrong-dimension"
        )
    return array


def _cell(value: Any, name: str) -> float:
    if value is None:
        return np.nan
    array = np.asarray(value)
    if array.ndim != 0 or array.dtype.kind not in "buif":
        raise InputError(f"feature {name!r} is no number; give a number, or None where it is missing", "invalid-dtype")
    return float(array)


def numbered(labels: Any) -> npt.NDArray[np.int64]:
    """Whose each row is, as numbers from 0 in the order of their first rows."""
    numbers: dict[Any, int] = {}
    out = np.empty(len(labels), dtype=np.int64)
    for place, label in enumerate(labels):
        if label is None or (isinstance(label, (float, np.floating)) and np.isnan(label)) or label == "":
            raise InputError(
                f"row {place + 1} does not say whose it is; fill in its cell, or leave the row out", "wrong-persons"
            )
        out[place] = numbers.setdefault(label, len(numbers))
    return out


def _listed(names: Sequence[Any]) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
