"""Debezium's events: which rows they write and delete, and which of them cannot be applied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.changes import BEFORE, DELETED
from hudi_ingest.records.convert.connect.debezium import (
    KEY_CHANGE_FIELDS,
    SOURCE_TABLE_FIELDS,
    UNAVAILABLE,
    AvailableValues,
    DebeziumConverter,
    KeyChanges,
    NamingFields,
    SourceTable,
    event_schema,
)
from hudi_ingest.records.convert.connect.json import ConnectJsonConverter
from hudi_ingest.records.convert.converter import Decoded
from hudi_ingest.records.schema.ddl import parse_ddl

pytestmark = pytest.mark.fast

ROW = parse_ddl("id long not null, name string not null, country string, tags array<string>, raw binary")
ANN = {"id": 1, "name": "ann", "country": "eu", "tags": ["x"], "raw": "AP8="}
BY_KEY = NamingFields(("id", "country"))
WHOLE = NamingFields(("id", "country"), whole=True)


def event(op: str | None, before: Any = None, after: Any = None, **more: Any) -> bytes:
    members = {"before": before, "after": after, "source": {"lsn": 7, "op": "x"}, "op": op, "ts_ms": 5, **more}
    return json.dumps(members, separators=(",", ":")).encode()


def decode(*values: bytes, naming: NamingFields = BY_KEY) -> Decoded:
    events = ConnectJsonConverter(event_schema(ROW, naming), framed=False)
    return AvailableValues(DebeziumConverter(events, ROW, naming)).decode(pa.array(values, pa.binary()))


TYPED = {
    "type": "struct",
    "fields": [
        {"field": name, "type": "struct", "fields": [{"field": "id", "type": "int64"}]} for name in ("before", "after")
    ],
}


def framed(value: bytes, separators: tuple[str, str] = (",", ":")) -> bytes:
    return json.dumps({"schema": TYPED, "payload": json.loads(value)}, separators=separators).encode()


def test_inserts_updates_and_snapshots_write_after_and_deletes_name_before() -> None:
    moved = {**ANN, "country": "us"}
    outcome = decode(event("r", None, ANN), event("c", None, ANN), event("u", ANN, moved), event("d", ANN, None))
    assert outcome.rejected == ()
    rows = outcome.rows.to_pylist()
    row = {**ANN, "raw": b"\x00\xff"}
    before = {"id": 1, "country": "eu"}
    assert rows == [
        {**row, DELETED: False, BEFORE: None},
        {**row, DELETED: False, BEFORE: None},
        {**row, "country": "us", DELETED: False, BEFORE: before},
        {"id": 1, "name": None, "country": "eu", "tags": None, "raw": None, DELETED: True, BEFORE: before},
    ]


def test_a_key_that_comes_from_the_records_key_needs_no_before() -> None:
    outcome = decode(event("d", {"id": "not even a number"}, None), naming=NamingFields(()))
    assert outcome.rows.to_pylist() == [{**dict.fromkeys(ROW.names), DELETED: True}]


def typed(*names: str) -> str:
    return json.dumps(
        {"type": "struct", "fields": [{"field": name, "type": "string", "optional": True} for name in names]}
    )


END = {"status": "END", "id": "1", "event_count": None, "data_collections": None}
CONTROL_RECORDS = [
    (b'{"ts_ms":5}', "heartbeats"),
    (b'{"schema":%b,"payload":{"ts_ms":"5"}}' % typed("ts_ms").encode(), "heartbeats"),
    (b'{"status":"BEGIN","id":"1","ts_ms":5,"event_count":null,"data_collections":null}', "boundaries"),
    (b'{"schema":%b,"payload":%b}' % (typed(*END).encode(), json.dumps(END).encode()), "boundaries"),
    (b'{"source":{},"ts_ms":5,"databaseName":"shop","ddl":"drop table t","tableChanges":[]}', "ddl"),
    (b'{"op":"m","ts_ms":5,"source":{},"message":{"prefix":"p","content":"AA=="}}', "messages"),
    (event("m"), "messages"),
    (event("t"), ""),
    (event("c", None, {**ANN, "name": None}), ""),
    (b"{", ""),
    (b'{"ts_ms":5,"id":1}', ""),
    (b'{"id":1,"status":"open"}', ""),
    (b'{"op":"x","message":"late"}', ""),
]


@pytest.mark.parametrize(("value", "kind"), CONTROL_RECORDS)
def test_records_about_the_log_are_told_from_bad_ones(value: bytes, kind: str) -> None:
    (found,) = decode(event("c", None, ANN), value, event("d", ANN, None)).rejected
    assert (found.index, found.control) == (1, kind)


def test_a_truncate_is_a_control_record_where_the_pipeline_says_so() -> None:
    events = ConnectJsonConverter(event_schema(ROW, BY_KEY), framed=False)
    converter = DebeziumConverter(events, ROW, BY_KEY, refused_truncates="")
    (found,) = converter.decode(pa.array([event("c", None, ANN), event("t")], pa.binary())).rejected
    assert (found.index, found.control) == (1, "truncates")


def test_changes_and_truncates_of_another_table_are_bad() -> None:
    events = ConnectJsonConverter(event_schema(ROW, BY_KEY, SOURCE_TABLE_FIELDS), framed=False)
    own, other = (
        {"schema": "public", "table": "größe", "db": "shop"},
        {"schema": "public", "table": "grüße", "db": "shop"},
    )
    values = [
        event("c", None, ANN, source=own),
        event("c", None, ANN, source=other),
        event("t", source=other),
        event("d", ANN, None, source={**own, "schema": "other"}),
        event("u", ANN, ANN, source={}),
        event("t", source=own),
    ]
    source_table = SourceTable("public", "größe")
    converter = DebeziumConverter(events, ROW, BY_KEY, refused_truncates="", source_table=source_table)
    found = converter.decode(pa.array(values, pa.binary()))
    assert found.kept is not None and found.kept.to_pylist() == [0, 4]
    assert [(fault.index, fault.field, fault.found, fault.control) for fault in found.rejected] == [
        (1, "source.table", "public.grüße", ""),
        (2, "source.table", "public.grüße", ""),
        (3, "source.table", "other.größe", ""),
        (5, "op", "t, a truncate", "truncates"),
    ]
    assert "a change of public.größe" in found.rejected[0].expected
    # MySQL's tables have a database and no schema.
    mysql = DebeziumConverter(events, ROW, BY_KEY, source_table=SourceTable("shop", "orders"))
    of_mysql = [event("c", None, ANN, source={"db": db, "table": "orders"}) for db in ("shop", "shop2")]
    assert [fault.found for fault in mysql.decode(pa.array(of_mysql, pa.binary())).rejected] == ["shop2.orders"]


def test_a_table_that_only_grows_takes_inserts_alone() -> None:
    events = ConnectJsonConverter(event_schema(ROW, NamingFields(()), ["source.lsn"]), framed=False)
    converter = DebeziumConverter(events, ROW, NamingFields(()), {"lsn": "source.lsn"}, inserts_only=True)
    values = [
        event("r", None, ANN),
        event("u", ANN, ANN),
        event("c", None, ANN),
        event("d", ANN),
        event("c"),
        event("t"),
    ]
    outcome = converter.decode(pa.array(values, pa.binary()))
    row = {**ANN, "raw": b"\x00\xff", "lsn": 7}
    assert outcome.rows.to_pylist() == [row, row]
    assert outcome.kept is not None and outcome.kept.to_pylist() == [0, 2]
    assert [(fault.index, fault.field) for fault in outcome.rejected] == [(1, "op"), (3, "op"), (4, "after"), (5, "op")]
    assert "with `table.mode: append` rows are only inserted" in outcome.rejected[0].expected


@pytest.mark.parametrize(
    ("value", "field", "expected", "found"),
    [
        (event("t"), "op", "delete the table's rows with Spark SQL", "t, a truncate"),
        (event("x"), "op", "r, c, u or d", "another operation"),
        (b'{"ts_ms":5,"id":1}', "op", "an event with `op`", "no such field"),
        (event(None, None, ANN), "op", "string, not null", "null"),
        (
            b'{"id":1,"name":"ann","__deleted":"false"}',
            "op",
            "(ExtractNewRecordState) has none (remove",
            "no such field",
        ),
        (event("c", None, '{"_id":7}'), "", "an object in `after`; MongoDB's connector sends text", '"{'),
        (event("u", ANN, None), "after", "a row, because op is r, c or u", "null"),
        (event("d", None, None), "before", "replica identity full", "null"),
        (event("c", None, {**ANN, "name": None}), "name", "string, not null", "null"),
        (event("d", {"id": "x"}, None), "id", "int (64 bit) in `before`", '"x"'),
        (event("u", ANN, {**ANN, "name": UNAVAILABLE}), "name", "replica identity full", UNAVAILABLE),
        (event("u", ANN, {**ANN, "tags": [UNAVAILABLE]}), "tags", "replica identity full", UNAVAILABLE),
        (
            event("u", ANN, {**ANN, "raw": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}),
            "raw",
            "replica identity full",
            UNAVAILABLE,
        ),
        (event("c", None, "ann"), "", "an object in `after`", '"ann"'),
        (b"{", "", "a JSON object", "no JSON"),
    ],
)
def test_what_cannot_be_applied_is_bad_and_says_why(value: bytes, field: str, expected: str, found: str) -> None:
    outcome = decode(event("c", None, ANN), value, event("d", ANN, None))
    assert outcome.kept is not None and outcome.kept.to_pylist() == [0, 2]
    (refusal,) = outcome.rejected
    assert (refusal.index, refusal.field) == (1, field)
    assert expected in refusal.expected
    assert found in refusal.found


def test_an_update_must_have_the_row_before_it_where_that_is_declared() -> None:
    update = event("u", None, ANN)
    assert decode(update).rejected == ()
    (refusal,) = decode(update, naming=WHOLE).rejected
    assert (refusal.field, refusal.found) == ("before", "null")
    assert decode(event("r", None, ANN), event("u", ANN, ANN), naming=WHOLE).rejected == ()


EVENTS = [
    event("c", None, ANN),
    event("u", ANN, {**ANN, "country": None}),
    event("d", ANN, None),
    event("d", None, None),
    event("t"),
    event("u", None, {**ANN, "name": UNAVAILABLE}),
    event("c", None, {**ANN, "id": "x"}),
    event("c", None, {**ANN, "name": "grün €"}),
    framed(event("r", None, ANN)),
    framed(event("d", ANN, None), (", ", ": ")),
    framed(event("c", None, None)),
    b'{"schema":7,"payload":{}}',
    b"",
]


@given(st.lists(st.sampled_from(EVENTS), max_size=12), st.sampled_from([BY_KEY, WHOLE, NamingFields(())]))
def test_what_becomes_of_an_event_does_not_depend_on_its_neighbours(values: list[bytes], naming: NamingFields) -> None:
    together = decode(*values, naming=naming)
    alone = [decode(value, naming=naming) for value in values]
    assert together.rows.to_pylist() == [row for outcome in alone for row in outcome.rows.to_pylist()]
    assert [refusal.index for refusal in together.rejected] == [
        place for place, outcome in enumerate(alone) if outcome.rejected
    ]
    for refusal in together.rejected:
        (same,) = alone[refusal.index].rejected
        assert (same.field, same.expected, same.found) == (refusal.field, refusal.expected, refusal.found)


def test_null_and_short_values_are_no_placeholder() -> None:
    assert decode(event("u", ANN, {**ANN, "tags": [None], "raw": None})).rejected == ()
    assert decode(event("u", ANN, {**ANN, "tags": [], "country": None})).rejected == ()


def test_fields_that_are_not_declared_are_ignored() -> None:
    outcome = decode(
        event("u", {**ANN, "email": 1}, {**ANN, "email": {"new": [1]}}, transaction={"id": "9"}, more=[{}])
    )
    assert outcome.rejected == () and outcome.rows.num_rows == 1


def test_connects_schema_says_what_after_and_before_hold() -> None:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    fields = [{"field": "id", "type": "int32"}, {**decimal, "field": "cents"}]
    row = {"type": "struct", "optional": True, "fields": fields}
    schema = {
        "type": "struct",
        "fields": [{**row, "field": "before"}, {**row, "field": "after"}, {"field": "op", "type": "string"}],
    }
    columns = parse_ddl("id long not null, cents decimal(12,2)")
    naming = NamingFields(("id", "cents"))
    converter = DebeziumConverter(ConnectJsonConverter(event_schema(columns, naming), framed=False), columns, naming)

    def framed(payload: bytes) -> bytes:
        return json.dumps({"schema": schema, "payload": json.loads(payload)}, separators=(",", ":")).encode()

    values = [
        framed(event("u", {"id": 1, "cents": "AP8="}, {"id": 1, "cents": "/w=="})),
        framed(event("d", {"id": 1, "cents": "/w=="}, None)),
        framed(event("c", None, {"id": 1, "cents": "?"})),
    ]
    outcome = converter.decode(pa.array(values, pa.binary()))
    assert [(str(row["cents"]), row[DELETED]) for row in outcome.rows.to_pylist()] == [
        ("-0.01", False),
        ("-0.01", True),
    ]
    assert [(refusal.index, refusal.field) for refusal in outcome.rejected] == [(2, "cents")]


def test_an_event_of_mysql() -> None:
    kinds: dict[str, dict[str, Any]] = {
        "id": {"type": "int32"},
        "paid": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        "made": {"type": "int64", "name": "io.debezium.time.Timestamp"},
        "sent": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        "seen": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        "since": {"type": "int32", "name": "io.debezium.time.Year"},
        "active": {"type": "int16"},
    }
    row = {"type": "struct", "optional": True, "fields": [{**kind, "field": name} for name, kind in kinds.items()]}
    members = [{**row, "field": "before"}, {**row, "field": "after"}, {"field": "op", "type": "string"}]
    before = {
        "id": 7,
        "paid": "AIw=",
        "made": 1769862896789,
        "sent": 1,
        "seen": "2026-01-31T10:00:00Z",
        "since": 2026,
        "active": 1,
    }
    source = {"connector": "mysql", "gtid": None, "file": "binlog.000003", "pos": 484, "row": 0, "thread": 7}
    payload = {"before": before, "after": {**before, "paid": "AQ==", "active": 0}, "source": source, "op": "u"}
    columns = parse_ddl(
        "id int, paid decimal(9,2), made timestamp, sent timestamp, seen timestamp, since int, active int"
    )
    naming = NamingFields(("id", "made"), whole=True)
    converter = DebeziumConverter(ConnectJsonConverter(event_schema(columns, naming), framed=False), columns, naming)
    value = json.dumps({"schema": {"type": "struct", "fields": members}, "payload": payload}).encode()
    (changed,) = converter.decode(pa.array([value], pa.binary())).rows.to_pylist()
    assert {name: str(changed[name]) for name in columns.names} == {
        "id": "7",
        "paid": "0.01",
        "made": "2026-01-31 12:34:56.789000+00:00",
        "sent": "1970-01-01 00:00:00.000001+00:00",
        "seen": "2026-01-31 10:00:00+00:00",
        "since": "2026",
        "active": "0",
    }
    assert changed[BEFORE] == {"id": 7, "made": changed["made"]}


# ---- What Debezium 3.3 wrote for the same changes of a table in PostgreSQL 15

CUSTOMERS = parse_ddl(
    "id long not null, name string not null, country string, balance decimal(12,2) not null, ratio double, small int, "
    "flag boolean not null, created date not null, at timestamp not null, at3 timestamp, seen timestamp not null, tod long, "
    "raw binary, doc string, tags array<string>, uid string, mood string, email string"
)
WITHOUT_UNITS = parse_ddl(
    "id long not null, name string not null, country string, balance decimal(12,2) not null, created date not null, at long, "
    "seen timestamp not null"
)


def recorded(name: str, columns: pa.Schema, naming: NamingFields, placeholder: str = UNAVAILABLE) -> Decoded:
    """The events, without the tombstones after deletes."""
    text = (Path(__file__).parent / "debezium" / f"{name}.jsonl").read_text(encoding="utf-8")
    values = [json.loads(line)["value"] for line in text.splitlines()]
    events = ConnectJsonConverter(event_schema(columns, naming), framed=False)
    values = [value.encode() for value in values if value is not None]
    return AvailableValues(DebeziumConverter(events, columns, naming), placeholder).decode(
        pa.array(values, pa.binary())
    )


def brief(outcome: Decoded, *names: str) -> list[tuple[Any, ...]]:
    return [
        tuple(row[name] if name in ("id", "name", "country", "small") else str(row[name]) for name in names)
        for row in outcome.rows.to_pylist()
    ]


def test_events_with_schemas_of_a_table_that_sends_only_keys() -> None:
    outcome = recorded("postgresql_with_schemas", CUSTOMERS, NamingFields(("id",)))
    first = outcome.rows.to_pylist()[0]
    assert {name: str(value) for name, value in first.items()} == {
        "id": "1",
        "name": "n1",
        "country": "eu",
        "balance": "100.25",
        "ratio": "0.5",
        "small": "7",
        "flag": "True",
        "created": "2026-01-31",
        "at": "2026-01-31 12:34:56.123456+00:00",
        "at3": "2026-01-31 12:34:56.789000+00:00",
        "seen": "2026-01-31 10:34:56.123456+00:00",
        "tod": "36672000000",
        "raw": str(b"\x00\xff"),
        "doc": '{"a": 1}',
        "tags": "['x', 'y']",
        "uid": "6e8bc430-9c3a-11d9-9669-0800200c9a66",
        "mood": "abc",
        "email": "None",
        DELETED: "False",
        BEFORE: "None",
    }
    assert brief(outcome, "id", "balance", "at", "email", DELETED)[1:] == [
        (1, "-0.05", "1969-12-31 23:59:59.500000+00:00", "None", "False"),
        (2, "200.25", "2026-01-31 12:34:56.123456+00:00", "None", "False"),
        (3, "None", "None", "None", "True"),
        (30, "300.25", "2026-01-31 12:34:56.123456+00:00", "None", "False"),
        (4, "None", "None", "None", "True"),
        (5, "500.25", "2026-01-31 12:34:56.123456+00:00", "None", "False"),
        (6, "1234567890.12", "2026-01-01 00:00:00+00:00", "a@b", "False"),
    ]
    assert [(refusal.index, refusal.field, refusal.found) for refusal in outcome.rejected] == [
        (7, "doc", UNAVAILABLE),
        (9, "op", "t, a truncate"),
    ]


def test_only_the_declaration_tells_a_whole_row_from_a_key() -> None:
    outcome = recorded("postgresql_with_schemas", CUSTOMERS, NamingFields(("id", "seen"), whole=True))
    deleted = [row["seen"].isoformat() for row in outcome.rows.to_pylist() if row[DELETED]]
    assert set(deleted) == {"1970-01-01T00:00:00+00:00"}, "Debezium's filling, which nobody could tell from a time"
    refused = [refusal.index for refusal in outcome.rejected if refusal.field == "before"]
    assert refused == [1, 2, 6, 7], "updates without `before` show that the declaration is wrong"


def test_events_without_schemas_of_a_table_that_sends_whole_rows() -> None:
    outcome = recorded(
        "postgresql_with_decimals_as_strings", WITHOUT_UNITS, NamingFields(("id", "country"), whole=True)
    )
    assert outcome.rejected == ()
    assert brief(outcome, "id", "country", "balance", "created", "at", "seen", DELETED) == [
        (1, "eu", "100.25", "2026-01-31", "1769862896123", "2026-01-31 10:34:56.123456+00:00", "False"),
        (1, "eu", "-0.05", "2026-01-31", "-500", "2026-01-31 10:34:56.123456+00:00", "False"),
        (3, "eu", "None", "None", "None", "None", "True"),
        (6, None, "1234567890.12", "0001-01-01", "1767225600000", "2026-01-01 00:00:00+00:00", "False"),
    ]


def test_decimals_in_base64_need_the_schema() -> None:
    outcome = recorded("postgresql_without_schemas", WITHOUT_UNITS, NamingFields(("id",), whole=True))
    assert {refusal.field for refusal in outcome.rejected} == {"balance", "op"}
    assert '"Jyk="' in outcome.rejected[0].found
    assert "set decimal.handling.mode to string" in outcome.rejected[0].expected
    without = pa.schema([field for field in WITHOUT_UNITS if field.name != "balance"])
    outcome = recorded("postgresql_without_schemas", without, NamingFields(("id", "country"), whole=True))
    assert [refusal.field for refusal in outcome.rejected] == ["op"]
    moved = [row for row in outcome.rows.to_pylist() if row[BEFORE] and row[BEFORE]["country"] != row["country"]]
    assert [(row["id"], row["country"], row[BEFORE]["country"]) for row in moved] == [(2, "us", "eu")]


def test_times_of_connect() -> None:
    outcome = recorded("postgresql_with_connect_times", CUSTOMERS, NamingFields(("id",)))
    assert outcome.rejected == ()
    assert brief(outcome, "at", "created")[:2] == [
        ("2026-01-31 12:34:56.123000+00:00", "2026-01-31"),
        ("1969-12-31 23:59:59.500000+00:00", "2026-01-31"),
    ]


# ---- What Debezium 3.3 wrote for an update that leaves large values unchanged, for NaN, and for infinite times and dates

LARGE = {
    "body": "string",
    "j": "string",
    "raw": "binary",
    "h": "string",
    "scores": "array<int>",
    "refs": "array<long>",
    "owners": "array<string>",
    "tags": "array<string>",
    "vc": "array<string>",
    "days": "array<date>",
    "raws": "array<binary>",
}
INFINITE = ["valid_to timestamp", "ts3 timestamp", "seen timestamp", "day date"]


def faults_of(name: str, columns: str, placeholder: str = UNAVAILABLE) -> list[tuple[str, str]]:
    outcome = recorded(name, parse_ddl(f"id long, {columns}"), NamingFields(("id",)), placeholder)
    return [(refusal.field, refusal.expected) for refusal in outcome.rejected]


@pytest.mark.parametrize(
    ("recording", "placeholder", "kinds"),
    [
        ("with_schemas", UNAVAILABLE, LARGE),
        (
            "without_schemas",
            UNAVAILABLE,
            {name: kind for name, kind in LARGE.items() if name not in ("days", "raws")}
            | {"raw": "string", "h": "map<string,string>"},
        ),
        (
            "with_own_placeholder",
            "__gone__",
            {name: kind for name, kind in LARGE.items() if name not in ("raw", "days", "raws")},
        ),
    ],
)
def test_no_column_gets_the_placeholder_of_an_unchanged_value(
    recording: str, placeholder: str, kinds: dict[str, str]
) -> None:
    for name, kind in kinds.items():
        ((field, expected),) = faults_of(f"postgresql_left_out_{recording}", f"{name} {kind}", placeholder)
        assert field == name
        assert "replica identity full" in expected


@pytest.mark.parametrize("recording", ["with_schemas", "without_schemas"])
def test_floats_that_are_no_numbers_are_kept(recording: str) -> None:
    columns = parse_ddl("id long, f double, g float")
    outcome = recorded(f"postgresql_left_out_{recording}", columns, NamingFields(("id",)))
    assert outcome.rejected == ()
    row = next(row for row in outcome.rows.to_pylist() if row["id"] == 3)
    assert (str(row["f"]), str(row["g"])) == ("nan", "-inf")


@pytest.mark.parametrize("recording", ["with_schemas", "without_schemas"])
@pytest.mark.parametrize("column", INFINITE)
def test_the_reason_says_that_a_time_is_infinite_and_what_to_do(recording: str, column: str) -> None:
    name = column.partition(" ")[0]
    faults = faults_of(f"postgresql_left_out_{recording}", column)
    assert [field for field, _ in faults] == [name, name]
    for (_, expected), infinity in zip(faults, ("infinity", "-infinity"), strict=True):
        assert f"; PostgreSQL's {infinity} is none: declare the column as " in expected
    kept = "string" if "declare the column as string" in faults[0][1] else "long"
    assert faults_of(f"postgresql_left_out_{recording}", f"{name} {kept}") == []


def test_the_events_of_a_changed_key_have_the_same_position_in_the_log() -> None:
    """Keys that changed twice in a transaction of the database, once, and to that of a row deleted before."""
    text = (Path(__file__).parent / "debezium" / "postgresql_changed_keys.jsonl").read_text(encoding="utf-8")
    values = [json.loads(line)["value"] for line in text.splitlines()]
    lacking = [place for place, value in enumerate(values) if value and UNAVAILABLE in value]
    changes = KeyChanges(ConnectJsonConverter(KEY_CHANGE_FIELDS, framed=False))
    records = pa.array([value and value.encode() for value in values], pa.binary())
    offsets = pa.array(range(100, 100 + len(values)))
    assert (lacking, changes.old_keys(offsets, records, lacking).to_pylist()) == ([2, 5, 6, 11], [100, 103, -1, 109])
