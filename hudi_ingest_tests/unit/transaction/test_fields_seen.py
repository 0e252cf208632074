"""Fields that no column takes, columns that no record has a value for, and rows of nothing but nulls."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hudi_ingest.exceptions import SchemaRefused
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import FieldsSeen, SliceReport
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.operations.health.judgement import dead_letters
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.changes import DELETED
from hudi_ingest.records.convert.avro.converter import AvroConverter, OneSchema
from hudi_ingest.records.row_maker import BatchOutcome
from hudi_ingest.records.schema.columns import ddl, spark_json
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.transaction.checks import require_fields
from hudi_ingest.transaction.columns.decoding import row_maker_of
from hudi_ingest_tests.support.pipeline_files import Write, load, problems
from hudi_ingest_tests.unit.transaction.test_change_formats import batch_of

pytestmark = pytest.mark.fast

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
SLICE = Slice("orders", 0, 0, 3)
EVENT = {"before": None, "after": {"id": 1, "total": 1.5}, "source": {"lsn": 1}, "op": "c", "ts_ms": 1}
CLOUD_EVENT = {"specversion": "1.0", "type": "order", "source": "shop", "data": {"id": 3}}


def append(write: Write, **settings: Any) -> Pipeline:
    return load(write, **{"table__schema": "id long, total double", "table__partition_by": [], **settings})


def seen(pipeline: Pipeline, *records: Any, look_at: int = 100) -> FieldsSeen | None:
    return outcome(pipeline, *records, look_at=look_at).fields


def outcome(pipeline: Pipeline, *records: Any, look_at: int = 100) -> BatchOutcome:
    columns = spark_json(pipeline.table_schema.columns)
    schema = TransactionSchema("declared", spark_json(pipeline.table.record), columns, True)
    values = [None if record is None else json.dumps(record).encode() for record in records]
    maker = row_maker_of(pipeline, schema, NOW)
    return maker.make(TopicPartition("orders", 0), batch_of(pipeline, values), look_at)


@pytest.mark.parametrize(
    ("record", "remedy"),
    [
        (EVENT, "set `source.envelope: debezium`"),
        (CLOUD_EVENT, "declare `data` as a struct"),
        ({"ID_NR": 1, "sum": 2}, "The records have ID_NR, sum. Nothing is visible"),
    ],
)
def test_rows_of_nothing_but_nulls_are_refused_with_what_the_records_look_like(
    write: Write, record: Any, remedy: str
) -> None:
    pipeline = append(write)
    report = SliceReport(SLICE, 0, rows=3, fields=seen(pipeline, record, record, None))
    with pytest.raises(SchemaRefused, match=r"null in each of id, total.*allow_null_rows: true") as refused:
        require_fields(pipeline, [report, SliceReport(Slice("orders", 1, 0, 0), 0)])
    assert remedy in str(refused.value)
    require_fields(append(write, allow_null_rows=True), [report])
    has_one = SliceReport(Slice("orders", 1, 0, 1), 0, rows=1, fields=seen(pipeline, {"id": 1}))
    require_fields(pipeline, [report, has_one])
    require_fields(pipeline, [SliceReport(SLICE, 0, filtered=3, fields=report.fields)])


def test_nulls_that_a_record_has_and_records_without_fields_are_rows(write: Write) -> None:
    pipeline = append(write)
    for record in ({"id": None, "kind": 1}, {}):
        require_fields(pipeline, [SliceReport(SLICE, 0, rows=1, fields=seen(pipeline, record))])
    assert seen(pipeline, None) is None
    assert seen(append(write, on_tombstone="row"), None) is None


def test_a_column_that_is_misspelt_is_named_with_the_field_that_was_meant(write: Write) -> None:
    pipeline = append(write, table__schema="id long, amout double, note string, deleted_at string")
    fields = seen(pipeline, {"id": 1, "Amount": 2.5, "created_at": "x"}, {"id": 2, "note": None})
    assert fields == FieldsSeen(("amout", "deleted_at"), ("Amount", "created_at"))
    assert fields.is_suspect
    assert fields.text == (
        "no record has a value for amout (did you mean Amount?), deleted_at; fields without a column: Amount, created_at"
    )
    assert not FieldsSeen(("deleted_at",), ("created_at",)).is_suspect
    found = dead_letters(pipeline, Checkpoint(2, "orders-2", {}), 0, fields)
    assert not found.passed and found.warning
    assert "amout (did you mean Amount?)" in found.text
    assert dead_letters(pipeline, Checkpoint(2, "orders-2", {}), 0, FieldsSeen(("deleted_at",))).passed


def test_only_the_first_records_are_looked_at_and_all_of_them_are_searched_for_values(write: Write) -> None:
    pipeline = append(write)
    first, rest = {"id": 1}, {"id": 1, "total": 2, "later": 3}
    assert seen(pipeline, first, rest, look_at=1) == FieldsSeen()
    assert seen(pipeline, rest, look_at=0) == FieldsSeen()
    assert FieldsSeen.combined([None, FieldsSeen(("a", "b"), ("x",), False), FieldsSeen(("b",), ("y",))]) == FieldsSeen(
        ("b",), ("x", "y")
    )
    many = {f"key{number}": number for number in range(1000)}
    fields = seen(pipeline, {"id": 1, "half \ud800 pair": 1, **many})
    assert fields is not None
    assert len(fields.others) == 50 and "half \\ud800 pair" in fields.others


def test_the_row_in_an_event_is_compared_and_not_the_event(write: Write) -> None:
    keyed = {"source__envelope": "debezium", "table__mode": "upsert", "table__key": ["id"]}
    pipeline = append(write, table__schema="id long not null, totl double", **keyed)
    assert seen(pipeline, EVENT) == FieldsSeen(("totl",), ("total",))
    assert seen(pipeline, {**EVENT, "before": {"id": 1}, "after": None, "op": "d"}) is None
    assert seen(
        append(write, source__envelope="connect"), {"schema": None, "payload": {"id": 1, "x": 2}}
    ) == FieldsSeen(("total",), ("x",))


def test_the_fields_of_avro_are_those_of_the_writers_schema() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "total", "type": "double"}]}
    fields = [{"name": "id", "type": "long"}, {"name": "after", "type": ["null", inner]}]
    written = json.dumps({"type": "record", "name": "Order", "fields": fields})
    converter = AvroConverter(pa.schema([("id", pa.int64())]), OneSchema(RegisteredSchema(written)))
    values = pa.array([b"\x02\x00"], pa.binary())
    assert converter.fields(values) == {"id", "after"}
    assert converter.fields(values, "after") == {"total"}
    assert converter.fields(values, "id") == converter.fields(values, "none") == set()


ODD_NAMES = {"@timestamp": "at", "user-id": "user_id", "http.status": "status", "3alpha": "alpha", "größe": "size"}


def test_a_field_that_no_column_can_be_called_is_declared_and_renamed(write: Write) -> None:
    schema = (
        "id string not null, `@timestamp` timestamp, `user-id` long, `http.status` int, `3alpha` string, `größe` int"
    )
    steps = [{"mask": {"fields": ["http.status"], "action": "null"}}, {"rename": ODD_NAMES}]
    pipeline = append(write, table__schema=schema, transforms=steps[1:])
    record = {"id": "a", "@timestamp": "2026-01-31T10:15:00Z", "user-id": 7, "http.status": 200, "größe": 3}
    rows = outcome(pipeline, record).rows.select(["id", *ODD_NAMES.values()]).to_pylist()
    at = datetime(2026, 1, 31, 10, 15, tzinfo=timezone.utc)
    assert rows == [{"id": "a", "at": at, "user_id": 7, "status": 200, "alpha": None, "size": 3}]
    assert outcome(pipeline, {**record, "http.status": "x"}).bad[0].field == "http.status"
    assert pipeline.chain.sources(["status"]) == {"http.status"}
    assert "`user-id` bigint" in ddl(pipeline.table.record) or "`user-id` long" in ddl(pipeline.table.record)
    (problem,) = problems(write, table__schema="id string, `user-id` long", table__partition_by=[])
    assert problem.startswith("table.schema: column user-id: Hudi cannot store this name")
    assert "renamed with the transform `rename`" in problem


def test_a_field_inside_another_that_no_column_can_be_called_is_declared_and_taken_out(write: Write) -> None:
    schema = "id string, caller struct<`user-id`: string, `http.status`: array<struct<`@x`: int>>>"
    sql = 'select id, caller."user-id" as user_id, caller."http.status"[1]."@x" as x from records'
    pipeline = append(write, table__schema=schema, transforms=[{"sql": sql}])
    caller = {"user-id": "u", "http.status": [{"@x": 7}]}
    rows = outcome(pipeline, {"id": "a", "caller": caller}).rows.select(["id", "user_id", "x"]).to_pylist()
    assert rows == [{"id": "a", "user_id": "u", "x": 7}]
    (bad,) = outcome(pipeline, {"caller": {"user-id": 1}}).bad
    assert (bad.field, bad.expected, bad.found) == ("caller.user-id", "string", "1")
    found = problems(write, table__schema=schema, table__partition_by=[])
    assert [problem.partition(":")[0] for problem in found] == ["table.schema"] * 3
    assert found[0].startswith("table.schema: column caller.user-id: Hudi cannot store this name")
    assert found[0].endswith("one inside a struct is taken out of it with the transform `sql`")


def test_a_schema_file_may_have_such_names_too(write: Write, tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "user-id", "type": ["null", "string"]}]
    marker = {"name": "_hoodie_is_deleted", "type": ["null", "boolean"]}
    file = tmp_path / "row.avsc"
    file.write_text(json.dumps({"type": "record", "name": "Row", "fields": [*fields, marker]}))
    settings: dict[str, Any] = {
        "table__schema": None,
        "table__schema_file": str(file),
        "table__mode": "upsert",
        "table__key": ["id"],
        "table__partition_by": [],
        "table__delete_field": "_hoodie_is_deleted",
    }
    pipeline = load(write, **settings, transforms=[{"rename": {"user-id": "user_id"}}])
    made = outcome(pipeline, {"id": 1, "user-id": "u"}, {"id": 1, "_hoodie_is_deleted": True})
    assert made.rows.select(["user_id", DELETED]).to_pylist() == [
        {"user_id": "u", DELETED: False},
        {"user_id": None, DELETED: True},
    ]
    (problem,) = problems(write, **settings)
    assert problem.startswith("table.schema: column user-id: Hudi cannot store this name")


def test_hudis_own_delete_marker_deletes_or_is_told(write: Write) -> None:
    keyed: dict[str, Any] = {"table__mode": "upsert", "table__key": ["id"], "table__partition_by": []}
    schema = "id long not null, v string"
    ignoring = load(write, table__schema=schema, **keyed)
    marked = {"id": 1, "v": "a", "_hoodie_is_deleted": True}
    fields = seen(ignoring, marked)
    assert fields is not None and fields.is_suspect
    assert "declare it, and name it in `table.delete_field`" in fields.text
    schema = f"{schema}, _hoodie_is_deleted boolean"
    pipeline = load(write, table__schema=schema, table__delete_field="_hoodie_is_deleted", **keyed)
    made = outcome(pipeline, {**marked, "_hoodie_is_deleted": False}, marked)
    assert made.rows[DELETED].to_pylist() == [False, True]
    assert "_hoodie_is_deleted" not in made.rows.column_names
    (problem,) = problems(write, table__schema=schema, **keyed)
    assert "column _hoodie_is_deleted: names beginning with _hoodie_" in problem


def test_a_name_that_a_reader_has_a_meaning_for_is_renamed_or_refused(write: Write) -> None:
    schema = "id long not null, _tmp_metadata_row_index long"
    (problem,) = problems(write, table__schema=schema, table__partition_by=[])
    assert problem.startswith(
        "table.schema: column _tmp_metadata_row_index: this name belongs to Spark's Parquet reader"
    )
    rename: dict[str, Any] = {"rename": {"_tmp_metadata_row_index": "n"}}
    pipeline = load(write, table__schema=schema, table__partition_by=[], transforms=[rename])
    rows = outcome(pipeline, {"id": 1, "_tmp_metadata_row_index": 7000}).rows
    assert rows.select(["id", "n"]).to_pylist() == [{"id": 1, "n": 7000}]
    for step in (
        {"rename": {"id": "_tmp_metadata_row_index"}},
        {"constant": {"column": "_tmp_metadata_row_index", "value": "x"}},
    ):
        problem, *_ = problems(write, table__schema="id long", table__partition_by=[], transforms=[step])
        assert "this name belongs to" in problem


def test_reports_and_the_accounting_keep_the_fields() -> None:
    report = SliceReport(SLICE, 0, rows=3, fields=FieldsSeen(("total",), ("sum",)))
    assert SliceReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    accounting = Accounting.of(IngestPlan("orders", "t1", 1, (SLICE,)), [report])
    assert Accounting.from_json(accounting.to_json()).fields == report.fields
