"""Debezium's placeholders, in every shape that its connectors and converters give them."""

from __future__ import annotations

import base64
import json
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from hudi_ingest.records.changes import BEFORE, DELETED, LEFT_OUT
from hudi_ingest.records.convert.connect.debezium import UNAVAILABLE, AvailableValues, placeholder_bytes
from hudi_ingest.records.convert.converter import Decoded
from hudi_ingest.records.schema.ddl import parse_ddl

pytestmark = pytest.mark.fast

BYTES = UNAVAILABLE.encode()
CODES = [*BYTES]
UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
POINT = bytes.fromhex("0101000020e6100000000000fc83d797c1000000fc83d797c1")
GEOMETRIES = [base64.b64encode(POINT).decode(), {"wkb": POINT, "srid": 4326}]
"""Do not depend on the connector's setting."""


class Rows:
    """Decodes to these values, whatever the records are."""

    def __init__(self, column: pa.Array, name: str = "x") -> None:
        self._rows = pa.RecordBatch.from_arrays([column], names=[name])

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return Decoded(self._rows, None, ())


def refused(column: pa.Array, placeholder: str = UNAVAILABLE, name: str = "x") -> list[int]:
    """The places of the values that are refused."""
    converter = pickle.loads(pickle.dumps(AvailableValues(Rows(column, name), placeholder)))
    outcome: Decoded = converter.decode(pa.array([b""] * len(column), pa.binary()))
    assert {refusal.field for refusal in outcome.rejected} <= {name}
    places = [refusal.index for refusal in outcome.rejected]
    others = [place for place in range(len(column)) if place not in places]
    assert outcome.rows.column(0).equals(column.take(pa.array(others, pa.int64())))
    return places


def as_numbers(factor: Any = 1) -> list[Any]:
    return [code * factor for code in CODES]


@pytest.mark.parametrize(
    ("kind", "placeholder", "values"),
    [
        ("string", UNAVAILABLE, ["", "x", f" {UNAVAILABLE}", None]),
        ("string", UUID, ["b68a35a7-17ad-35b3-af2a-ae46edb4545b"]),
        ("string", base64.b64encode(BYTES).decode(), ["X19k"]),
        ("string", BYTES.hex(), ["5f5f"]),
        ("string", json.dumps({UNAVAILABLE: UNAVAILABLE}, separators=(",", ":")), ["{}"]),
        ("string", GEOMETRIES[0], ["AQEAACDm"]),
        ("binary", BYTES, [b"", BYTES[1:], None]),
        ("array<string>", [UNAVAILABLE], [[], [None], None, ["x"]]),
        ("array<string>", [UUID], [["6e8bc430-9c3a-11d9-9669-0800200c9a66"]]),
        ("array<binary>", [BYTES], [[b"x"], None]),
        ("array<int>", CODES, [CODES[:-1], [*CODES, 1], [None] * 28, [*CODES[:-1], None], [0] * 28, None, [1] * 28]),
        ("array<long>", CODES, [[-code for code in CODES], [code * 10 for code in CODES]]),
        ("array<float>", CODES, [[code + 0.5 for code in CODES]]),
        ("array<double>", as_numbers(1.0), [[float("inf")] * 28, [code * 0.1 for code in CODES]]),
        ("array<decimal(9,2)>", as_numbers(Decimal("0.01")), [as_numbers(Decimal("0.02"))]),
        ("array<decimal(20,4)>", as_numbers(Decimal("0.01")), [as_numbers(Decimal("10"))]),
        ("array<decimal(20,4)>", as_numbers(Decimal("1")), [[Decimal(0)] * 28]),
        ("array<date>", CODES, [[code + 1 for code in CODES]]),
        ("array<timestamp>", CODES, [[code * 2 for code in CODES]]),
        ("array<timestamp>", as_numbers(1000), [None]),
        ("map<string,string>", {UNAVAILABLE: UNAVAILABLE}, [{}, {"a": "b"}, None]),
        ("map<string,string>", {"a": UNAVAILABLE}, [{"a": None}]),
        ("struct<wkb:binary,srid:int>", GEOMETRIES[1], [{"wkb": b"\1", "srid": 1}, None]),
        ("struct<a:struct<b:array<int>>>", {"a": {"b": CODES}}, [{"a": {"b": [1]}}, {"a": None}]),
        ("array<struct<t:string>>", [{"t": "x"}, {"t": UNAVAILABLE}], [[{"t": "x"}, None], []]),
        ("map<string,array<long>>", {"a": CODES}, [{"a": [1, 2]}]),
    ],
)
def test_a_placeholder_is_refused_in_the_shape_of_its_type(kind: str, placeholder: Any, values: list[Any]) -> None:
    items = parse_ddl(f"x {kind}").field(0).type
    if pa.types.is_map(items):
        placeholder, *values = (v if v is None else [*v.items()] for v in (placeholder, *values))
    column = pa.array([*values, placeholder, values[0], placeholder], items)
    assert refused(column) == [len(values), len(values) + 2]
    assert refused(column.slice(1)) == [len(values) - 1, len(values) + 1]
    filled = AvailableValues(Rows(column), filled=True).decode(pa.array([b""] * len(column), pa.binary()))
    assert (filled.rejected, filled.rows["x"]) == ((), column)
    assert filled.rows[LEFT_OUT].to_pylist() == [
        ["x"] if place in refused(column) else None for place in range(len(column))
    ]
    assert refused(column, "another") == (refused(column) if placeholder in GEOMETRIES else [])


def test_the_shapes_of_a_connectors_own_placeholder_follow_from_it() -> None:
    strings, numbers = parse_ddl("x array<string>, y array<int>").types
    assert refused(pa.array(["__gone__", UNAVAILABLE]), "__gone__") == [0]
    assert refused(pa.array([["__gone__"], [UUID], ["0e5a7c2c-0000-3000-8000-000000000000"]], strings), "__gone__") == [
        0
    ]
    assert refused(pa.array([[95, 95, 103, 111, 110, 101, 95, 95], CODES], numbers), "__gone__") == [0]
    assert refused(pa.array([[0, -1], [0, 255]], numbers), "hex:00fF") == [0], "bytes of Java have signs"
    assert refused(pa.array([b"\x00\xff", b"hex:00fF"]), "hex:00fF") == [0]
    for wrong in ("hex:x", "hex: "):
        with pytest.raises(ValueError):
            placeholder_bytes(wrong)


def test_what_is_no_column_of_the_table_is_not_looked_at() -> None:
    assert refused(pa.array([False, True]), name=DELETED) == []
    assert refused(pa.array([{"id": UNAVAILABLE}]), name=BEFORE) == []


def test_the_reason_says_what_to_do() -> None:
    (refusal,) = AvailableValues(Rows(pa.array([UNAVAILABLE]))).decode(pa.array([b""])).rejected
    assert refusal.found == UNAVAILABLE
    assert "updates that do not change it; `alter table … replica identity full` makes" in refusal.expected
