"""The columns of a table that nobody declared, from Connect's schemas or from payloads."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hudi_ingest.exceptions import SchemaOutdated
from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.convert.connect.columns import (
    NewerColumnsGuard,
    avro_event_columns,
    carried_columns,
    infer_columns,
)
from hudi_ingest.records.convert.connect.debezium import AvailableValues, DebeziumConverter, NamingFields, event_schema
from hudi_ingest.records.convert.connect.json import ConnectJsonConverter
from hudi_ingest.records.convert.converter import Decoded
from hudi_ingest.records.schema.avro import record_schema
from hudi_ingest.records.schema.columns import ddl, parse_spark_json
from hudi_ingest.records.schema.connect import parse_connect_schema
from hudi_ingest.records.schema.evolution import evolve
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.records.schema.wire_type import WireType
from hudi_ingest_tests.unit.records.convert.test_connect_avro import NEW
from hudi_ingest_tests.unit.records.convert.test_connect_json import DECIMAL, SCHEMA, framed, of, struct

pytestmark = pytest.mark.fast


def recorded(name: str) -> list[tuple[str, bytes]]:
    text = (Path(__file__).parent / "debezium" / f"{name}.jsonl").read_text(encoding="utf-8")
    values = [json.loads(line)["value"] for line in text.splitlines()]
    return [(f"customers:0:{place}", value.encode()) for place, value in enumerate(values) if value is not None]


def numeric(precision: int, scale: int) -> dict[str, Any]:
    return {**DECIMAL, "parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)}}


def inferred(*values: bytes, of_events: bool = False) -> str:
    found = infer_columns([(f"t:0:{place}", value) for place, value in enumerate(values)], of_events)
    return "; ".join(found.problems) or ddl(found.schema)


def test_a_name_that_a_reader_has_a_meaning_for_is_refused_whether_it_was_there_or_is_added() -> None:
    name = "_tmp_metadata_row_index"
    problem = f"column {name}: this name belongs to Spark's Parquet reader"
    schema = struct(id=of("int64"), **{name: of("int64")})
    assert problem in inferred(framed({"id": 1, name: 7}, schema))
    connect = parse_connect_schema(json.dumps(schema).encode())
    assert connect is not None
    with pytest.raises(SchemaProblem, match=problem):
        NewerColumnsGuard(pa.schema([("id", pa.int64())]), of_events=False, adopts_new=True)(connect)
    assert problem in inferred(json.dumps({"id": 1, name: 7}).encode())


def test_columns_of_recorded_events_come_from_their_schemas_the_added_one_too() -> None:
    sample = recorded("postgresql_with_schemas")
    found = infer_columns(sample, of_events=True)
    assert not found.problems
    assert ddl(found.schema) == (
        "id long, name string, country string, balance decimal(12,2), rate string, ratio double, small int, flag boolean, "
        "created date, at timestamp, at3 timestamp, seen timestamp, tod long, raw binary, doc string, tags array<string>, "
        "uid string, mood string, email string"
    )
    events = ConnectJsonConverter(event_schema(found.schema, NamingFields(("id",))), framed=False)
    rows = AvailableValues(DebeziumConverter(events, found.schema, NamingFields(("id",))))
    outcome = rows.decode(pa.array([value for _, value in sample], pa.binary()))
    assert [refusal.field for refusal in outcome.rejected] == ["doc", "op"]
    assert outcome.rows["rate"][0].as_py() == "1.2345"


def test_columns_of_events_without_schemas_come_from_after() -> None:
    found = infer_columns(recorded("postgresql_with_decimals_as_strings"), of_events=True)
    assert ddl(found.schema).startswith(
        "id long, name string, country string, balance string, rate string, ratio double"
    )
    assert ddl(found.schema).endswith("mood string, email string")


def test_columns_of_a_payload() -> None:
    assert inferred(framed({"id": 1})) == (
        "id long, cents decimal(38,2), at timestamp, day date, name string, inner struct<cents:decimal(38,2),at:timestamp>, "
        "days array<date>, times map<string,timestamp>"
    )
    assert inferred(framed({}, struct(a=of("int8"))), framed({}, struct(a=of("int64"), b=DECIMAL))) == (
        "a long, b decimal(38,2)"
    )
    assert inferred(framed({}, struct(a=numeric(3, 5)))) == "a decimal(5,5)"
    assert inferred(b'{"schema":null,"payload":{"a":1}}') == "a long"


@pytest.mark.parametrize(
    ("values", "of_events", "problem"),
    [
        (
            [framed({}, struct(**{"a-b": of("int8")}))],
            False,
            "the schema of t:0:0: column a-b: Hudi cannot store this name",
        ),
        ([framed({}, of("string"))], False, "the schema of t:0:0: its schema is of type string, not a struct"),
        ([framed({}, struct(a=of("union")))], False, "column a: no table has a type for union"),
        (
            [framed({}, struct(a=numeric(40, 2)))],
            False,
            "column a: no table has a type for numeric(40,2); have the connector send it as string or double",
        ),
        # As Debezium 3.3 has it.
        ([framed({}, struct(a=numeric(3, 2046)))], False, "column a: no table has a type for numeric(3,-2);"),
        ([framed({}, SCHEMA)], True, "its schema is of type nothing, not a struct"),
        ([framed({}, struct(a=of("int8"))), framed({}, struct(a=of("string")))], False, "a"),
        ([b"{}", b"nonsense"], True, "there is no record with a value"),
    ],
)
def test_what_gives_no_columns(values: list[bytes], of_events: bool, problem: str) -> None:
    found: Any = infer_columns([(f"t:0:{place}", value) for place, value in enumerate(values)], of_events)
    assert problem in "; ".join(found.problems)


def test_columns_of_registered_events() -> None:
    schema = RegisteredSchema(NEW)
    assert ddl(avro_event_columns(schema, record_schema(schema))) == (
        "id long NOT NULL, name string NOT NULL, balance decimal(12,2), rate string, created date, at timestamp, "
        "seen timestamp, sent timestamp, days array<date>, tod long, email string"
    )
    flat = RegisteredSchema('{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}')
    with pytest.raises(SchemaProblem, match="no schema of Debezium's events"):
        avro_event_columns(flat, record_schema(flat))


KNOWN = struct(id=of("int64"), n=of("int32"), inner=struct(a=of("int32")), tags=of("array", items=struct(a=of("int8"))))
WIDE = struct(id=of("int64"), n=of("int64"), inner=struct(a=of("int32"), b=of("string")), tags=KNOWN["fields"][3])


def guarded(schema: dict[str, Any], adopts_new: bool = True, of_events: bool = False) -> Decoded:
    """What becomes of a record with this schema in a transaction that knows the columns of KNOWN."""
    known = infer_columns([("t:0:0", framed({}, KNOWN))], of_events=False).schema
    guard = NewerColumnsGuard(known, of_events, adopts_new)
    read = event_schema(known, NamingFields(("id",))) if of_events else known
    converter: ConnectJsonConverter = pickle.loads(
        pickle.dumps(ConnectJsonConverter(read, framed=True, required=None, guard=guard))
    )
    return converter.decode(pa.array([framed({"id": 1, "op": "c"}, schema)], pa.binary()))


def test_a_schema_that_adds_to_the_columns_ends_the_transaction_and_carries_its_columns() -> None:
    assert guarded(KNOWN).kept is None
    assert guarded(struct(id=of("int64"))).kept is None, "what it lacks is another's business"
    assert guarded(struct(after=KNOWN, op=of("string")), of_events=True).kept is None
    for schema, of_events in ((WIDE, False), (struct(after=WIDE, op=of("string")), True)):
        with pytest.raises(SchemaOutdated) as raised:
            guarded(schema, of_events=of_events)
        assert raised.value.changes == ("column n becomes long; it was int", "column inner.b string is added")
        assert ddl(parse_spark_json(raised.value.columns)) == (
            "id long, n long, inner struct<a:int,b:string>, tags array<struct<a:int>>"
        )


def test_a_field_that_no_table_can_get_makes_its_records_bad_unless_new_fields_are_left_out() -> None:
    for odd, found in (({"un": of("union")}, "no table has a type for union"), ({"N": of("int32")}, "spells it n")):
        schema = struct(id=of("int64"), **odd)
        (rejected,) = guarded(schema).rejected
        assert (rejected.field, found in rejected.found) == ("schema", True), rejected
        assert guarded(schema, adopts_new=False).rejected == ()
    assert guarded(struct(id=of("int64"), inner=WIDE["fields"][2]), adopts_new=False).rejected == ()
    with pytest.raises(SchemaOutdated, match="n becomes long"):
        guarded(WIDE, adopts_new=False)


TIME, MICROS_OF_DAY = of("int32", "io.debezium.time.Time"), of("int64", "io.debezium.time.MicroTime")
MICROS, DAYS = of("int64", "io.debezium.time.MicroTimestamp"), of("int32", "io.debezium.time.Date")


@pytest.mark.parametrize(
    ("before", "after", "column", "value"),
    [
        (TIME, MICROS_OF_DAY, "int", 36_000_000),
        (MICROS_OF_DAY, TIME, "long", 36_000),
        (of("int64"), MICROS, "long", 1),
        (of("int32"), DAYS, "int", 1),
        (of("double"), MICROS, "double", 1),
        (of("string"), of("bytes"), "string", "abcd"),
        (of("bytes"), of("string"), "binary", "abcd"),
        (of("array", items=of("int64")), of("array", items=MICROS), "long", [1]),
    ],
)
def test_values_that_would_be_taken_for_others_are_bad_and_name_both_types(
    before: dict[str, Any], after: dict[str, Any], column: str, value: Any
) -> None:
    known = infer_columns([("t:0:0", framed({}, struct(v=before)))], of_events=False).schema
    converter = ConnectJsonConverter(known, framed=True, guard=NewerColumnsGuard(known, False, adopts_new=True))
    record = framed({"v": value}, struct(v=after))
    (rejected,) = converter.decode(pa.array([record], pa.binary())).rejected
    assert rejected.field == ("v.element" if before["type"] == "array" else "v")
    assert rejected.expected.startswith(f"{column}, as in the table, whose values mean something else: give")
    assert rejected.found == (after.get("items", after).get("name") or after["type"])
    assert carried_columns([("t:0:9", record)], False, known)[0] == [], "it adds nothing to the columns"


def test_a_table_is_not_made_of_numbers_in_two_units() -> None:
    sample = [(f"t:0:{place}", framed({}, struct(v=kind))) for place, kind in enumerate([TIME, MICROS_OF_DAY])]
    assert infer_columns(sample, of_events=False).problems == (
        "the schema of t:0:0: column v: expected long, found io.debezium.time.Time, whose values mean something else",
    )


NAMES = st.sampled_from(["a", "b", "B"])
KINDS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.sampled_from(["int32", "int64", "string", "union"]).map(of),
    lambda inner: (
        st.dictionaries(NAMES, inner, min_size=1, max_size=2).map(lambda members: struct(**members))
        | inner.map(lambda items: of("array", items=items))
    ),
    max_leaves=5,
)
ROWS = st.dictionaries(NAMES, KINDS, min_size=1, max_size=3).map(lambda members: struct(**members))


@given(known=ROWS, newer=ROWS)
def test_no_schema_passes_whose_fields_would_be_lost(known: dict[str, Any], newer: dict[str, Any]) -> None:
    found = infer_columns([("t:0:0", framed({}, known))], of_events=False)
    assume(not found.problems)
    connect = parse_connect_schema(json.dumps(newer).encode())
    assert connect is not None
    columns = found.schema
    for _ in range(2):
        try:
            NewerColumnsGuard(columns, of_events=False, adopts_new=True)(connect)
        except SchemaProblem:
            return
        except SchemaOutdated as outdated:
            columns = evolve(columns, parse_spark_json(outdated.columns)).schema
        else:
            break
    else:
        raise AssertionError("the next transaction has the columns of the schema that ended the one before")
    assert not loses(pa.struct(list(columns)), connect)


def loses(kind: pa.DataType, connect: WireType) -> bool:
    """Whether a value of this Connect type could be read as this type, and lose a field."""
    if pa.types.is_struct(kind) and connect.kind == "struct":
        members = connect.members.items()
        return any(kind.get_field_index(name) < 0 or loses(kind.field(name).type, member) for name, member in members)
    if pa.types.is_list(kind) and connect.kind == "array" and connect.items is not None:
        return loses(kind.value_type, connect.items)
    return (
        pa.types.is_map(kind)
        and connect.kind == "map"
        and connect.items is not None
        and loses(kind.item_type, connect.items)
    )
