"""Tables and rows of any library as float64 arrays in C order, with their names checked and brought into order.

A table that is a float64 array in C order already is used as it is. Messages name features and types, never values,
library messages, or names that could be cells of a first row.
"""

from __future__ import annotations

import contextlib
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
# Types of pandas, Polars and pyarrow that numpy holds as objects, but whose cells are any, text or truth values.
_OF_CELLS = re.compile("object|str|large_string|categor|enum|dictionary|bool|null", re.IGNORECASE)
# No row has a larger number.
_MOST = 2.0**300
_CONVERT = "not numbers; convert it first, with .astype(float), or .cast in Polars and pyarrow"
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
        if mask is not None and values.dtype.kind in "OUT":
            return np.ma.filled(values.astype(object), np.nan)
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
    """Numbers or booleans as a C-ordered float64 array, NaN where they are missing or masked."""
    array = _as_array(values, what)
    found = by_cell(array.flat) if array.dtype.kind == "O" else array
    if isinstance(found, list):
        raise InputError(f"{what} has objects, {_CONVERT}", "invalid-dtype")
    return found.reshape(array.shape)


def _as_array(values: Any, what: str, ndim: int = 1) -> npt.NDArray[Any]:
    """Numbers as float64 in C order, NaN where they are masked or null; or objects, which are to be read cell by cell:
    those of lists, text, and what declares no other type."""
    dtype = getattr(values, "dtype", getattr(values, "type", None))
    is_list, is_plain = isinstance(values, (list, tuple)), isinstance(dtype, (np.dtype, type(None)))
    array: npt.NDArray[Any] | None = None
    with contextlib.suppress(Exception):
        if hasattr(values, "isna") and not is_plain and getattr(dtype, "kind", "O") in "buif":
            # pandas: its nullable kinds become objects otherwise.
            array = np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
        elif hasattr(held := unmasked(values), "to_numpy"):
            arrow = hasattr(held, "to_pylist")
            array = np.asarray(held.to_numpy(zero_copy_only=False) if arrow else unmasked(held.to_numpy()))
        else:
            array = np.asarray(held)
    if is_list and (array is None or array.dtype.kind not in "buif"):
        array = _objects(unmasked(values), ndim)
    if array is None:
        way = "give all rows the same length, or a data frame" if is_list else "convert or drop it"
        raise InputError(f"{what} cannot be read as numbers; {way}", "invalid-dtype")
    if array.dtype.kind == "O" and array.ndim == 0:
        kind = type(values).__name__
        raise InputError(f"{what} is a {kind}; give an array of numbers, or a data frame", "invalid-dtype")
    if array.dtype.kind in "buif":
        return np.require(array, np.float64, ["C", "A"])
    if array.dtype.kind not in "OUT" or not (is_plain or _OF_CELLS.match(str(dtype))):
        kind = array.dtype.kind
        has = _DATES if kind in "mM" else f"{_KINDS.get(kind, 'objects')}, {_CONVERT}"
        raise InputError(f"{what} has {has}", "invalid-dtype")
    return array.astype(object, copy=False)


def _objects(values: Sequence[Any], ndim: int) -> npt.NDArray[Any] | None:
    """The cells of a list, or of a list of rows; None if these are not of one length."""
    cells = values
    if ndim == 2:
        if any(isinstance(row, (str, bytes, Mapping)) or not hasattr(row, "__getitem__") for row in values):
            return None
        if len(set(map(len, values))) > 1:
            return None
        cells = [cell for row in values for cell in row]
    array = np.fromiter(cells, dtype=object, count=len(cells))
    return array if ndim == 1 else array.reshape(len(values), -1)


def by_cell(cells: Iterable[Any]) -> Floats | list[str]:
    """Cells one by one, so that none decides about others: numbers, NaN where one is missing; if one is anything else,
    the text of each, as a file has it."""
    cells = list(cells)
    found = [_number(cell) for cell in cells]
    if None not in found:
        return np.array(found, dtype=np.float64)
    return [_text(cell) if number is None else repr(number) for cell, number in zip(cells, found, strict=True)]


def _number(cell: Any) -> float | None:
    """A number or truth value, infinite where it is beyond float64, NaN where it is missing; None for anything else."""
    if is_missing(cell):
        return np.nan
    cell = cell.as_py() if hasattr(cell, "as_py") else cell
    if not isinstance(cell, (int, float, np.integer, np.floating, np.bool_)):
        return None
    try:
        return float(cell)
    except OverflowError:
        return np.inf if cell > 0 else -np.inf


def _text(cell: Any) -> str:
    """A cell as a file has it: nothing where it is missing, truth values as true and false."""
    if is_missing(cell):
        return ""
    cell = cell.as_py() if hasattr(cell, "as_py") else cell
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError:
            return cell.decode("cp1252", "replace")
    try:
        text = str(cell).lower() if isinstance(cell, (bool, np.bool_)) else str(cell)
        return text.encode(errors="backslashreplace").decode()  # Half of a surrogate pair is no character.
    except Exception:
        return "unreadable"


def _numbers(found: Floats | list[str]) -> Floats:
    """What was read, with NaN for a text that is no number."""
    if not isinstance(found, list):
        return found
    nothing = np.full((len(found), 1), np.nan)
    return _core.read_frame(None, nothing, [(0, found)], None, "a column", True, True, False)[0][:, 0]


def _filled(columns: Iterable[Floats | list[str]], n: int, p: int) -> tuple[Floats, Texts]:
    """n × p numbers, and the columns of text by place."""
    values, texts = np.full((n, p), np.nan), Texts()
    for place, column in enumerate(columns):
        if isinstance(column, list):
            texts[place] = column
        else:
            values[:, place] = column
    return values, texts


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
    array = _as_array(rows, what, 2)
    if array.ndim != 2:
        one = "one row is array.reshape(1, -1) or series.to_frame().T"
        raise InputError(f"{what} has {array.ndim} dimensions, not two, rows × columns; {one}", "wrong-dimension")
    if array.dtype.kind != "O":
        return Table(array, None, {}, unmatched)
    values, texts = _filled(map(by_cell, array.T), *array.shape)
    return Table(values, None, {}, unmatched, texts)


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

    def read(name: Any) -> Floats | list[str]:
        if name in encoded:
            return as_text(rows[name])
        called = _called(places[name], name)
        array = _as_array(rows[name], called)
        if array.shape != (n,):
            raise InputError(f"{called} has shape {array.shape}; give one for each of {n} rows", "wrong-dimension")
        return by_cell(array) if array.dtype.kind == "O" else array

    values, texts = _filled(map(read, taken), n, len(taken))
    return Table(values, names, set_aside, unmatched, texts)


def as_text(column: Any) -> list[str]:
    """The cells of a column as a file has them."""
    return [_text(cell) for cell in cells(column if isinstance(column, np.ndarray) else unmasked(column))]


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
    values: Table,
    expected: Sequence[str] | None,
    of: str,
    *,
    reports: bool = False,
    persons: bool = False,
    others: bool = False,
) -> Floats:
    """The columns in the order of these names; refused if names are missing, not expected, or cannot be matched.

    Text is read as in a file of the same columns. Of rows that are ``reports`` no single cell is refused, and where
    several may be one of ``persons`` not most of them either: cells that are not read, too large ones too, are missing.
    With ``others`` a text that is none of a column's categories is another one, and is read.
    """
    if expected is not None and values.unmatched is not None:
        raise InputError(f"{of} has names, and {values.unmatched}", "wrong-names")
    if expected is not None and values.names is not None and values.names != list(expected):
        own = set(values.names)
        refuse_other_names(values.names, [source(name, own) for name in expected], of)
    names, wanted = values.names, None if expected is None else list(expected)
    found, told = values.values, None
    if names is None:
        # In the order of the features, if there are as many.
        names = wanted = wanted if wanted is not None and len(wanted) == found.shape[1] else None
    if values.texts or (reports and ((found > _MOST) | (found < -_MOST)).any()):
        texts = list((values.texts or {}).items())
        found, told = _core.read_frame(names, found, texts, wanted, of, reports, persons, others)
    elif wanted is not None and names is not None and names != wanted:
        places = {name: place for place, name in enumerate(names)}
        found = np.ascontiguousarray(found[:, [places[name] for name in wanted]])
    if told is not None:
        _log.warning("shown only to you: %s%s", "what cannot be read: " if others else "", told)
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
        return _numbers(by_cell(by_name[name] for name in expected))
    if expected is not None and (hasattr(values, "coords") or hasattr(values, "cursor_description")):
        raise InputError(f"{what} carries names, but not as a mapping; give one, or an array in the order of {of}")
    array = _as_array(values, what)
    if array.ndim != 1:
        raise InputError(f"{what} has {array.ndim} dimensions, not one: for tables see report", "wrong-dimension")
    return _numbers(by_cell(array)) if array.dtype.kind == "O" else array


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
    _check_one_each(labels, n, "persons")
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
    """What each of n rows counts, whatever holds it; NaN where it is no number."""
    _check_one_each(values, n, "weights")
    found = _numbers(by_cell(cells(unmasked(values))))
    return np.where(np.isfinite(found), found, np.nan)


def _check_one_each(values: Any, n: int, what: str) -> None:
    in_order = hasattr(values, "__getitem__") and not isinstance(values, (str, bytes, Mapping))
    if not in_order or getattr(values, "shape", (n,)) != (n,) or len(values) != n:
        raise InputError(f"{what} must have one value for each of {n} rows", "wrong-dimension")


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
