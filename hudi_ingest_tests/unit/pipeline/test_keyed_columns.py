from __future__ import annotations

from typing import Any

import pytest

from hudi_ingest_tests.support.pipeline_files import Write, load, problem, problems

pytestmark = pytest.mark.fast

KEYED: dict[str, Any] = {
    "table__mode": "upsert",
    "table__key": ["id"],
    "table__schema": "id string, n long, at timestamp, amount double, dt string, gone boolean",
}


def test_a_keyed_table_needs_only_a_key(write: Write) -> None:
    table = load(write, **KEYED).table
    assert table.is_keyed
    assert (table.key, table.ordering, table.buckets, table.delete_field) == (("id",), None, 4, None)
    assert not load(write).table.is_keyed


def test_compaction_has_limits_that_only_a_keyed_table_may_set(write: Write) -> None:
    assert load(write, **KEYED).table.compaction.delta_commits == 5
    limits = {"delta_commits": 3, "timeout_seconds": 600}
    assert load(write, **KEYED, table__compaction=limits).table.compaction.model_dump() == limits
    assert "only with `mode: upsert`" in problem(write, table__compaction=limits)
    assert "table.compaction.delta_commits" in problem(write, **KEYED, table__compaction={"delta_commits": 0})


@pytest.mark.parametrize("kind", ["date", "boolean", "decimal(10,0)", "timestamp", "double", "binary", "array<int>"])
def test_a_key_of_another_type_is_refused_with_the_cast_that_makes_it_one(write: Write, kind: str) -> None:
    schema: dict[str, Any] = {**KEYED, "table__schema": f"id string, k {kind}", "table__key": ["k"]}
    refused = problem(write, **schema)
    assert refused.startswith(f"table.key[0]: column k has type {kind}; allowed: string, int or long")
    if kind == "array<int>":
        assert "cast" not in refused, "it cannot be cast"
        return
    assert "make it a string: `transforms: [{cast: {k: string}}]`" in refused
    assert load(write, **schema, transforms=[{"cast": {"k": "string"}}]).table.key_columns == ("k",)


def test_the_delete_field_is_no_column_of_the_table(write: Write) -> None:
    pipeline = load(write, **KEYED, table__delete_field="gone", table__ordering="at", table__buckets=16)
    assert "gone" in pipeline.chain.output.names
    assert "gone" not in pipeline.table_schema.columns.names
    assert "gone" not in pipeline.row_columns.names


def test_all_settings_that_decide_the_rows_are_in_their_digest(write: Write) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"table__key": ["id", "n"]},
        {"table__ordering": "at"},
        {"table__delete_field": "gone"},
        {"table__mode": None, "table__key": None},
        {"source__envelope": "connect"},
    ]
    assert len({load(write, **{**KEYED, **change}).rows_digest for change in changes}) == len(changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"table__key": None}, "table.key: missing; `mode: upsert` needs the columns that identify a row"),
        ({"table__key": ["id", "id"]}, "table.key[1]: found 'id' twice in the list; remove one"),
        (
            {"table__key": ["Id"]},
            "table.key[0]: found 'Id'; allowed: a column of the rows (id, n, at, amount, dt, gone)",
        ),
        ({"table__key": ["n", "at"]}, "table.key[1]: column at has type timestamp; allowed: string, int or long"),
        (
            {"table__ordering": "amount"},
            "table.ordering: column amount has type double; allowed: long, timestamp, string, or decimal(p,s) with s",
        ),
        (
            {"table__ordering": "v", "table__schema": "id string, v int"},
            "table.ordering: column v has type int; allowed: long",
        ),
        ({"table__ordering": "_kafka_offset"}, "table.ordering: found _kafka_offset, which decides anyway; remove it"),
        ({"table__delete_field": "n"}, "table.delete_field: column n has type long; allowed: boolean"),
        (
            {"table__delete_field": "gone", "table__partition_by": ["gone"]},
            "table.delete_field: found 'gone', which the key, the ordering or partition_by needs",
        ),
        ({"table__buckets": 0}, "table.buckets: too small; found 0; allowed: a whole number from 1 to 1024"),
        ({"table__mode": None}, "table.key: only with `mode: upsert`, and mode is append"),
        (
            {"table__mode": "merge"},
            "table.mode: not one of the allowed values; found 'merge'; allowed: append or upsert",
        ),
        (
            {"source__topics": ["a", "b"]},
            "table.ordering: missing; offsets of 2 topics do not say which record of a key is newer: name a column",
        ),
        (
            {"transforms": [{"insert_kafka": {"timestamp": "seen"}}], "table__partition_by": ["day(seen)"]},
            "table.partition_by[0]: computed from _kafka_timestamp, which differs between the records of a key",
        ),
        (
            {
                "table__partition_by": ["day(at)"],
                "table__event_time": {"field": "at", "late_after_seconds": 1, "action": "route"},
            },
            "table.event_time.action: `route` moves a row to another table partition when it is late",
        ),
        (
            {"table__mode": None, "table__key": None, "source__envelope": "debezium"},
            "table.mode: found append, but `source.envelope: debezium` updates and deletes rows",
        ),
        (
            {"source__format": "csv", "source__envelope": "debezium"},
            "source.envelope: debezium needs `format: json or avro`, and that is csv",
        ),
        (
            {"source__before_image": "row"},
            "source.before_image: only with `envelope: debezium`, and that is none; remove it",
        ),
        ({"table__take_over": "hudi_streamer"}, "table.take_over: only tables with `mode: append` can be taken over"),
        ({"table__column_statistics": True}, "table.column_statistics: a table with `mode: upsert` has none"),
        (
            {"table__cdc": True, "table__ordering": "n"},
            "table.cdc: only without `ordering`: Hudi's CDC query reports deletes and inserts that come late",
        ),
    ],
)
def test_what_a_keyed_table_cannot_have(write: Write, changes: dict[str, Any], expected: str) -> None:
    assert expected in problem(write, **{**KEYED, **changes})


def test_what_only_a_keyed_table_has(write: Write) -> None:
    found = problems(write, table__ordering="n", table__buckets=2, table__delete_field="n", table__cdc=True)
    assert [line.partition(":")[0] for line in found] == [
        "table.ordering",
        "table.buckets",
        "table.delete_field",
        "table.cdc",
    ]
    assert all("only with `mode: upsert`, and mode is append; remove it, or set mode" in line for line in found)


def test_tombstones_of_debezium_follow_deletes_that_were_applied(write: Write) -> None:
    assert load(write, **KEYED).on_tombstone == "delete"
    assert load(write, **KEYED, source__envelope="debezium").on_tombstone == "skip"
