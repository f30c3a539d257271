"""Writes the Parquet files beside it, with what their writers make of each type: a column's name begins with the kind as
which it must be read. Two rows: 1 and −2, or a number that would be negative if it were signed.

python3 -m venv v && v/bin/pip install pyarrow duckdb fastparquet pandas && v/bin/python make.py
"""

import datetime
import decimal

import duckdb
import fastparquet
import pandas
import pyarrow
import pyarrow.parquet

UNSIGNED = {8: 200, 16: 60_000, 32: 3_000_000_000, 64: 2**63 + 2**60}
DAYS = [datetime.date(2024, 3, 1), datetime.date(2024, 3, 2)]
TIMES = [datetime.datetime(2024, 3, 1, 12), datetime.datetime(2024, 3, 2)]

spans = pandas.DataFrame({"durations_pandas": pandas.to_timedelta([1, 2], "s")})
table = pyarrow.Table.from_pandas(spans)
columns = {f"unsigned_{bits}": (pyarrow.array([1, most], f"uint{bits}")) for bits, most in UNSIGNED.items()}
columns |= {f"whole_{bits}": pyarrow.array([1, -2], f"int{bits}") for bits in UNSIGNED}
columns |= {f"floating_{bits}": pyarrow.array([1, -2], f"float{bits}") for bits in (32, 64)}
columns |= {
    "whole_bool": pyarrow.array([True, False]),
    "text_string": pyarrow.array(["1", "-2"]),
    "text_large": pyarrow.array(["1", "-2"], pyarrow.large_string()),
    "text_dictionary": pyarrow.array(["1", "-2"]).dictionary_encode(),
    "text_binary": pyarrow.array([b"1", b"-2"]),
    "whole_null": pyarrow.nulls(2),
    "dates_date": pyarrow.array(DAYS),
    "dates_ms": pyarrow.array(TIMES, pyarrow.timestamp("ms")),
    "dates_utc": pyarrow.array(TIMES, pyarrow.timestamp("us", "UTC")),
    "dates_ns": pyarrow.array(TIMES, pyarrow.timestamp("ns")),
    "times_ms": pyarrow.array([1, 2], pyarrow.time32("ms")),
    "times_us": pyarrow.array([1, 2], pyarrow.time64("us")),
    "times_ns": pyarrow.array([1, 2], pyarrow.time64("ns")),
    "decimals_128": pyarrow.array([decimal.Decimal("19.76"), 1], pyarrow.decimal128(9, 2)),
    "bytes_2": pyarrow.array([b"ab", b"cd"], pyarrow.binary(2)),
    "others_half": pyarrow.array([1, 2], pyarrow.float16()),
    "lists_list": pyarrow.array([[1], [2]]),
    "lists_struct": pyarrow.array([{"a": 1}, {"a": 2}]),
}
for name, column in columns.items():
    table = table.append_column(name, column)
pyarrow.parquet.write_table(table, "pyarrow.parquet")

kinds = {
    "unsigned_8": "utinyint", "unsigned_16": "usmallint", "unsigned_32": "uinteger", "unsigned_64": "ubigint",
    "whole_8": "tinyint", "whole_16": "smallint", "whole_32": "integer", "whole_64": "bigint", "floating_huge": "hugeint",
    "floating_32": "float", "floating_64": "double", "whole_bool": "boolean", "text_string": "varchar",
    "text_blob": "blob", "text_enum": "enum('1', '-2')", "dates_date": "date", "times_time": "time",
    "dates_ts": "timestamp", "dates_ns": "timestamp_ns", "dates_tz": "timestamptz", "decimals_9": "decimal(9, 2)",
    "decimals_18": "decimal(18, 2)", "decimals_38": "decimal(38, 2)", "durations_interval": "interval",
    "others_uuid": "uuid", "lists_list": "integer[]",
}  # fmt: skip
values = {"dates": DAYS, "times": ["12:00", "13:00"], "durations": ["1 day", "2 days"], "lists": ["[1]", "[2]"]}
values |= {"others": ["00000000-0000-0000-0000-000000000001"] * 2}


def value(name: str, row: int) -> object:
    kind, of = name.split("_")
    if kind in values:
        return values[kind][row]
    return [1, UNSIGNED[int(of)] if kind == "unsigned" else 0 if of == "bool" else -2][row]


rows = [", ".join(f"'{value(name, row)}'::{kind} AS {name}" for name, kind in kinds.items()) for row in (0, 1)]
duckdb.sql(f"COPY (SELECT {rows[0]} UNION ALL SELECT {rows[1]}) TO 'duckdb.parquet' (FORMAT parquet)")

frame = pandas.DataFrame({f"unsigned_{bits}": pandas.array([1, most], f"uint{bits}") for bits, most in UNSIGNED.items()})
frame["whole_8"], frame["whole_64"] = pandas.array([1, -2], "int8"), [1, -2]
frame["floating_32"], frame["floating_64"] = pandas.array([1, -2], "float32"), [1.0, -2.0]
frame["whole_bool"], frame["text_object"] = [True, False], pandas.array(["1", "-2"], dtype=object)
frame["text_category"], frame["dates_ts"] = pandas.Categorical(["1", "-2"]), pandas.to_datetime(DAYS)
frame["times_timedelta"] = pandas.to_timedelta([1, 2], "s")
fastparquet.write("fastparquet.parquet", frame)
