"""Rows as Avro datums: each is what fastavro, another implementation, reads back."""

from __future__ import annotations

import io
import json
from datetime import timezone
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.hudi.files.log_file import avro_rows

POINT = {
    "type": "record",
    "name": "point",
    "fields": [{"name": "x", "type": ["null", "int"]}, {"name": "t", "type": "string"}],
}
AMOUNT = {
    "type": "fixed",
    "name": "amount",
    "namespace": "n",
    "size": 6,
    "logicalType": "decimal",
    "precision": 12,
    "scale": 2,
}
Fields = dict[str, tuple[Any, pa.DataType, st.SearchStrategy[Any]]]
FIELDS: Fields = {
    "long": ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "text": ("string", pa.string(), st.text(max_size=90)),
    "bytes": ("bytes", pa.binary(), st.binary(max_size=5)),
    "flag": ("boolean", pa.bool_(), st.booleans()),
    "float": ("float", pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": ("double", pa.float64(), st.floats(allow_nan=False)),
    "day": ({"type": "int", "logicalType": "date"}, pa.date32(), st.dates()),
    "at": (
        {"type": "long", "logicalType": "timestamp-micros"},
        pa.timestamp("us", tz="UTC"),
        st.datetimes(timezones=st.just(timezone.utc)),
    ),
    "amount": (AMOUNT, pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2)),
    "point": (
        POINT,
        pa.struct([("x", pa.int32()), pa.field("t", pa.string(), nullable=False)]),
        st.fixed_dictionaries({"x": st.none() | st.integers(-5, 5), "t": st.text(max_size=3)}),
    ),
}  # fmt: skip
OTHERS: Fields = {
    "list": (
        {"type": "array", "items": ["null", "double"]},
        pa.list_(pa.float64()),
        st.lists(st.none() | st.floats(allow_nan=False), max_size=3),
    ),
    "map": (
        {"type": "map", "values": ["null", "n.amount"]},
        pa.map_(pa.string(), pa.decimal128(12, 2)),
        st.dictionaries(st.text(max_size=3), st.none() | st.decimals(-9, 9, places=2), max_size=3),
    ),
}
"""What only other writers have in Avro blocks."""


def some_rows(kinds: Fields) -> st.SearchStrategy[list[dict[str, Any]]]:
    every = {name: values for name, (_, _, values) in kinds.items()}
    nullable = {f"{name}_or_null": st.none() | values for name, values in every.items()}
    return st.lists(st.fixed_dictionaries(every | nullable), max_size=6)


def schema(kinds: Fields = FIELDS) -> dict[str, Any]:
    """Each type once as it is and once with null; names that were spelled out before are referred to."""
    fields = []
    for name, (avro, _, _) in kinds.items():
        fields.append({"name": name, "type": avro})
        again = {"amount": "n.amount", "point": "point"}.get(name, avro)
        fields.append({"name": f"{name}_or_null", "type": ["null", again], "default": None})
    return {"type": "record", "name": "row", "fields": fields}


def columns(rows: list[dict[str, Any]], kinds: Fields = FIELDS) -> pa.Table:
    def column(name: str, kind: pa.DataType) -> pa.Array:
        values = [row[name] for row in rows]
        if pa.types.is_map(kind):
            values = [None if value is None else [*value.items()] for value in values]
        return pa.array(values, kind)

    return pa.table(
        {
            name + suffix: column(name + suffix, kind)
            for name, (_, kind, _) in kinds.items()
            for suffix in ("", "_or_null")
        }
    )


def read(datums: pa.Array, schema: dict[str, Any]) -> list[Any]:
    parsed, found = fastavro.parse_schema(schema), []
    for datum in datums.to_pylist():
        stream = io.BytesIO(datum)
        found.append(fastavro.schemaless_reader(stream, parsed, None))
        assert not stream.read(), "nothing follows a datum"
    return found


@given(some_rows(FIELDS), st.integers(0, 2))
def test_another_implementation_reads_the_same_rows(rows: list[dict[str, Any]], skipped: int) -> None:
    # A slice: its arrays begin in the middle of their buffers.
    table = columns(rows).slice(skipped)
    assert read(avro_rows(table, json.dumps(schema())), schema()) == rows[skipped:]


def test_columns_in_chunks_or_as_dictionaries_are_the_same_rows() -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "string"]}]}
    text = json.dumps(record)
    values = ["x", "y", "x"]
    dictionary = pa.table({"a": pa.array(values).dictionary_encode()})
    chunks = pa.table({"a": pa.chunked_array([values[:1], values[1:]])})
    assert read(avro_rows(dictionary, text), record) == read(avro_rows(chunks, text), record)
    assert [row["a"] for row in read(avro_rows(chunks, text), record)] == values


def test_an_order_of_branches_is_kept() -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["long", "null"]}]}
    rows = avro_rows(pa.table({"a": pa.array([7, None])}), json.dumps(record))
    assert read(rows, record) == [{"a": 7}, {"a": None}]


def test_what_the_schema_does_not_allow_is_refused() -> None:
    record = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]})
    with pytest.raises(ValueError, match="a null of type int64"):
        avro_rows(pa.table({"a": pa.array([None], pa.int64())}), record)
