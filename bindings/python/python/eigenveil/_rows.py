"""Tables and rows of any library as float64 arrays in C order, with their names checked and brought into order.

A table that is a float64 array in C order already is used as it is. Messages name features and types, never values,
library messages, or names that could be cells of a first row.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _core
from .errors import EigenveilError, InputError

Floats = npt.NDArray[np.float64]
Texts = dict[int, list[str]]
_log = logging.getLogger("eigenveil")

_SHOWN = 8
# Series, named tuples, xarray, pyodbc: one row or an array, with names that an array does not have.
_WITH_NAMES = ("to_frame", "_fields", "coords", "cursor_description")
# Data frames have keys, too; as a row of a list it is SQLite's, psycopg2's or asyncpg's. asDict is Spark's.
_RECORDS = (*_WITH_NAMES, "keys", "asDict")
_KINDS = {"O": "objects", "U": "text", "T": "text", "S": "bytes", "V": "records", "c": "complex values"}
_DATES = "dates or times, not numbers; give days, hours or seconds, since a fixed day where they are dates"


class Copies:
    """Hands out copies of its lists and dicts: mutating a returned list or dict does not change the object."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return copy.deepcopy(value) if isinstance(value, (list, dict)) and not name.startswith("_") else value


class Table(NamedTuple):
    """A table: its numbers (rows × columns), the names of its columns, columns that were set aside, as they are, why
    columns cannot be matched by the names that the table carries, and columns of text by place, without numbers yet."""

    values: Floats
    names: list[str] | None
    aside: dict[str, Any]
    unmatched: str | None = None
    texts: Texts | None = None


def unmasked(values: Any) -> Any:
    """Replaces masked values by NaN, including in lists of masked arrays, where numpy would ignore the mask. Arrow's
    dictionaries are decoded: pyarrow 26 gives their nulls the values of other rows."""
    if hasattr(values, "column_names") and hasattr(values, "from_arrays"):
        columns = values.columns
        if not any(hasattr(column.type, "index_type") for column in columns):
            return values
        return type(values).from_arrays([unmasked(column) for column in columns], names=values.column_names)
    if hasattr(getattr(values, "type", None), "index_type"):
        return values.cast(values.type.value_type)
    if isinstance(values, np.ndarray):
        mask = getattr(values, "mask", None)
        if mask is None or values.dtype.kind not in "buif":
            return values
        array = np.array(values, dtype=np.float64, subok=False)
        array[np.asarray(mask)] = np.nan
        return array
    if isinstance(values, (list, tuple)) and any(
        issubclass(kind, (list, tuple, np.ndarray)) or hasattr(kind, "to_pylist") for kind in set(map(type, values))
    ):
        return [unmasked(own) for own in values]
    return values


def floats(values: Any, what: str) -> Floats:
    """Converts numbers or booleans to a C-ordered float64 array, NaN where it is masked."""
    try:
        array: npt.NDArray[Any] = np.asarray(unmasked(values))
    except Exception:
        sentence = f"{what} is no array of numbers; give all rows the same length, or a data frame"
        raise InputError(sentence, "invalid-dtype") from None
    if array.dtype.kind == "O" and array.ndim == 0:
        kind = type(values).__name__
        raise InputError(f"{what} is a {kind}; give an array of numbers, or a data frame", "invalid-dtype")
    # Whole numbers of more than 64 bits are objects.
    is_wide = array.dtype.kind == "O" and set(map(type, array.flat)) == {int} and max(map(abs, array.flat)) >= 2**63
    if array.dtype.kind == "O" and (isinstance(values, (list, tuple)) or is_wide):
        array = _with_gaps(array)
    if (kind := array.dtype.kind) not in "buif":
        convert = "not numbers; convert it first, with .astype(float), or .cast in Polars and pyarrow"
        has = _DATES if kind in "mM" else f"{_KINDS.get(kind, 'objects')}, {convert}"
        raise InputError(f"{what} has {has}", "invalid-dtype")
    return np.require(array, np.float64, ["C", "A"])


def _with_gaps(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """NaN for None and pandas' NA, infinity for integers beyond float64, if all else are numbers; else as it was."""
    found = np.empty(array.shape, np.float64)
    for at, value in enumerate(array.flat):
        if value is None or type(value).__name__ == "NAType":
            found.flat[at] = np.nan
        elif isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
            try:
                found.flat[at] = float(value)
            except OverflowError:
                found.flat[at] = np.inf if value > 0 else -np.inf
        else:
            return array
    return found


def _column(values: Any, called: str) -> npt.NDArray[Any]:
    """One column of a data frame, missing cells as NaN where it has numbers or booleans."""
    try:
        if hasattr(values, "to_numpy"):
            dtype = getattr(values, "dtype", None)
            if hasattr(values, "isna") and not isinstance(dtype, np.dtype) and getattr(dtype, "kind", "O") in "buif":
                # pandas: its nullable kinds become objects otherwise.
                return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
            values = unmasked(values)
            arrow = hasattr(values, "to_pylist")
            values = values.to_numpy(zero_copy_only=False) if arrow else values.to_numpy()
        array = np.asarray(unmasked(values))
    except Exception:
        raise InputError(f"{called} cannot be read as numbers; convert or drop it", "invalid-dtype") from None
    if array.dtype.kind == "O" and set(map(type, array.flat)) <= {bool, type(None)}:
        return array.astype(np.float64)
    return array


def table(
    rows: Any, *, aside: Sequence[str] = (), expected: Sequence[str] | None = None, what: str = "the table"
) -> Table:
    """Reads an array, a pandas or Polars frame, a pyarrow table, or what has Arrow's stream, and sets columns aside.
    Columns of which the expected features are categories are read as text."""
    kind = type(rows)
    try:
        if isinstance(rows, (np.ndarray, list, tuple)) or any(hasattr(kind, word) for word in _WITH_NAMES):
            return _array(rows, aside, what)
        if hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "to_numpy"):
            return _frame(_from_arrow(rows), aside, expected or (), what)
        if hasattr(kind, "columns") and not hasattr(kind, "__len__"):
            raise InputError(f"{what} is a {kind.__name__}, which has no rows yet; collect it first", "invalid-dtype")
        is_frame = hasattr(rows, "columns") and hasattr(rows, "__getitem__")
        return _frame(rows, aside, expected or (), what) if is_frame else _array(rows, aside, what)
    except (EigenveilError, MemoryError):
        raise
    except Exception:
        one = "an array of numbers, or a pandas, Polars or pyarrow table"
        raise InputError(f"{what} is a {kind.__name__} that cannot be read; give {one}", "invalid-dtype") from None


def _array(rows: Any, aside: Sequence[str], what: str) -> Table:
    if aside:
        raise InputError(f"{what} has no column {aside[0]!r}: it is an array without names", "wrong-names")
    kinds = set(map(type, rows)) if isinstance(rows, (list, tuple)) else set()
    carry = any(hasattr(type(rows), word) for word in _WITH_NAMES)
    unmatched = None
    if carry or any(hasattr(kind, word) for kind in kinds for word in _RECORDS):
        made = "rows, columns=rows[0].keys()" if any(hasattr(kind, "keys") for kind in kinds) else "rows"
        unmatched = f"{what} is no data frame, but made of objects that carry names; give pandas.DataFrame({made})"
    array = floats(rows, what)
    if array.ndim != 2:
        one = "one row is array.reshape(1, -1) or series.to_frame().T"
        raise InputError(f"{what} has {array.ndim} dimensions, not two, rows × columns; {one}", "wrong-dimension")
    return Table(array, None, {}, unmatched)


def _frame(rows: Any, aside: Sequence[str], expected: Sequence[str], what: str) -> Table:
    columns: list[Any] = list(rows.columns)
    if columns and not isinstance(columns[0], str) and hasattr(rows, "column_names"):
        columns = list(rows.column_names)  # pyarrow
    for name in aside:
        if name not in columns:
            raise InputError(f"{what} has no column {name!r}; it has {_own(columns)}", "wrong-names")
    places = _places(columns, what)
    set_aside = {name: rows[name] for name in aside}
    taken = [column for column in columns if column not in aside]
    names: list[Any] | None = taken
    unmatched: str | None = None
    if not all(isinstance(name, str) for name in taken):
        way = "if they are in the order of the features, give an array, as frame.to_numpy()"
        names, unmatched = None, f"the columns of {what} have labels that are not text; label them with text, or, {way}"
    own = set(names or ())
    encoded = {source(name, own) for name in expected}.intersection(own).difference(expected)
    whole = None if aside or encoded else _whole(rows)
    if whole is not None:
        return Table(whole, names, set_aside, unmatched)
    n = len(rows)
    values, texts = np.full((n, len(taken)), np.nan), Texts()
    for place, name in enumerate(taken):
        called = _called(places[name], name)
        found = None if name in encoded else _column(rows[name], called)
        if found is None or _is_text(found):
            texts[place] = as_text(rows[name])
            continue
        column = floats(found, called)
        if column.shape != (n,):
            raise InputError(f"{called} has shape {column.shape}; give one for each of {n} rows", "wrong-dimension")
        values[:, place] = column
    return Table(values, names, set_aside, unmatched, texts)


def _is_text(column: npt.NDArray[Any]) -> bool:
    """Whether a column of a frame is of text, or has some among other cells."""
    kind = column.dtype.kind
    return column.ndim == 1 and (kind in "UT" or (kind == "O" and any(isinstance(cell, str) for cell in column)))


def as_text(column: Any) -> list[str]:
    """The cells of a column as a file has them: nothing where they are missing, truth values as true and false."""
    column = column if isinstance(column, np.ndarray) else unmasked(column)
    return ["" if is_missing(cell) else _text(cell) for cell in cells(column)]


def _text(cell: Any) -> str:
    if isinstance(cell, bytes):
        return cell.decode(errors="replace")
    return str(cell).lower() if isinstance(cell, (bool, np.bool_)) else str(cell)


def source(name: str, own: set[str]) -> str:
    """The column that a feature is read from: ``sex`` of ``sex=f``, where there is none of the whole name."""
    starts = (name[:at] for at, sign in enumerate(name) if sign == "=")
    return name if name in own else next((start for start in starts if start in own), name)


def check_columns(rows: Any) -> None:
    """Raises for two columns of one name, whose message from others has it, and for dates, times and durations, which
    scikit-learn reads as numbers where all columns have them."""
    columns = list(getattr(rows, "column_names", getattr(rows, "columns", ())))
    _places(columns, "the table")
    # numpy, pandas, Polars and Arrow: datetime64, timedelta64, timestamp, date32, Time, Duration, period, …
    are_dates = re.compile(r"(dictionary<values=)?(date|time|duration|period)", re.IGNORECASE).match
    dtypes = getattr(rows, "dtypes", getattr(getattr(rows, "schema", None), "types", ()))
    for place, (name, dtype) in enumerate(zip(columns, dtypes, strict=False)):
        if are_dates(str(dtype)):
            raise InputError(f"{_called(place, name)} has {_DATES}", "invalid-dtype")
    if columns:
        return
    try:
        array = rows if hasattr(rows, "dtype") else np.asarray(rows)
    except Exception:
        return  # No array at all, which is said later.
    objects = array.flat if isinstance(array, np.ndarray) and array.dtype.kind == "O" else ()
    if are_dates(str(array.dtype)) or any(isinstance(cell, (np.datetime64, np.timedelta64)) for cell in objects):
        raise InputError(f"the table has {_DATES}", "invalid-dtype")


def _places(columns: list[Any], what: str) -> dict[Any, int]:
    """Where each column is."""
    places: dict[Any, int] = {}
    for place, name in enumerate(columns):
        if places.setdefault(name, place) != place:
            named = "of the same name" if could_be_a_cell(name) else f"named {name!r}"
            raise InputError(f"{what} has two columns {named}; give each its own name", "wrong-names")
    return places


def _called(place: int, name: Any) -> str:
    return f"column {place + 1}" if could_be_a_cell(name) else f"column {name!r}"


def _whole(rows: Any) -> Floats | None:
    """A frame whose numbers lie together as float64 in C order, without a copy."""
    if not hasattr(rows, "to_numpy"):
        return None
    dtypes = getattr(rows, "dtypes", None)
    if dtypes is None or any(str(dtype) != "float64" for dtype in dtypes):
        return None
    array = rows.to_numpy()
    return array if array.ndim == 2 and array.flags.c_contiguous and array.flags.aligned else None


def _from_arrow(stream: Any) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        sentence = f"{type(stream).__name__} gives its columns by Arrow, which needs pyarrow here: pip install pyarrow"
        raise InputError(sentence, "missing-package") from error
    return pyarrow.table(stream)


def ordered(
    values: Table, expected: Sequence[str] | None, of: str, *, reports: bool = False, persons: bool = False
) -> Floats:
    """The columns in the order of these names; refused if names are missing, not expected, or cannot be matched.

    Text is read as in a file of the same columns. Of rows that are ``reports`` no single cell is refused, and where
    several may be one of ``persons`` not most of them either: cells that are not read, infinite ones too, are missing.
    """
    if expected is not None and values.unmatched is not None:
        raise InputError(f"{of} has names, and {values.unmatched}", "wrong-names")
    if expected is not None and values.names is not None and values.names != list(expected):
        own = set(values.names)
        refuse_other_names(values.names, [source(name, own) for name in expected], of)
    if values.texts:
        wanted, texts = None if expected is None else list(expected), list(values.texts.items())
        found, told = _core.read_frame(values.names, values.values, texts, wanted, of, reports, persons)
    else:
        found, told = values.values, None
        if expected is not None and values.names is not None and list(values.names) != list(expected):
            places = {name: place for place, name in enumerate(values.names)}
            found = np.ascontiguousarray(found[:, [places[name] for name in expected]])
        if reports and np.isinf(found).any():
            known = None if expected is None or len(expected) != found.shape[1] else list(expected)
            found, told = _core.read_numbers(found, known, persons)
    if told is not None:
        _log.warning("shown only to you: %s", told)
    return found


def tell(values: Floats, weights: Floats | None, names: list[str] | None) -> None:
    """Tells whoever holds the rows, and nobody else, how many cells are not used."""
    missing = ((at, int(np.isnan(column).sum())) for at, column in enumerate(values.T))
    listed = [f"{names[at] if names else at + 1}: {count}" for at, count in missing if count]
    if listed:
        more = "" if len(listed) <= 8 else f" and {len(listed) - 8} columns more"
        _log.warning("shown only to you: cells without a number, by column: %s%s", ", ".join(listed[:8]), more)
    if weights is not None and (wrong := int((~((weights > 0) & (weights <= 1))).sum())):
        _log.warning("shown only to you: %d weights are not above 0 and at most 1", wrong)


def refuse_other_names(found: Sequence[str], expected: Sequence[str], of: str) -> None:
    """Raises unless both have the same names."""
    known, own = set(expected), set(found)
    missing = [name for name in expected if name not in own]
    unknown = [name for name in found if name not in known]
    parts = [f"lacks {_own(missing)}"] if missing else []
    parts += [f"has {_own(unknown)}, which {of} does not have"] if unknown else []
    if parts:
        said = " and ".join(parts)
        raise InputError(f"the names differ from those of {of}: this {said}. Rename or drop columns", "wrong-names")


def row(values: Any, expected: Sequence[str] | None, of: str, what: str = "the row") -> Floats:
    """One row, or what else has a number for each feature: an array, or, by the features' names in any order, a
    mapping, a pandas Series, or a record (a named tuple, a row of a database that has its names)."""
    if hasattr(values, "columns"):
        raise InputError(f"{what} is a table; for tables see eigenveil.report", "wrong-dimension")
    by_name = named(values)
    if by_name is not None:
        if expected is None:
            raise InputError(f"{of} has no names of features, so a mapping has no order; give an array", "wrong-names")
        if not all(isinstance(name, str) for name in by_name):
            way = f"give each number the name of its feature, or, in the order of {of}, an array"
            raise InputError(f"{what} has names that are not text; {way}", "wrong-names")
        if len(by_name) != len(values):
            raise InputError(f"{what} has a name twice; give each number a name of its own", "wrong-names")
        refuse_other_names(list(by_name), expected, of)
        return np.array([_cell(by_name[name], name) for name in expected], dtype=np.float64)
    if expected is not None and (hasattr(values, "coords") or hasattr(values, "cursor_description")):
        raise InputError(f"{what} carries names, but not as a mapping; give one, or an array in the order of {of}")
    array = floats(values, what)
    if array.ndim != 1:
        raise InputError(f"{what} has {array.ndim} dimensions, not one: for tables see report", "wrong-dimension")
    return array


def named(values: Any) -> Mapping[Any, Any] | None:
    """What a mapping, a Series or a record has by name; less than the values where a name is there twice."""
    if isinstance(values, Mapping):
        return values
    for word in ("_asdict", "asDict"):
        if hasattr(values, word):
            found: Mapping[Any, Any] = getattr(values, word)()
            return found
    if hasattr(values, "index") and hasattr(values, "to_dict"):
        return dict(values.to_dict())
    if hasattr(values, "keys"):
        return {name: values[name] for name in values.keys()}
    return None


def _cell(value: Any, name: str) -> float:
    if is_missing(value):
        return np.nan
    array = floats([value.as_py() if hasattr(value, "as_py") else value], f"feature {name!r}")
    if array.shape != (1,):
        raise InputError(f"feature {name!r} is no number; give a number, or None where it is missing", "invalid-dtype")
    return float(array[0])


def is_missing(cell: Any) -> bool:
    """Whether it is None, NaN, NaT, pandas' NA, a null of Arrow, or masked."""
    if hasattr(cell, "as_py"):
        cell = cell.as_py()
    try:
        return cell is None or not cell == cell
    except ValueError:  # an array
        return False
    except Exception:  # NA is neither equal to itself nor not
        return True


def cells(column: Any) -> Any:
    """The cells of a column as they are: integers are not rounded, and what is missing is still not a number."""
    return column.to_pylist() if hasattr(column, "to_pylist") else column


def holders(rows: Any, n: int, labels: Any, counts: Any) -> tuple[list[str] | None, Floats | None]:
    """Persons and weights of n rows; neither of another index than the rows', if both are of pandas."""
    if labels is not None and counts is not None:
        raise InputError("persons and weights cannot be combined; give one of them")
    index: Any = getattr(rows, "index", None)
    for what, own in (("persons", getattr(labels, "index", None)), ("weights", getattr(counts, "index", None))):
        if hasattr(index, "equals") and hasattr(own, "equals") and not index.equals(own):
            way = f"give {what}.reindex(rows.index), or, if they are in the order of the rows, {what}.to_numpy()"
            raise InputError(f"the index of {what} is not that of the rows; {way}", "wrong-names")
    return None if labels is None else identifiers(labels, n), None if counts is None else weights(counts, n)


def identifiers(labels: Any, n: int) -> list[str]:
    """Whose each of n rows is, as text; empty where it is missing."""
    in_order = hasattr(labels, "__getitem__") and not isinstance(labels, (str, bytes, Mapping))
    if not in_order or getattr(labels, "shape", (n,)) != (n,) or len(labels) != n:
        raise InputError(f"persons must have one label for each of {n} rows", "wrong-dimension")
    return [_identifier(label, row) for row, label in enumerate(cells(labels), 1)]


def _identifier(label: Any, row: int) -> str:
    if is_missing(label):
        return ""
    label = label.as_py() if hasattr(label, "as_py") else label
    wrong = ""
    if isinstance(label, (float, np.floating)):
        wrong = "has a floating-point number for its person, which may be rounded; read identifiers as text"
    elif isinstance(label, Iterable) and not isinstance(label, (str, bytes)):  # One of several could be missing.
        wrong = "does not say whose it is, by one text or number; fill it in or drop it"
    if wrong:
        raise InputError(f"row {row} {wrong}", "wrong-persons")
    return _text(label)


def weights(values: Any, n: int) -> Floats:
    """What each of n rows counts; NaN for a text that is no number."""
    column = _column(values, "weights")
    if _is_text(column):
        texts, nothing = [(0, as_text(values))], np.full((len(column), 1), np.nan)
        column = _core.read_frame(None, nothing, texts, None, "weights", True, True)[0][:, 0]
    found = floats(column, "weights")
    if found.shape != (n,):
        raise InputError(f"weights has shape {found.shape} for {n} rows; give one for each", "wrong-dimension")
    return found


def number(value: Any, name: str) -> float:
    """A number that is not one by chance, as True and texts could be."""
    try:
        if isinstance(value, (str, bytes, bool)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} is {shown(value)}; it must be a number") from None


def text(value: Any, name: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise InputError(f"{name} is {shown(value)}; it must be text")
    return str(value)


def shown(value: Any) -> str:
    """A word or a number; of whatever else its kind, as it may hold rows."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return repr(value)
    return f"a {type(value).__name__}"


def _own(names: Sequence[Any]) -> str:
    """The names that rows have, unless one could be a cell."""
    if any(map(could_be_a_cell, names)):
        return f"{len(names)} names, numbers among them (was the first row read as a header? then use header=None)"
    shown = ", ".join(repr(str(name)) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def could_be_a_cell(name: Any) -> bool:
    """Whether it is a number, or made of numbers: a file without names gives its first row as names."""
    if isinstance(name, tuple):
        return any(map(could_be_a_cell, name))
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    # Exponents, and what Polars appends to a name that it has already.
    bare = re.sub(r"(?<=[\d.])[eE](?=[+-]?\d)|_duplicated_\d+$", "", text)
    return bare.strip().lower().lstrip("+-") in ("nan", "inf", "infinity") or (
        any(map(str.isdigit, bare)) and not any(map(str.isalpha, bare))
    )
