"""Pipelines of change events: from the file to rows and deletes."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from hudi_ingest.exceptions import SchemaOutdated, SchemaRefused
from hudi_ingest.hudi.timeline.timeline import RECORD_PROPERTY, SOURCE_PROPERTY, Timeline
from hudi_ingest.kafka.records import RECORDS
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.changes import DELETED, LEFT_OUT, OLD_KEY
from hudi_ingest.records.convert.avro.converter import OneSchema
from hudi_ingest.records.convert.connect.avro import ConnectAvroConverter, with_meant_defaults
from hudi_ingest.records.convert.connect.columns import infer_columns
from hudi_ingest.records.convert.connect.debezium import UNAVAILABLE
from hudi_ingest.records.row_maker import BatchOutcome, RowMaker
from hudi_ingest.records.schema.avro import resolution_of
from hudi_ingest.records.schema.columns import ddl, parse_spark_json, spark_json
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.transaction.columns import schema_change
from hudi_ingest.transaction.columns.decoding import converter_of, format_problems, row_maker_of
from hudi_ingest.transaction.columns.registered_columns import changed_meanings_of, columns_of
from hudi_ingest.transaction.columns.schema_change import resolve_and_note, resolve_schema
from hudi_ingest_tests.support.pipeline_files import Write, load, problems
from hudi_ingest_tests.support.registry import canned_registry
from hudi_ingest_tests.unit.records.convert.test_connect_avro import ANN, NEW, OLD
from hudi_ingest_tests.unit.records.convert.test_connect_avro import event as avro_event
from hudi_ingest_tests.unit.records.convert.test_connect_json import framed, struct
from hudi_ingest_tests.unit.records.convert.test_connect_json import of as connect

pytestmark = pytest.mark.fast

SUBJECT = "shop.public.customers-value"
NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
CUSTOMERS: dict[str, Any] = {
    "source__topics": ["shop.public.customers"],
    "source__envelope": "debezium",
    "table__mode": "upsert",
    "table__key": ["id"],
    "table__schema": "id long not null, name string not null, country string, changed_at timestamp",
}


def maker_of(pipeline: Pipeline, kafka_partitions: int = 1) -> RowMaker:
    columns = spark_json(pipeline.table_schema.columns)
    schema = TransactionSchema("declared", spark_json(pipeline.table.record), columns, True)
    maker: RowMaker = pickle.loads(pickle.dumps(row_maker_of(pipeline, schema, NOW, kafka_partitions)))
    return maker


def made(pipeline: Pipeline, *values: bytes | None, keys: list[bytes | None] | None = None) -> BatchOutcome:
    return maker_of(pipeline).make(TopicPartition(pipeline.source.topics[0], 0), batch_of(pipeline, values, keys))


def batch_of(
    pipeline: Pipeline, values: Sequence[bytes | None], keys: list[bytes | None] | None = None
) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "topic": [*pipeline.source.topics] * count,
            "partition": [0] * count,
            "offset": [*range(count)],
            "timestamp": [NOW] * count,
            "key": keys or [None] * count,
            "value": [*values],
            "headers": [None] * count,
        },
        schema=RECORDS,
    )


def event(op: str, before: Any = None, after: Any = None) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op}, separators=(",", ":")).encode()


def rows_of(outcome: BatchOutcome, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*outcome.rows.select([*names, DELETED]).to_pydict().values(), strict=True))


ORDERED = {"source__event_columns": {"lsn": "source.lsn"}, "table__ordering": "lsn"}


@pytest.mark.parametrize(
    ("settings", "kafka_partitions", "truncated_at", "refused"),
    [
        ({}, 1, 3, ""),
        ({}, 3, None, "because the table is written from 3 Kafka partitions"),
        ({"source__on_truncate": "skip"}, 3, None, ""),
        (
            {"source__on_truncate": "fail"},
            1,
            None,
            "because `source.on_truncate` is fail (`apply` deletes the table's rows); skip it",
        ),
        (ORDERED, 1, None, "because `table.ordering` does not say"),
        ({**ORDERED, "source__on_truncate": "skip"}, 1, None, ""),
    ],
)
def test_a_truncate_is_applied_where_offsets_say_what_was_before_it(
    write: Write, settings: dict[str, Any], kafka_partitions: int, truncated_at: int | None, refused: str
) -> None:
    pipeline = load(write, **CUSTOMERS, **settings)
    ann = json.dumps({"op": "c", "after": {"id": 1, "name": "ann"}, "source": {"lsn": 7}}).encode()
    values = [ann, event("t"), ann, event("t"), ann, None]
    outcome = maker_of(pipeline, kafka_partitions).make(TopicPartition("t", 0), batch_of(pipeline, values))
    assert (outcome.rows.num_rows, outcome.truncated_at) == (3, truncated_at)
    if refused:
        assert [(bad.index, bad.field, bad.found) for bad in outcome.bad] == [
            (1, "op", "t, a truncate"),
            (3, "op", "t, a truncate"),
        ]
        assert refused in outcome.bad[0].expected
        return
    assert (outcome.bad, outcome.skipped, outcome.control) == ((), 3, {1: "truncates", 3: "truncates"})


def test_tables_that_only_grow_refuse_truncates(write: Write) -> None:
    append = {**CUSTOMERS, "table__mode": "append"}
    del append["table__key"]
    (bad,) = made(load(write, **append), event("t")).bad
    assert "because rows can only be deleted with `table.mode: upsert`" in bad.expected
    told = problems(write, source__on_truncate="skip")
    assert told == ["source.on_truncate: only with `envelope: debezium`, and that is none; remove it"]


def test_events_become_rows_deletes_and_moves(write: Write) -> None:
    pipeline = load(
        write,
        **CUSTOMERS,
        source__before_image="row",
        table__partition_by=["region"],
        transforms=[
            {"filter": {"field": "name", "op": "!=", "value": "test"}},
            {"rename": {"country": "region"}},
            {"constant": {"column": "origin", "value": "shop"}},
        ],
    )
    assert format_problems(pipeline) == ()
    eu, us = {"id": 1, "name": "ann", "country": "eu"}, {"id": 1, "name": "ann", "country": "us"}
    outcome = made(
        pipeline,
        event("c", None, eu),
        event("u", eu, us),
        event("d", us),
        None,
        event("c", None, {**eu, "name": "test"}),
    )
    assert outcome.bad == ()
    assert rows_of(outcome, "id", "region", "name") == [
        (1, "eu", "ann", False),
        (1, "eu", "ann", True),
        (1, "us", "ann", False),
        (1, "us", None, True),
    ]
    assert (outcome.moves, outcome.skipped, outcome.filtered) == (1, 1, 1)
    unmoved = made(pipeline, event("u", None, us))
    assert [(bad.field, bad.found) for bad in unmoved.bad] == [("before", "null")]


def test_only_a_table_that_needs_the_row_before_an_update_refuses_one_without_it(write: Write) -> None:
    pipeline = load(write, **CUSTOMERS, source__before_image="row")
    ann = {"id": 1, "name": "ann", "country": "eu"}
    outcome = made(pipeline, event("u", None, ann), event("u", ann, {**ann, "id": 2}), event("d", {"id": 2}))
    assert outcome.bad == ()
    assert rows_of(outcome, "id") == [(1, False), (1, True), (2, False), (2, True)]


def test_the_ordering_of_a_delete_is_that_of_the_row_it_deletes(write: Write) -> None:
    pipeline = load(write, **CUSTOMERS, source__before_image="row", table__ordering="changed_at")
    full = {"id": 1, "name": "ann", "changed_at": "2026-01-31T10:00:00Z"}
    key_only = {"id": 1, "name": None, "changed_at": None}
    outcome = made(pipeline, event("d", full), event("d", key_only))
    assert rows_of(outcome, "id", "changed_at") == [(1, datetime(2026, 1, 31, 10, tzinfo=timezone.utc), True)]
    assert [(bad.index, bad.field) for bad in outcome.bad] == [(1, "changed_at")]


def test_an_event_can_say_itself_when_it_happened(write: Write) -> None:
    columns = {"lsn": "source.lsn", "op": "op", "sent_at": "ts_ms"}
    pipeline = load(write, **CUSTOMERS, source__event_columns=columns, table__ordering="lsn")
    values = [
        json.dumps(
            {"before": before, "after": after, "op": op, "ts_ms": 5, "source": {"lsn": lsn, "table": "x"}}
        ).encode()
        for op, before, after, lsn in (("c", None, {"id": 1, "name": "ann"}, 7), ("d", {"id": 1, "name": ""}, None, 9))
    ]
    outcome = made(pipeline, *values, event("d", {"id": 1}))
    assert rows_of(outcome, "id", "name", "lsn", "op", "sent_at") == [
        (1, "ann", 7, "c", 5, False),
        (1, None, 9, "d", 5, True),
    ]
    assert [(bad.index, bad.field) for bad in outcome.bad] == [(2, "lsn")]
    told = problems(write, **CUSTOMERS, source__event_columns={"x": "source.lsm"})
    assert told[0].startswith("source.event_columns.x: found 'source.lsm'; allowed: op, ts_ms")
    told = problems(write, **CUSTOMERS, source__event_columns={"Name": "op"})
    assert told[0].startswith(
        "source.event_columns: together with table.schema, column Name: differs from name only in case"
    )
    told = problems(write, source__event_columns={"x": "op"})
    assert told == ["source.event_columns: only with `envelope: debezium`, and that is none; remove it"]


def test_a_delete_that_may_hold_only_the_key_names_only_the_key(write: Write) -> None:
    told = problems(write, **CUSTOMERS, table__partition_by=["country"], table__ordering="changed_at")
    assert [line.partition(":")[0] for line in told] == ["table.partition_by[0]", "table.ordering"]
    assert all("is not in the key, and so not in a delete" in line for line in told)
    by_key = load(
        write,
        **CUSTOMERS,
        table__partition_by=["shard"],
        transforms=[{"sql": "select *, id % 4 as shard from records"}],
    )
    outcome = made(by_key, event("d", {"id": 7, "name": "", "country": ""}), event("u", None, {"id": 7, "name": "x"}))
    assert rows_of(outcome, "id", "shard", "country") == [(7, 3, None, True), (7, 3, None, False)]


def test_a_delete_that_a_query_leaves_out_is_bad_because_its_row_would_stay(write: Write) -> None:
    pipeline = load(write, **CUSTOMERS, transforms=[{"sql": "select * from records where name <> 'test'"}])
    outcome = made(pipeline, event("c", None, {"id": 1, "name": "test"}), event("d", {"id": 1, "name": "ann"}))
    assert outcome.filtered == 1
    assert [(bad.index, bad.found) for bad in outcome.bad] == [(1, "a delete that one of them leaves out")]


def test_a_row_that_is_only_marked_as_deleted_leaves_the_table(write: Write) -> None:
    marked = "select *, changed_at is not null as gone from records"
    pipeline = load(write, **CUSTOMERS, transforms=[{"sql": marked}], table__delete_field="gone")
    row = {"id": 1, "name": "ann"}
    outcome = made(
        pipeline, event("c", None, row), event("u", None, {**row, "changed_at": "2026-01-31"}), event("d", row, None)
    )
    assert outcome.bad == ()
    assert rows_of(outcome, "id", "name") == [(1, "ann", False), (1, "ann", True), (1, None, True)]
    assert "gone" not in outcome.rows.schema.names


def test_messages_show_nothing_that_is_masked(write: Write) -> None:
    pipeline = load(write, **CUSTOMERS, transforms=[{"mask": {"fields": ["name"], "method": "redact"}}])
    secret = "hunter2"
    values = [
        event("c", None, {"id": 1, "name": {"x": secret}}),
        event("c", None, {"id": 1, "name": [secret]}),
        event("c", None, secret),
        event("d", secret),
        event("c", None, {"id": secret, "name": secret}),
        json.dumps({"schema": secret, "payload": secret}).encode(),
        json.dumps({"op": "c", "after": 1, secret: secret}).encode()[:-1],
    ]
    outcome = made(pipeline, *values)
    assert [bad.index for bad in outcome.bad] == [*range(7)]
    assert secret not in str([bad for bad in outcome.bad if bad.field != "id"])


def test_connects_envelope_may_be_around_records_of_any_table(write: Write) -> None:
    pipeline = load(write, source__envelope="connect", table__schema="id string, day date")
    record = {
        "schema": {
            "type": "struct",
            "fields": [{"field": "day", "type": "int32", "name": "org.apache.kafka.connect.data.Date"}],
        },
        "payload": {"id": "a", "day": 1},
    }
    outcome = made(pipeline, json.dumps(record).encode(), b'{"id": "b"}')
    assert [(row["id"], str(row["day"])) for row in outcome.rows.to_pylist()] == [("a", "1970-01-02")]
    assert [bad.index for bad in outcome.bad] == [1]


def test_columns_that_a_transaction_found_are_those_of_after(write: Write) -> None:
    pipeline = load(write, **{**CUSTOMERS, "table__schema": "infer"})
    sample = event("c", None, {"id": 1, "name": "ann"})
    found = infer_columns([("t:0:0", sample)], of_events=True).schema
    columns = pipeline.with_record(found).table_schema.columns
    schema = TransactionSchema("inferred", spark_json(found), spark_json(columns), declared=False)
    outcome = row_maker_of(pipeline, schema, NOW).make(TopicPartition("t", 0), batch_of(pipeline, [sample]))
    assert rows_of(outcome, "id", "name") == [(1, "ann", False)]


def test_a_renamed_column_of_inferred_ones_is_named_and_a_delete_with_its_schema_deletes(write: Write) -> None:
    def of(op: str, after: Any, name: str) -> bytes:
        row = struct(id=connect("int64"), **{name: connect("string")})
        return framed(
            {"before": {"id": 1}, "after": after, "op": op}, struct(before=row, after=row, op=connect("string"))
        )

    pipeline = load(write, **{**CUSTOMERS, "table__schema": "infer"})
    found = infer_columns([("t:0:0", of("c", {"id": 1, "city": "x"}, "city"))], of_events=True).schema
    columns = pipeline.with_record(found).table_schema.columns
    schema = TransactionSchema("inferred", spark_json(found), spark_json(columns), declared=False)
    records = [of("u", {"id": 1, "town": "y"}, "town"), of("d", None, "town")]
    outcome = row_maker_of(pipeline, schema, NOW).make(TopicPartition("t", 0), batch_of(pipeline, records))
    assert [(bad.index, bad.field) for bad in outcome.bad] == [(0, "city")]
    assert "not among the columns: town" in outcome.bad[0].found
    assert rows_of(outcome, "id", "city") == [(1, None, True)]


def test_columns_of_registered_events_are_those_of_after_and_follow_the_registry(write: Write, tmp_path: Path) -> None:
    def version(number: int, text: str) -> dict[str, Any]:
        return {"subject": SUBJECT, "version": number, "id": number, "schema": text, "schemaType": "AVRO"}

    values = pa.array([avro_event(1, "c", None, ANN), avro_event(2, "c", None, {**ANN, "email": "a@b"})], pa.binary())
    answers: dict[str, object] = {
        f"/subjects/{SUBJECT}/versions": [1],
        f"/subjects/{SUBJECT}/versions/1": version(1, OLD),
    }
    with canned_registry(answers) as (url, _):
        pipeline = load(
            write,
            **{**CUSTOMERS, "table__schema": None},
            source__format="avro",
            source__schema_registry={"url": url},
            table__base_path=str(tmp_path / "table"),
        )
        first = resolve_schema(pipeline, Timeline(pipeline.table.base_path))
        answers |= {
            f"/subjects/{SUBJECT}/versions": [1, 2],
            f"/subjects/{SUBJECT}/versions/2": version(2, NEW),
            "/schemas/ids/2": version(2, NEW),
        }
        with pytest.raises(SchemaOutdated, match="column email string is added"):
            converter_of(pipeline.with_record(parse_spark_json(first.record)), first).decode(values)
        second = resolve_schema(pipeline, Timeline(pipeline.table.base_path))
        outcome = converter_of(pipeline.with_record(parse_spark_json(second.record)), second).decode(values)
    assert outcome.rejected == ()
    assert [(row["id"], row["email"], row["at"].year) for row in outcome.rows.to_pylist()] == [
        (1, None, 2026),
        (1, "a@b", 2026),
    ]


def test_a_field_that_the_registry_no_longer_has_is_not_erased_from_a_keyed_table(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest = {"subject": SUBJECT, "version": 1, "id": 1, "schema": OLD, "schemaType": "AVRO"}
    answers: dict[str, object] = {f"/subjects/{SUBJECT}/versions": [1], f"/subjects/{SUBJECT}/versions/1": latest}
    with canned_registry(answers) as (url, _):
        settings: dict[str, Any] = {
            **CUSTOMERS,
            "table__schema": None,
            "source__format": "avro",
            "source__schema_registry": {"url": url},
            "table__base_path": str(tmp_path / "table"),
        }
        pipeline = load(write, **settings)
        timeline = Timeline(pipeline.table.base_path)
        known = parse_spark_json(resolve_schema(pipeline, timeline).record)
        stored = spark_json(pa.schema([*known, pa.field("email", pa.string())]))
        monkeypatch.setattr(Timeline, "exists", lambda self: True)
        monkeypatch.setattr(Timeline, "is_empty", lambda self: True)
        monkeypatch.setattr(Timeline, "properties", lambda self: {RECORD_PROPERTY: stored})
        with pytest.raises(SchemaRefused, match=rf"version 1 of {SUBJECT}.*fields email.*erase.*optional_fields"):
            resolve_schema(pipeline, timeline)
        accepted = load(write, **settings, source__optional_fields=["email"])
        assert parse_spark_json(resolve_schema(accepted, timeline).record).names == [*known.names, "email"]


def test_an_event_whose_schema_lost_a_declared_column_erases_nothing_and_a_delete_may_still_delete(
    write: Write,
) -> None:
    # The newer version is the one that lacks the column.
    versions = [
        {"subject": SUBJECT, "version": 1, "id": 2, "schema": NEW, "schemaType": "AVRO"},
        {"subject": SUBJECT, "version": 2, "id": 1, "schema": OLD, "schemaType": "AVRO"},
    ]
    answers: dict[str, object] = {f"/subjects/{SUBJECT}/versions": [1, 2]}
    answers |= {f"/subjects/{SUBJECT}/versions/{at}": version for at, version in enumerate(versions, 1)}
    whole = avro_event(2, "c", None, {**ANN, "email": "a@b"})
    values = [whole, avro_event(1, "c", None, ANN), avro_event(1, "d", ANN)]
    with canned_registry(answers) as (url, _):
        settings: dict[str, Any] = {
            **CUSTOMERS,
            "table__schema": "id long not null, name string not null, email string, planned string",
            "source__format": "avro",
            "source__schema_registry": {"url": url},
        }
        outcome = made(load(write, **settings), *values)
        accepted = made(load(write, **settings, source__optional_fields=["email"]), *values)
    assert [(bad.index, bad.field) for bad in outcome.bad] == [(1, "email")]
    assert "erase its value in the table" in outcome.bad[0].expected
    assert "not among the columns" in outcome.bad[0].found
    assert rows_of(outcome, "id", "email") == [(1, "a@b", False), (1, None, True)]
    assert rows_of(accepted, "id", "email") == [(1, "a@b", False), (1, None, False), (1, None, True)]


def test_a_record_whose_schema_lacks_a_column_may_delete_by_its_own_field(write: Write) -> None:
    def record(**fields: Any) -> bytes:
        types = [{"field": name, "type": "int64" if name == "id" else "string"} for name in fields]
        return json.dumps({"schema": {"type": "struct", "fields": types}, "payload": fields}).encode()

    pipeline = load(
        write,
        **{
            **CUSTOMERS,
            "source__envelope": "connect",
            "table__schema": "id long not null, name string, deleted string",
            "table__delete_field": "gone",
        },
        transforms=[
            {"rename": {"deleted": "gone"}},
            {"filter": {"field": "id", "op": "<", "value": 90}},
            {"cast": {"gone": "boolean"}},
        ],
    )
    outcome = made(
        pipeline,
        record(id=1, name="ann", deleted="false"),
        record(id=2, deleted="true"),
        record(id=3, deleted="false"),
        record(id=4, name="bob", deleted="true"),
        record(id=91, deleted="false"),
        record(id=5, name="cat"),
        record(id=6, deleted="true"),
        b"{",
    )
    assert [(bad.index, bad.field) for bad in outcome.bad] == [(2, "name"), (4, "name"), (5, "deleted"), (7, "")]
    assert "erase its value in the table" in outcome.bad[0].expected
    assert rows_of(outcome, "id", "name") == [
        (1, "ann", False),
        (2, None, True),
        (4, "bob", True),
        (6, None, True),
    ]
    assert outcome.kept is not None and outcome.kept.to_pylist() == [0, 1, 3, 6]


def test_a_delete_needs_only_its_key_whatever_its_schema_or_its_record_lacks(write: Write) -> None:
    version = {"subject": SUBJECT, "version": 1, "id": 1, "schema": OLD, "schemaType": "AVRO"}
    answers = {f"/subjects/{SUBJECT}/versions": [1], f"/subjects/{SUBJECT}/versions/1": version}
    with canned_registry(answers) as (url, _):
        pipeline = load(
            write,
            **{**CUSTOMERS, "table__schema": "id long not null, name string not null, email string not null"},
            source__format="avro",
            source__schema_registry={"url": url},
            transforms=[{"filter": {"field": "email", "op": "!=", "value": "test"}}],
        )
        moved = avro_event(1, "u", {**ANN, "id": 2}, ANN)
        outcome = made(pipeline, avro_event(1, "c", None, ANN), avro_event(1, "d", ANN), moved)
    assert [(bad.index, bad.field) for bad in outcome.bad] == [(0, "email"), (2, "email")]
    assert rows_of(outcome, "id", "name") == [(1, None, True)]

    by_field = load(
        write,
        **{
            **CUSTOMERS,
            "source__envelope": "none",
            "table__schema": "id long not null, name string not null, gone boolean",
            "table__delete_field": "gone",
        },
    )
    lines = [{"id": 1, "gone": True}, {"id": 2, "gone": False}, {"id": 3}, {"gone": True}, {"id": 4, "name": "d"}]
    outcome = made(by_field, *(json.dumps(line).encode() for line in lines))
    assert [(bad.index, bad.field) for bad in outcome.bad] == [(1, "name"), (2, "name"), (3, "id")]
    assert rows_of(outcome, "id", "name") == [(1, None, True), (4, "d", False)]


def test_fields_of_events_under_an_alias_keep_their_meaning_and_name_the_row(write: Write, tmp_path: Path) -> None:
    version = {"subject": SUBJECT, "version": 1, "id": 1, "schema": OLD, "schemaType": "AVRO"}
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [
        {"name": "number", "aliases": ["id"], "type": "long"},
        {"name": "moment", "aliases": ["at"], "type": ["null", micros], "default": None},
        {"name": "days", "type": {"type": "array", "items": ["null", {"type": "int", "logicalType": "date"}]}},
    ]
    (tmp_path / "row.avsc").write_text(json.dumps({"type": "record", "name": "Row", "fields": fields}))
    answers = {f"/subjects/{SUBJECT}/versions": [1], f"/subjects/{SUBJECT}/versions/1": version}
    with canned_registry(answers) as (url, _):
        pipeline = load(
            write,
            **{**CUSTOMERS, "table__schema": None, "table__key": ["number"]},
            table__schema_file=str(tmp_path / "row.avsc"),
            source__format="avro",
            source__schema_registry={"url": url},
        )
        outcome = made(pipeline, avro_event(1, "c", None, ANN), avro_event(1, "d", ANN, None))
    assert outcome.bad == ()
    made_at = datetime(2026, 1, 31, 12, 34, 56, 123456, timezone.utc)
    assert rows_of(outcome, "number", "moment") == [(1, made_at, False), (1, None, True)]


def test_a_delete_with_connects_schema_needs_no_columns(write: Write) -> None:
    def with_schema(record: dict[str, Any]) -> bytes:
        row = [{"field": "id", "type": "int64", "optional": True}]
        fields = [{"field": name, "type": "struct", "optional": True, "fields": row} for name in ("before", "after")]
        schema = {"type": "struct", "fields": [*fields, {"field": "op", "type": "string"}]}
        return json.dumps({"schema": schema, "payload": {"before": None, "after": None, **record}}).encode()

    pipeline = load(write, **{**CUSTOMERS, "table__schema": "id long not null, country string"})
    outcome = made(
        pipeline, with_schema({"op": "d", "before": {"id": 1}}), with_schema({"op": "c", "after": {"id": 2}})
    )
    assert rows_of(outcome, "id", "country") == [(1, None, True)]
    assert [(bad.index, bad.field) for bad in outcome.bad] == [(1, "country")]


def test_keys_of_connect_may_have_schemas_too(write: Write) -> None:
    pipeline = load(
        write,
        source__envelope="connect",
        source__key={"format": "json", "schema": "id long, day date"},
        table__mode="upsert",
        table__key=["id"],
        table__schema="name string",
    )
    day = {"field": "day", "type": "int32", "name": "io.debezium.time.Date"}
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, day]}
    key = json.dumps({"schema": schema, "payload": {"id": 7, "day": 1}}).encode()
    outcome = made(pipeline, None, None, keys=[key, b'{"id":8,"day":2}'])
    assert [(row[0], str(row[1]), row[2]) for row in rows_of(outcome, "id", "day")] == [
        (7, "1970-01-02", True),
        (8, "1970-01-03", True),
    ]


def test_an_upsert_topic_deletes_by_its_keys(write: Write, tmp_path: Path) -> None:
    pipeline = load(
        write,
        table__mode="upsert",
        table__key=["id"],
        table__schema="name string not null",
        source__key={"schema": "id string"},
    )
    outcome = made(pipeline, b'{"name":"ann"}', None, None, keys=[b"a", b"a", None])
    assert rows_of(outcome, "id", "name") == [("a", "ann", False), ("a", None, True)]
    assert [(bad.index, bad.field, bad.found) for bad in outcome.bad] == [(2, "id", "null")]


def test_placeholders_of_unchanged_values_are_filled_or_refused(write: Write) -> None:
    columns = {"table__schema": "id long not null, name string, scores array<int>"}
    scores = [*UNAVAILABLE.encode()]
    good = {"id": 1, "name": "ann", "scores": [1]}
    events = [
        event("u", None, good),
        event("u", None, {**good, "name": UNAVAILABLE, "scores": scores}),
        event("d", {"id": 1, "name": UNAVAILABLE}),
    ]
    outcome = made(load(write, **CUSTOMERS | columns), *events)
    assert outcome.bad == ()
    assert outcome.rows[LEFT_OUT].to_pylist() == [None, ["name", "scores"], None]
    flattened = {**CUSTOMERS, **columns, "source__envelope": "none"}
    values = [json.dumps({**good, "name": name}).encode() for name in ("ann", UNAVAILABLE, "__gone__")]
    assert made(load(write, **flattened), *values).rows[LEFT_OUT].to_pylist() == [None, ["name"], None]
    own = load(write, **flattened, source__unavailable_value="__gone__")
    assert made(own, *values).rows[LEFT_OUT].to_pylist() == [None, None, ["name"]]
    ordered = {**flattened, "table__schema": columns["table__schema"] + ", at long", "table__ordering": "at"}
    rows_in_time = [{**good, "at": at, "name": name} for at, name in ((1, "ann"), (2, UNAVAILABLE))]
    (bad,) = made(load(write, **ordered), *(json.dumps(row).encode() for row in rows_in_time)).bad
    assert (bad.index, bad.field, bad.found) == (1, "name", UNAVAILABLE), "an earlier change may come later"
    appended: dict[str, Any] = {"table__schema": columns["table__schema"]}
    assert made(load(write, **appended), *values).bad == (), "a log of whatever was sent"
    told = load(write, **appended, source__unavailable_value=UNAVAILABLE)
    assert [bad.index for bad in made(told, *values).bad] == [1]
    assert load(write, **appended).rows_digest != told.rows_digest
    assert problems(write, source__unavailable_value="hex:no") == [
        "source.unavailable_value: no hexadecimal digits after hex:, found 'hex:no'"
    ]


def test_a_row_that_lacks_values_names_the_delete_of_its_old_key(write: Write) -> None:
    pipeline = load(write, **CUSTOMERS)
    row, gone = {"id": 1, "name": "ann"}, {"id": 2, "name": UNAVAILABLE}

    def at(position: int | None, op: str, before: Any = None, after: Any = None) -> bytes:
        return json.dumps({"before": before, "after": after, "op": op, "source": {"lsn": position}}).encode()

    values = [
        at(7, "d", row),
        None,
        at(7, "c", None, gone),
        at(8, "u", None, gone),
        at(9, "d", row),
        at(10, "c", None, gone),
        at(None, "d", row),
        at(None, "c", None, gone),
        at(11, "d", row),
        at(11, "c", None, gone),
    ]
    whole = made(pipeline, *values)
    assert (whole.bad, whole.skipped) == ((), 1)
    assert whole.rows[OLD_KEY].to_pylist() == [None, 0, None, None, -1, None, -1, None, 8]
    # However the records are cut into batches.
    batch, maker = batch_of(pipeline, values), maker_of(pipeline)
    for cut in (1, 2, 9):
        before = batch.slice(max(0, cut - 2), min(cut, 2))
        rest = maker.make(TopicPartition("shop.public.customers", 0), batch.slice(cut), before=before)
        assert rest.rows[OLD_KEY].to_pylist() == whole.rows[OLD_KEY].to_pylist()[cut - (cut > 1) :]
    ordered = load(write, **CUSTOMERS, source__before_image="row", table__ordering="changed_at")
    assert maker_of(ordered).key_changes is None


def test_a_delete_beside_a_bad_record_that_lacks_values_leaves_each_row_one_old_key(write: Write) -> None:
    columns = {"table__schema": "id long not null, name string, country string not null, gone boolean"}
    pipeline = load(write, **CUSTOMERS | columns, table__delete_field="gone")
    outcome = made(
        pipeline,
        event("c", None, {"id": 1, "name": UNAVAILABLE, "country": "de"}),
        event("c", None, {"id": 2, "name": UNAVAILABLE}),
        event("u", None, {"id": 3, "gone": True}),
    )
    assert outcome.rows.schema.names.count(OLD_KEY) == 1
    assert rows_of(outcome, "id", LEFT_OUT, OLD_KEY) == [(1, ["name"], -1, False), (3, None, None, True)]
    assert [bad.index for bad in outcome.bad] == [1]


@pytest.mark.parametrize(
    ("transform", "to_fill"),
    [
        ({"rename": {"name": "called"}}, ["called"]),
        ({"mask": {"fields": ["name"], "method": "redact"}}, ["name"]),
        ({"drop": ["name"]}, None),
        ({"filter": {"field": "id", "op": ">", "value": 0}}, ["name"]),
        ({"filter": {"field": "name", "op": "!=", "value": "x"}}, "refused"),
        ({"sql": "select id, upper(name) as name, other from records where other is null"}, ["name"]),
        ({"sql": "select id, other, name || id as name from records"}, "refused"),
        ({"sql": "select id, other, other as name from records where name is not null"}, "refused"),
    ],
)
def test_transforms_may_pass_on_what_was_left_out_but_not_mix_it_or_decide_by_it(
    write: Write, transform: dict[str, Any], to_fill: list[str] | str | None
) -> None:
    columns = {"table__schema": "id long not null, name string, other string"}
    pipeline = load(write, **CUSTOMERS | columns, transforms=[transform])
    outcome = made(pipeline, event("u", None, {"id": 1, "name": UNAVAILABLE, "other": None}))
    if to_fill == "refused":
        assert [(bad.index, bad.field) for bad in outcome.bad] == [(0, "name")]
    else:
        assert outcome.bad == ()
        assert outcome.rows[LEFT_OUT].to_pylist() == [to_fill]


def test_a_key_or_a_row_that_moves_cannot_be_filled(write: Write) -> None:
    columns = {"table__schema": "id string not null, name string, country string", "table__partition_by": ["country"]}
    pipeline = load(write, **CUSTOMERS | columns, source__before_image="row")
    row = {"id": "a", "name": UNAVAILABLE, "country": "de"}
    moved = event("u", {**row, "country": "fr"}, row)
    outcome = made(pipeline, event("u", row, row), moved, event("c", None, {**row, "id": UNAVAILABLE}))
    assert [(bad.index, bad.field) for bad in outcome.bad] == [(1, "name"), (2, "id")]
    assert outcome.rows[LEFT_OUT].to_pylist() == [["name"]]


def connect_avro(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name}


VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
FLAT_AVRO: list[dict[str, Any]] = [
    {"name": "id", "type": "int"},
    {"name": "made", "type": connect_avro("long", "io.debezium.time.MicroTimestamp")},
    {"name": "day", "type": ["null", connect_avro("int", "io.debezium.time.Date")], "default": None},
    {"name": "seen", "type": connect_avro("string", "io.debezium.time.ZonedTimestamp")},
    {"name": "price", "type": ["null", VARIABLE], "default": None},
]
FLAT_JSON: dict[str, Any] = {
    "id": {"type": "integer", "connect.type": "int32"},
    "made": {"type": "integer", "title": "io.debezium.time.MicroTimestamp", "connect.type": "int64"},
    "day": {
        "oneOf": [{"type": "null"}, {"type": "integer", "title": "io.debezium.time.Date", "connect.type": "int32"}]
    },
    "seen": {"type": "string", "title": "io.debezium.time.ZonedTimestamp", "connect.type": "string"},
    "price": {
        "oneOf": [
            {"type": "null"},
            {
                "type": "number",
                "title": "org.apache.kafka.connect.data.Decimal",
                "connect.type": "bytes",
                "connect.parameters": {"scale": "3", "connect.decimal.precision": "20"},
            },
        ]
    },
}
FLAT_ROW = {"id": 1, "made": 1700000000123456, "day": 20484, "seen": "2026-01-31T10:15:00.123456Z"}
MEANT = (
    "1, 2023-11-14 22:13:20.123456+00:00, 2026-01-31, 2026-01-31 10:15:00.123456+00:00, 12.345",
    "1, 2023-11-14 22:13:20.123456+00:00, None, 2026-01-31 10:15:00.123456+00:00, None",
)


def flat_topic(kind: str) -> tuple[str, list[bytes]]:
    """The registered schema and two records, as Kafka Connect's converters write them."""
    if kind == "JSON":
        schema: dict[str, Any] = {"type": "object", "title": "v", "properties": FLAT_JSON}
        rows: list[dict[str, Any]] = [{**FLAT_ROW, "price": "MDk="}, {**FLAT_ROW, "day": None, "price": None}]
        return json.dumps(schema), [b"\0\0\0\0\1" + json.dumps(row).encode() for row in rows]
    schema = {"type": "record", "name": "v", "fields": FLAT_AVRO}
    values = []
    for row in ({"price": {"scale": 3, "value": b"\x30\x39"}}, {"day": None, "price": None}):
        target = io.BytesIO()
        fastavro.schemaless_writer(target, fastavro.parse_schema(schema), {**FLAT_ROW, **row})
        values.append(b"\0\0\0\0\1" + target.getvalue())
    return json.dumps(schema), values


@pytest.mark.parametrize(("kind", "format"), [("AVRO", "avro"), ("JSON", "json_schema")])
def test_connects_schemas_say_what_values_mean_without_an_envelope_too(
    write: Write, tmp_path: Path, kind: str, format: str
) -> None:
    text, values = flat_topic(kind)
    version = {"subject": SUBJECT, "version": 1, "id": 1, "schema": text, "schemaType": kind}
    answers: dict[str, object] = {
        f"/subjects/{SUBJECT}/versions": [1],
        f"/subjects/{SUBJECT}/versions/1": version,
        f"/subjects/{SUBJECT}/versions/latest": version,
        "/schemas/ids/1": version,
    }
    with canned_registry(answers) as (url, _):
        flat: dict[str, Any] = {
            **CUSTOMERS,
            "source__envelope": "none",
            "source__format": format,
            "source__schema_registry": {"url": url},
            "table__base_path": str(tmp_path / "table"),
        }

        def decoded(columns: str | None) -> tuple[list[str], pa.Schema]:
            pipeline = load(write, **{**flat, "table__schema": columns})
            found = resolve_schema(pipeline, Timeline(pipeline.table.base_path))
            pipeline = pipeline.with_record(parse_spark_json(found.record))
            outcome = converter_of(pipeline, found).decode(pa.array(values, pa.binary()))
            assert outcome.rejected == ()
            return [", ".join(map(str, row.values())) for row in outcome.rows.to_pylist()], outcome.rows.schema

        declared = "id int not null, made timestamp, day date, seen timestamp, price decimal(20,3)"
        assert decoded(declared)[0] == [*MEANT]
        rows, schema = decoded(None)
        assert rows == [*MEANT]
        price = "string" if kind == "AVRO" else "decimal(20,3)"
        assert ddl(schema).endswith(f"day date, seen timestamp{'' if kind == 'JSON' else ' NOT NULL'}, price {price}")
        assert decoded("id long not null, made long")[0] == ["1, 1700000000123456"] * 2


def test_a_table_that_was_made_without_the_meaning_of_its_numbers_goes_on_without_it() -> None:
    schema = RegisteredSchema(flat_topic("AVRO")[0])
    known = parse_ddl("id int not null, made long not null")
    columns = columns_of(schema, "AVRO", None, kept=known)
    assert ddl(columns) == ("id int NOT NULL, made long NOT NULL, day date, seen timestamp NOT NULL, price string")


@pytest.mark.parametrize(
    ("stored", "before", "after", "found"),
    [
        ("int", "io.debezium.time.Time", "io.debezium.time.MicroTime", "int, found io.debezium.time.MicroTime"),
        ("long", "", "io.debezium.time.MicroTimestamp", "long, found io.debezium.time.MicroTimestamp"),
        ("long", "io.debezium.time.MicroTimestamp", "io.debezium.time.MicroTimestamp", None),
        ("long", "io.debezium.time.MicroTime", "io.debezium.time.MicroTime", None),
    ],
)
def test_numbers_that_a_later_version_gives_another_meaning_are_not_taken_for_those_of_the_table(
    stored: str, before: str, after: str, found: str | None
) -> None:
    def version(name: str) -> RegisteredSchema:
        kind = connect_avro("int" if name == "io.debezium.time.Time" else "long", name) if name else "long"
        fields = [{"name": "id", "type": "int"}, {"name": "at", "type": ["null", kind]}]
        return RegisteredSchema(json.dumps({"type": "record", "name": "v", "fields": fields}))

    changed = changed_meanings_of(parse_ddl(f"id int, at {stored}"), [version(before), version(after)], "AVRO")
    expected = [] if found is None else [f"column at: expected {found}, whose values mean something else"]
    assert [*map(str, changed)] == expected


def test_times_of_another_unit_in_registered_schemas_are_bad() -> None:
    time = connect_avro("int", "io.debezium.time.Time")
    schema = {"type": "record", "name": "v", "fields": [{"name": "at", "type": time}]}
    value = pa.array([io_bytes(schema, {"at": 36_000_000})], pa.binary())
    writers, columns = OneSchema(RegisteredSchema(json.dumps(schema))), parse_ddl("at long")
    (rejected,) = ConnectAvroConverter(columns, writers, declared=False).decode(value).rejected
    assert (rejected.field, rejected.found) == ("at", "io.debezium.time.Time")
    assert ConnectAvroConverter(columns, writers).decode(value).rows.to_pylist() == [{"at": 36_000_000}]


def io_bytes(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), row)
    return target.getvalue()


def test_defaults_of_connects_schemas_are_values_of_their_columns() -> None:
    millis = connect_avro("long", "io.debezium.time.Timestamp")
    fields: list[dict[str, Any]] = [
        {"name": "made", "type": millis, "default": 1700000000123},
        {"name": "seen", "type": FLAT_AVRO[3]["type"], "default": "2026-01-31T10:15:00Z"},
        {"name": "n", "type": "int", "default": 7},
        {
            "name": "inner",
            "type": {"type": "record", "name": "i", "fields": [{"name": "at", "type": millis, "default": 1}]},
        },
    ]
    schema = RegisteredSchema(json.dumps({"type": "record", "name": "v", "fields": fields}))
    columns = parse_ddl("made timestamp, seen timestamp, n int, inner struct<at: timestamp>")
    meant = with_meant_defaults(resolution_of(schema), schema, columns)
    assert {path: str(value) for path, value in meant.defaults.items()} == {
        "made": "2023-11-14 22:13:20.123000+00:00",
        "seen": "2026-01-31 10:15:00+00:00",
        "n": "7",
        "inner.at": "1970-01-01 00:00:00.001000+00:00",
    }


def of_table(schema: str | None, table: str, **row: Any) -> bytes:
    source = {"db": "shop", **({} if schema is None else {"schema": schema}), "table": table}
    return json.dumps({"before": None, "after": {"id": 1, **row}, "source": source, "op": "c"}).encode()


def test_a_keyed_table_takes_changes_of_the_source_table_of_its_first_transaction_alone(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    newest = [b"{", b'{"ts_ms":5}', of_table("public", "customers", name="ann")]

    def sample(pipeline: Pipeline, count: int) -> tuple[list[tuple[str, bytes]], dict[str, int]]:
        return [(f"t:0:{place}", value) for place, value in enumerate(newest)], {"t:0": len(newest)}

    monkeypatch.setattr(schema_change, "newest_values", sample)
    path = str(tmp_path / "table")
    pipeline = load(write, **CUSTOMERS, table__base_path=path)
    no_ledger: Any = None

    def begun(pipeline: Pipeline = pipeline) -> TransactionSchema:
        return TransactionSchema.from_dict(resolve_and_note(pipeline, no_ledger, Timeline(path)).to_dict())

    schema = begun()
    assert schema.source_table == ("public", "customers")
    maker: RowMaker = pickle.loads(pickle.dumps(row_maker_of(pipeline, schema, NOW)))
    values = [of_table("public", "customers", name="a"), of_table("other", "customers", name="b")]
    outcome = maker.make(TopicPartition("shop.public.customers", 0), batch_of(pipeline, values))
    assert (outcome.rows.num_rows, [(bad.index, bad.field, bad.found) for bad in outcome.bad]) == (
        1,
        [(1, "source.table", "other.customers")],
    )
    # The table remembers it, and later samples are not asked for.
    stored = {SOURCE_PROPERTY: '["public", "customers"]'}
    with monkeypatch.context() as patch:
        patch.setattr(Timeline, "exists", lambda self: True)
        patch.setattr(Timeline, "is_empty", lambda self: True)
        patch.setattr(Timeline, "properties", lambda self: stored)
        patch.setattr(schema_change, "newest_values", None)
        assert begun().source_table == ("public", "customers")
    newest[:] = [of_table(None, "orders")]
    assert begun().source_table == ("shop", "orders"), "MySQL has no schemas"
    newest[:] = [json.dumps({"after": {"id": 1}, "op": "c"}).encode()]
    assert begun().source_table == (), "the records do not say"
    newest.clear()
    assert begun().source_table is None
    newest[:] = [of_table("public", "gr\ufffd\ufffde")]
    with pytest.raises(SchemaRefused, match="name the connector could not read"):
        begun()
    # Merged on purpose.
    merged = load(write, **CUSTOMERS, table__base_path=path, source__event_columns={"from": "source.table"})
    assert begun(merged).source_table is None
