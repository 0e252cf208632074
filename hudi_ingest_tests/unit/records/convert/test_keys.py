"""Records' keys: their columns beside the values', and what becomes of records without one or with a bad one."""

from __future__ import annotations

import struct
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.convert.avro.converter import AvroConverter, OneSchema
from hudi_ingest.records.convert.connect.json import ConnectJsonConverter
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.convert.values import beside, decode_keys
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest_tests.support.outcomes import outcome, rows_of

VALUE = pa.schema([pa.field("n", pa.int64(), False)])
KEY = pa.schema([pa.field("id", pa.string()), pa.field("region", pa.int32())])
BOTH = pa.schema([*VALUE, *KEY])
values = converter_for("json", VALUE)


def decoded(schema: pa.Schema, records: list[tuple[bytes, bytes | None]]) -> list[object]:
    """The outcome of each (value, key)."""
    keys = pa.array([key for _, key in records], pa.binary())
    found = beside(
        values.decode(pa.array([value for value, _ in records], pa.binary())),
        decode_keys(converter_for("json", schema), schema, keys),
        len(records),
    )
    return rows_of(outcome(found, len(records), pa.schema([*VALUE, *schema])))


GOOD = b'{"n": 1}'


def test_a_row_is_made_of_value_and_key() -> None:
    assert decoded(KEY, [(GOOD, b'{"id": "a", "region": 3}'), (b'{"n": 2}', b"{}")]) == [
        {"n": 1, "id": "a", "region": 3},
        {"n": 2, "id": None, "region": None},
    ]


def test_a_bad_key_is_named_as_a_key_and_a_bad_value_comes_first() -> None:
    found = decoded(
        KEY,
        [(GOOD, b'{"region": "x"}'), (GOOD, b'{"id": "b"}'), (b"{}", b'{"region": "x"}'), (GOOD, b"["), (b"[", b"{}")],
    )
    assert found[0] == ("key.region", "int (32 bit)", '"x"')
    assert found[1] == {"n": 1, "id": "b", "region": None}
    assert found[2] == ("n", "int (64 bit), not null", "no such field")
    assert isinstance(found[3], tuple) and found[3][0] == "key"
    assert isinstance(found[4], tuple) and found[4][0] == ""


@pytest.mark.parametrize("keys", [[None], [None, b"{}"], [b"{}", None, None]])
def test_a_record_without_a_key(keys: list[bytes | None]) -> None:
    assert decoded(KEY, [(GOOD, key) for key in keys]) == [{"n": 1, "id": None, "region": None}] * len(keys)
    required = pa.schema([pa.field("region", pa.int32()), pa.field("id", pa.string(), False)])
    found = decoded(required, [(GOOD, key) for key in keys])
    assert all(isinstance(each, tuple) and each[0] == "key.id" for each in found)
    assert [each[2] for each in found if isinstance(each, tuple)] == [
        "no key" if key is None else "no such field" for key in keys
    ]


one_value = st.sampled_from([GOOD, b"{}", b"", b'{"n": 7}'])
one_key = st.sampled_from([None, b"", b"{}", b'{"id": "a"}', b'{"region": 2147483648}', b'{"id": "a", "region": 1}'])


@given(st.lists(st.tuples(one_value, one_key), max_size=9), st.booleans())
def test_the_outcome_does_not_depend_on_neighbours(records: list[tuple[bytes, bytes | None]], required: bool) -> None:
    schema = pa.schema([pa.field("id", pa.string(), not required), KEY.field("region")])
    assert decoded(schema, records) == [decoded(schema, [record])[0] for record in records]


LONG_KEY = pa.schema([pa.field("id", pa.int64(), False)])


def test_json_keys_that_are_no_objects_are_the_one_column() -> None:
    framed = b'{"schema":{"type":"int64","optional":false},"payload":8}'
    keys = pa.array([b"7", framed, b'{"id": 9}', b'"7"', b"7,8", b'7,"x":1', b"null", b"[7]", b"7 7"], pa.binary())
    found = ConnectJsonConverter(LONG_KEY, framed=False).decode(keys)
    assert found.rows.to_pylist() == [{"id": 7}, {"id": 8}, {"id": 9}]
    assert [fault.index for fault in found.rejected] == [3, 4, 5, 6, 7, 8]
    texts = pa.array([b'"a\\"b"', b'"a","id":"b"', b'{"schema":{"type":"string"},"payload":"c"}'], pa.binary())
    found = ConnectJsonConverter(pa.schema([("id", pa.string())]), framed=False).decode(texts)
    assert found.rows.to_pylist() == [{"id": 'a"b'}, {"id": "c"}] and [bad.index for bad in found.rejected] == [1]
    days = b'{"schema":{"type":"int32","name":"org.apache.kafka.connect.data.Date"},"payload":1}'
    found = ConnectJsonConverter(pa.schema([("id", pa.date32())]), framed=True).decode(pa.array([days], pa.binary()))
    assert found.rows.to_pylist() == [{"id": date(1970, 1, 2)}]


@pytest.mark.parametrize(
    ("schema", "datum", "column", "expected"),
    [
        ("string", b"\x04k1", pa.string(), "k1"),
        ("long", b"\x0e", pa.int64(), 7),
        ('["null", "long"]', b"\x02\x0e", pa.int64(), 7),
    ],
)
def test_avro_keys_that_are_no_records_are_the_one_column(
    schema: str, datum: bytes, column: pa.DataType, expected: object
) -> None:
    converter = AvroConverter(pa.schema([pa.field("id", column, False)]), OneSchema(RegisteredSchema(schema)))
    for count in (1, 300):
        found = converter.decode(pa.array([datum] * count, pa.binary()))
        assert found.rows.to_pylist() == [{"id": expected}] * count
    several = AvroConverter(KEY, OneSchema(RegisteredSchema(schema))).decode(pa.array([datum], pa.binary()))
    assert several.rejected[0].expected == "a record"


@pytest.mark.parametrize(
    ("column", "code", "numbers"),
    [
        (pa.int32(), ">i", [1, -3, -(1 << 31)]),
        (pa.int64(), ">q", [1 << 40, -3, -(1 << 63)]),
        (pa.float32(), ">f", [1.5, -0.25]),
        (pa.float64(), ">d", [1e300, -0.1]),
    ],
)
def test_numbers_of_kafkas_own_serializers(column: pa.DataType, code: str, numbers: list[float]) -> None:
    schema = pa.schema([pa.field("id", column, False)])
    keys = [struct.pack(code, number) for number in numbers]
    batch = pa.array([b"skipped", b"", *keys, b"1", keys[0] + b"\0"], pa.binary())[1:]
    found = converter_for("bytes", schema).decode(batch)
    assert found.rows["id"].to_pylist() == numbers and found.rows.schema == schema
    assert [fault.index for fault in found.rejected] == [0, len(numbers) + 1, len(numbers) + 2]
    assert converter_for("bytes", schema).decode(pa.array([], pa.binary())).rows.num_rows == 0
