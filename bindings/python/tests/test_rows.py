"""What is read of arrays and data frames: masks, names, whose rows they are, and what a message may say."""

from __future__ import annotations

import collections
import csv
import decimal
import io
import sqlite3
import traceback

import numpy as np
import pytest

import eigenveil
from eigenveil import _rows, errors

NAMES = ["a", "b", "c"]
MASKED = np.ma.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], mask=[[0, 1, 0], [0, 0, 1]])
HOLES = [[1, np.nan, 3], [4, 5, np.nan]]
Row = collections.namedtuple("Row", ["c", "b", "a"])


def read(rows, expected=NAMES):
    return _rows.ordered(_rows.table(rows), expected, "study X")


class Frame:
    """As astropy's tables, whose columns are masked arrays."""

    def __init__(self, columns):
        self._columns = columns

    @property
    def columns(self):
        return list(self._columns)

    def __len__(self):
        return 2

    def __getitem__(self, name):
        return self._columns[name]


@pytest.mark.parametrize(
    "rows",
    [
        MASKED,
        list(MASKED),
        tuple(MASKED),
        [list(row) for row in MASKED],
        Frame(dict(zip(NAMES, MASKED.T, strict=True))),
    ],
    ids=["array", "list", "tuple", "lists", "frame"],
)
def test_a_masked_cell_of_a_table_is_missing(rows):
    np.testing.assert_array_equal(read(rows), HOLES)


@pytest.mark.parametrize(
    "row",
    [
        MASKED[0],
        list(MASKED[0]),
        dict(zip(NAMES, MASKED[0], strict=True)),
        {"c": 3, "b": np.ma.array(5.0, mask=True), "a": 1},
    ],
    ids=["array", "list", "mapping", "array of one"],
)
def test_a_masked_cell_of_a_row_is_missing(row):
    np.testing.assert_array_equal(_rows.row(row, NAMES, "study X"), HOLES[0])


def test_a_missing_cell_of_pandas_or_arrow_in_a_row_is_missing():
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    for missing in (pandas.NA, pyarrow.scalar(None, pyarrow.float64())):
        np.testing.assert_array_equal(_rows.row({"a": 1, "b": missing, "c": 3}, NAMES, "study X"), HOLES[0])
    row = pyarrow.scalar({"c": 3, "b": None, "a": 1.0})
    np.testing.assert_array_equal(_rows.row(row, NAMES, "study X"), HOLES[0])


@pytest.mark.parametrize("cells", [[5.0, None, 7.0], [5, None, 7], [True, None, False]], ids=["float", "int", "bool"])
def test_a_null_of_an_arrow_dictionary_is_missing(cells):
    pytest.importorskip("sklearn")
    pyarrow = pytest.importorskip("pyarrow")
    column = pyarrow.chunked_array([pyarrow.array(cells).dictionary_encode()])
    whole, batch = pyarrow.table({"a": column, "b": column}), pyarrow.record_batch({"a": column.chunk(0)})
    expected = np.array([cells, cells], dtype=float).T
    for rows in (whole, batch):
        np.testing.assert_array_equal(_rows.table(rows).values, expected[:, : rows.num_columns])
    estimator = eigenveil.LocalDPPCA(1, 4, observed=0.9)
    np.testing.assert_array_equal(estimator._validated(whole, reset=True), expected)
    np.testing.assert_array_equal(_rows.weights(column, 3), expected[:, 0])
    np.testing.assert_array_equal(_rows.floats(whole, "it"), expected)
    np.testing.assert_array_equal(_rows.row(column, None, "study X"), expected[:, 0])


def test_an_estimator_does_not_see_behind_a_mask():
    pytest.importorskip("sklearn")
    rows = np.random.default_rng(1).normal(size=(2_000, 3))
    mask = np.zeros(rows.shape, dtype=bool)
    mask[::7, 0] = True
    hidden = np.ma.array(np.where(mask, 1e6, rows), mask=mask)
    fit = eigenveil.LocalDPPCA(1, 4, observed=0.9, random_state=1)
    expected = fit.fit(np.where(mask, np.nan, rows)).components_
    for masked in (hidden, list(hidden)):
        np.testing.assert_array_equal(fit.fit(masked).components_, expected)
        with pytest.raises(ValueError, match="NaN"):
            eigenveil.LocalDPPCA(1, 4).fit(masked)
    plain = eigenveil.LocalDPPCA(1, 4).fit(rows)
    with pytest.raises(ValueError, match="NaN"):
        plain.transform(hidden)


def test_labels_that_are_not_text_do_not_match_names_of_features():
    pandas = pytest.importorskip("pandas")
    cells = np.arange(6.0).reshape(2, 3)
    for columns in (
        [2, 1, 0],
        [b"c", b"b", b"a"],
        [np.nan, 1, 2],
        pandas.MultiIndex.from_tuples([("v", "c"), ("v", "b"), ("v", "a")]),
    ):
        frame = pandas.DataFrame(cells, columns=columns)
        with pytest.raises(errors.InputError, match="to_numpy") as refused:
            read(frame)
        assert refused.value.code == "wrong-names"
        np.testing.assert_array_equal(read(frame, expected=None), cells)
        np.testing.assert_array_equal(read(frame.to_numpy()), cells)


def test_a_list_of_rows_with_names_is_not_an_array():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"c": [3.0, 6.0], "b": [2.0, 5.0], "a": [1.0, 4.0]})
    for rows in ([row for _, row in frame.iterrows()], list(frame.itertuples(index=False)), [Row(3.0, 2.0, 1.0)]):
        with pytest.raises(errors.InputError, match="DataFrame") as refused:
            read(rows)
        assert refused.value.code == "wrong-names"
        np.testing.assert_array_equal(read(pandas.DataFrame(rows)), frame[NAMES].to_numpy()[: len(rows)])
        assert read(rows, expected=None).shape == (len(rows), 3)


def test_a_row_is_matched_by_its_names_or_refused():
    pandas = pytest.importorskip("pandas")
    np.testing.assert_array_equal(_rows.row(Row(3.0, 2.0, 1.0), NAMES, "study X"), [1, 2, 3])
    for row in (
        pandas.Series([1.0, 2.0, 3.0, 4.0], index=list("abca")),
        pandas.Series([1.0, 2.0, 3.0]),
        {1: 1.0, 2: 2.0, 3: 3.0},
    ):
        with pytest.raises(errors.InputError) as refused:
            _rows.row(row, ["1", "2", "3"] if isinstance(row, dict) else NAMES, "study X")
        assert refused.value.code == "wrong-names"


class DictRow(list):
    """As psycopg2's."""

    def keys(self):
        return iter("cba")

    def __getitem__(self, key):
        return super().__getitem__("cba".index(key) if isinstance(key, str) else key)


class SparkRow(tuple):
    def asDict(self):
        return dict(zip("cba", self, strict=True))


class OdbcRow(tuple):
    cursor_description = ()


def _of_sqlite(asked):
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    found = connection.execute(asked).fetchone()
    connection.close()
    return found


def test_a_row_of_a_database_is_matched_by_its_names_or_refused():
    records = [_of_sqlite("SELECT 3 AS c, 2 AS b, 1 AS a"), DictRow([3, 2, 1]), SparkRow([3, 2, 1]), OdbcRow([3, 2, 1])]
    for record in records:
        if not isinstance(record, OdbcRow):
            np.testing.assert_array_equal(_rows.row(record, NAMES, "study X"), [1, 2, 3])
        for rows in ([record, record], (record,)):
            with pytest.raises(errors.InputError, match="DataFrame") as refused:
                read(rows)
            assert refused.value.code == "wrong-names"
    for record in (OdbcRow([3, 2, 1]), _of_sqlite("SELECT 3 AS c, 2 AS b, 1 AS a, 5 AS a"), _of_sqlite("SELECT 1 AS x")):
        with pytest.raises(errors.InputError):
            _rows.row(record, NAMES, "study X")
    pandas = pytest.importorskip("pandas")
    np.testing.assert_array_equal(read(pandas.DataFrame(records[:1], columns=records[0].keys())), [[1, 2, 3]])


@pytest.mark.parametrize("wide", [2**64, 2**70, -(2**70), 10**400], ids=["64", "70", "-70", "no float"])
def test_a_row_is_not_refused_for_how_large_a_number_is(wide):
    pandas = pytest.importorskip("pandas")
    known = np.inf if wide == 10**400 else float(wide)
    row = {"a": wide, "b": 2, "c": 3}
    cells = list(row.values())
    for held in (row, Row(3, 2, wide), pandas.Series(row, dtype=object), cells, np.array(cells)):
        np.testing.assert_array_equal(_rows.row(held, NAMES, "study X"), [known, 2, 3])
    frame = pandas.DataFrame({"a": pandas.Series([wide], dtype=object), "b": [2], "c": [3]})
    np.testing.assert_array_equal(read(frame), [[known, 2, 3]])


def test_no_cell_and_no_weight_decides_about_others():
    pandas = pytest.importorskip("pandas")
    numbers = [float(number) for number in range(30)]
    for odd, read_as in (
        (None, np.nan),
        (pandas.NA, np.nan),
        (pandas.NaT, np.nan),
        ("x", np.nan),
        ("\ud800", np.nan),
        ("2.5", 2.5),
        (b"7", 7.0),
        (True, 1.0),
        (2**70, 2.0**70),
        (10**400, np.nan),
        (np.float32(0.1), float(np.float32(0.1))),
        (decimal.Decimal("2.5"), 2.5),
        (decimal.Decimal("sNaN"), np.nan),
        (pandas.Timestamp("2024-01-01"), np.nan),
        (1j, np.nan),
        ([1], np.nan),
        ((1, 2), np.nan),
        (np.ones((2, 2)), np.nan),
        ({}, np.nan),
        (object(), np.nan),
    ):
        for last in (29.0, "x"):
            cells = [*numbers[:3], odd, *numbers[4:29], last]
            column = pandas.Series(cells, dtype=object)
            known = np.array([*numbers[:3], read_as, *numbers[4:29], 29.0 if last == 29.0 else np.nan])
            rows = [[cell, number] for cell, number in zip(cells, numbers, strict=True)]
            for held in (rows, tuple(rows), pandas.DataFrame({"a": column, "b": numbers})):
                found = _rows.ordered(_rows.table(held), ["a", "b"], "study X", reports=True)
                np.testing.assert_array_equal(found, np.array([known, numbers]).T, repr(odd))
            for held in (cells, tuple(cells), column):
                np.testing.assert_array_equal(_rows.weights(held, 30), known, repr(odd))
    declared = np.array(["2024-01-01", "NaT"], dtype="M8[D]")
    np.testing.assert_array_equal(_rows.weights(declared, 2), [np.nan, np.nan])


@pytest.mark.parametrize(
    ("first", "hidden"),
    [
        ("1.7312,61.25,777", ["1.7312", "61.25", "777"]),
        ("1.7312,female,-1e-5", ["1.7312", "female", "1e-5"]),
        ("1.7312;61.25;777", ["1.7312", "61.25", "777"]),
        ("777,777,nan", ["777"]),
    ],
)
def test_the_first_row_of_a_file_without_names_is_not_in_a_message(first, hidden):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    text = first + "\nx,y,3\n".replace(",", ";" if ";" in first else ",")
    frames = [pandas.read_csv(io.StringIO(text)), polars.read_csv(io.StringIO(text), infer_schema=False)]
    calls = [lambda frame=frame, **own: read(frame, **own) for frame in frames]
    calls += [lambda frame=frame: _rows.table(frame, aside=["who"]) for frame in frames]
    # A study without names: the kind of a column is refused.
    calls += [lambda frame=frame: read(frame, expected=None) for frame in frames]
    calls.append(lambda: _rows.row(next(csv.DictReader(io.StringIO(text))), NAMES, "study X"))
    calls.append(lambda: read(pandas.DataFrame(np.ones((1, 2)), columns=[first.split(",")[0]] * 2)))
    for call in calls:
        with pytest.raises(errors.InputError) as refused:
            call()
        assert not any(cell in str(refused.value) for cell in hidden), refused.value
    # Where the cells are numbers the names are what is wrong.
    numbers = pandas.DataFrame(np.ones((1, len(frames[0].columns))), columns=frames[0].columns)
    with pytest.raises(errors.InputError, match="header=None") as refused:
        read(numbers)
    assert refused.value.code == "wrong-names" and not any(cell in str(refused.value) for cell in hidden)


BIG = [2**53, 2**53 + 1, 2**53 + 2]


def test_large_identifiers_are_as_many_persons(study, tmp_path):
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    plain = pandas.DataFrame(np.ones((3, 3)), columns=NAMES)
    frames = [plain.assign(who=pandas.array(BIG, dtype=kind)) for kind in ("Int64", "int64[pyarrow]", "int64")]
    frames += [polars.from_pandas(frames[0]), pyarrow.Table.from_pandas(frames[0])]
    for number, frame in enumerate(frames):
        done = eigenveil.report(study(), frame, persons="who", ledger=tmp_path / f"{number}.ledger")
        assert done.participants == 3


def test_a_row_that_does_not_say_whose_it_is_is_refused(study, tmp_path):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    made, path = study(), tmp_path / "rows.ledger"
    for labels in (
        np.ma.array([1, 2], mask=[0, 1]),
        np.array(["2020", "NaT"], dtype="M8[D]"),
        pandas.Series(pandas.to_datetime(["2020-01-01", None])),
        ["x", pandas.NA],
        pandas.Series([1, None], dtype="Int64"),
        pyarrow.array([1, None]),
        list(pyarrow.array([1, None])),
        ["x", None],
        [b"x", b""],
        [1, decimal.Decimal("nan")],
        [1, decimal.Decimal("sNaN")],
        [1, complex("nan")],
        ["x", ["x"]],
        ["x", ("x", float("nan"))],
        # What a program may have rounded.
        ["1", 2.0],
        [1, np.float32(2)],
        ["x", b"M\x81ller"],
    ):
        with pytest.raises(errors.InputError, match="row 2") as refused:
            eigenveil.report(made, np.ones((2, 3)), persons=labels, ledger=path)
        assert refused.value.code == "wrong-persons" and not path.exists()
    for labels in ([1], "xy", {0: "x", 1: "y"}, {"x", "y"}, pandas.DataFrame({"who": [1, 2]}), [[1, 2]], np.array(1)):
        with pytest.raises(errors.InputError) as refused:
            _rows.identifiers(labels, 2)
        assert refused.value.code == "wrong-dimension"


def test_a_series_with_another_index_than_the_rows_is_refused(study, tmp_path):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("sklearn")
    frame = pandas.DataFrame(np.random.default_rng(1).normal(size=(6, 3)), columns=NAMES, index=list("uvwxyz"))
    for name, scale in (("persons", 1), ("weights", 0.1)):
        series = pandas.Series([1, 1, 2, 2, 3, 3], index=frame.index) * scale
        turned = series[::-1]
        made, path = study(weights=name == "weights"), tmp_path / f"{name}.ledger"
        fit = eigenveil.LocalDPPCA(1, 4)
        for other in (turned, series.reset_index(drop=True)):
            with pytest.raises(errors.InputError, match="reindex"):
                fit.fit(frame, **{name: other})
            with pytest.raises(errors.InputError, match="reindex"):
                eigenveil.report(made, frame, ledger=path, **{name: other})
        eigenveil.report(made, frame, ledger=path, **{name: turned.reindex(frame.index)})
        for rows, own in ((frame, series), (frame, list(series)), (frame.to_numpy(), turned)):
            fit.fit(rows, **{name: own})


def test_missing_booleans_and_integers_of_arrow_and_polars_are_missing():
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    columns = {"c": [3, None], "b": [None, True], "a": [1.0, 4.0]}
    for rows in (pyarrow.record_batch(columns), pyarrow.table(columns), polars.DataFrame(columns)):
        np.testing.assert_array_equal(read(rows), [[1, np.nan, 3], [4, 1, np.nan]])


def test_what_cannot_be_read_is_refused_without_its_values():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    column = np.ones(2)
    for rows, code in (
        (pandas.Series([987654.0] * 3, index=NAMES), "wrong-dimension"),
        (polars.Series([987654.0] * 3), "wrong-dimension"),
        ((row for row in [[987654.0, 1.0, 2.0]]), "invalid-dtype"),
        ([[987654.0, 1.0, 2.0], [1.0]], "invalid-dtype"),
        (polars.LazyFrame({name: [987654.0] for name in NAMES}), "invalid-dtype"),
        (polars.DataFrame({"a": [2**100], "b": [1], "c": [1]}, schema_overrides={"a": polars.Int128}), "invalid-dtype"),
        (np.array([[b"1", b"2", b"987654"]]), "invalid-dtype"),
        ([[decimal.Decimal(987654), "x", None], [1.0]], "invalid-dtype"),
        (Frame({"a": column, "b": np.array([987654.0]), "c": column}), "wrong-dimension"),
        (Frame({"a": column, "b": np.float64(987654.0), "c": column}), "wrong-dimension"),
    ):
        with pytest.raises(errors.InputError) as refused:
            read(rows)
        assert refused.value.code == code
        # The length of the longest cell is one, too.
        assert not any(word in str(refused.value) for word in ("987654", "U6", "<U"))


def test_the_first_row_of_a_file_without_names_is_not_in_what_an_estimator_says():
    pytest.importorskip("sklearn")
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame = pandas.DataFrame(np.random.default_rng(1).normal(size=(200, 3)), columns=NAMES)
    header = ["7.123456789", "female", "38"]
    wrong = frame.set_axis(header, axis=1)
    arrow = polars.from_pandas(wrong).to_arrow()
    fit, wrong_fit = (eigenveil.LocalDPPCA(1, 4).fit(rows) for rows in (frame, wrong))
    calls = [lambda rows=rows: fit.transform(rows) for rows in (wrong, polars.from_pandas(wrong), arrow)]
    calls += [lambda rows=rows: wrong_fit.transform(rows) for rows in (frame, wrong[header[::-1]], wrong[header[:2]])]
    calls += [lambda: wrong_fit.estimate_.transform(frame), lambda: fit.estimate_.transform(wrong)]
    for settings in ({"scale": 0.0}, {"center": 1e300}, {"observed": 7.0}, {"center": frame.mean()}):
        calls.append(lambda settings=settings: eigenveil.LocalDPPCA(1, 4, **settings).fit(wrong))
    for call in calls:
        with pytest.raises(ValueError) as refused:
            call()
        assert not any(cell in str(refused.value) for cell in header), refused.value
        assert "7.123456789" not in "".join(traceback.format_exception(refused.value))
    # A frame's own names are for a message.
    with pytest.raises(ValueError, match="unseen at fit time:\n- z"):
        fit.transform(frame.rename(columns={"a": "z"}))
    with pytest.raises(errors.InputError, match='"a" has scale'):
        eigenveil.LocalDPPCA(1, 4, scale=0.0).fit(frame)


def test_what_an_estimator_cannot_read_is_an_input_error():
    pytest.importorskip("sklearn")
    sparse = pytest.importorskip("scipy.sparse")
    for rows, said in (
        ((row for row in HOLES), "a generator"),
        ({"a": [1.0]}, "a dict"),
        ([[10**400, 1.0], [2.0, 3.0]], "a list"),
        (np.zeros(3, dtype=[("a", float), ("b", float)]), "a ndarray"),
        (sparse.csr_matrix(np.eye(3)), "toarray"),
    ):
        with pytest.raises(errors.InputError, match=said) as refused:
            eigenveil.LocalDPPCA(1, 4).fit(rows)
        assert refused.value.code == "invalid-dtype"


def test_a_cell_is_not_in_what_an_estimator_says():
    pytest.importorskip("sklearn")
    for rows in (np.array([["1", "987654"]] * 5, dtype=object), np.full(5, 987654.0), np.full((5, 3), 987654 + 1j)):
        rows[0] = "x" if rows.dtype == object else rows[0]
        with pytest.raises(errors.InputError) as refused:
            eigenveil.LocalDPPCA(1, 4).fit(rows)
        assert "98" not in str(refused.value)


def test_dates_are_no_numbers():
    pytest.importorskip("sklearn")
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    dates = pandas.date_range("2024-01-01", periods=5)
    x = np.arange(5.0)
    for rows, called in (
        (np.array([dates, dates]).T, "the table"),
        (list(np.array([dates, dates]).T), "the table"),
        (np.array([[x[0], day] for day in dates.to_numpy()], dtype=object), "the table"),
        (pandas.DataFrame({"b": dates - dates[0], "a": dates}), "column 'b'"),
        (pandas.DataFrame({"b": x, "a": dates.tz_localize("UTC")}), "column 'a'"),
        (polars.DataFrame({"b": x, "a": list(dates.date)}), "column 'a'"),
        (polars.DataFrame({"b": x, "a": list(dates)}).to_arrow(), "column 'a'"),
    ):
        with pytest.raises(errors.InputError, match=f"{called} has dates") as refused:
            eigenveil.LocalDPPCA(1, 4).fit(rows)
        assert refused.value.code == "invalid-dtype" and "2024" not in str(refused.value)
    with pytest.raises(errors.InputError, match=r"column 2 \(a\): 5 values are not numbers"):
        eigenveil.LocalDPPCA(1, 4).fit(pandas.DataFrame({"b": x, "a": dates.date}))
    twice = pandas.DataFrame(np.ones((5, 2)), columns=["8641.5", "8641.5"])
    with pytest.raises(errors.InputError, match="two columns of the same name"):
        eigenveil.LocalDPPCA(1, 4).fit(twice)


def test_what_holds_no_array_is_called_by_its_kind():
    for rows, kind in (((row for row in HOLES), "generator"), ({"a": [1.0]}, "dict"), (map(list, HOLES), "map")):
        with pytest.raises(errors.InputError, match=f"is a {kind}; give an array"):
            read(rows)


def test_memory_that_is_not_aligned_is_copied():
    pytest.importorskip("sklearn")
    unaligned = np.frombuffer(bytearray(6 * 8 + 1), dtype=np.float64, count=6, offset=1).reshape(2, 3)
    assert not unaligned.flags.aligned
    assert _rows.floats(unaligned, "it").flags.aligned
    assert eigenveil.LocalDPPCA()._validated(unaligned, reset=True).flags.aligned


def test_a_line_break_in_a_public_text_is_refused_by_its_place():
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame({"a": [1.0, 2.0], "b": [1.0, 3.0], "s": ["x", "sec\nret"]})
    with pytest.raises(errors.InputError, match='"s" has a line break.* in row 2'):
        eigenveil.prepare(rows, k=1, n=1_000, epsilon=4, one_hot="s")
