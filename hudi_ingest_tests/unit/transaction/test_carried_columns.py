"""What the schemas of the newest records add to inferred columns, and which fields older records may lack. No broker, no JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.hudi.timeline.timeline import MET_PROPERTY, RECENT_PROPERTY, RECORD_PROPERTY, Timeline
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.transaction import RecentFields, TransactionSchema
from hudi_ingest.records.schema.columns import ddl, parse_spark_json, spark_json, table_schema
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.transaction.columns import schema_change as columns
from hudi_ingest.transaction.columns import topic_sample
from hudi_ingest.transaction.columns.schema_change import proposed_schema
from hudi_ingest_tests.support.pipeline_files import Write, load
from hudi_ingest_tests.unit.records.convert.test_connect_json import framed, of, struct

pytestmark = pytest.mark.fast

INT, LONG, TEXT = of("int32"), of("int64"), of("string")
OLD = {"id": LONG, "n": INT, "old": TEXT}
Propose = Callable[..., TransactionSchema]


@pytest.fixture
def propose(write: Write, monkeypatch: pytest.MonkeyPatch) -> Propose:
    """The columns of the next transaction of a table with the columns of OLD, while the newest records have these schemas."""

    def propose(
        *newest: Mapping[str, Any],
        properties: Mapping[str, str] | None = None,
        end: int = 7,
        committed: int = 0,
        first: int = 0,
        **settings: Any,
    ) -> TransactionSchema:
        values = [(f"orders:0:{place}", framed({}, struct(**members))) for place, members in enumerate(newest, first)]
        monkeypatch.setattr(topic_sample, "newest_values", lambda pipeline, count: (values, {"orders:0": end}))
        record = parse_ddl("id long, n int, old string")
        columns = table_schema(record, ("topic", "timestamp")).columns
        found = {RECORD_PROPERTY: spark_json(record), **(properties or {})}
        monkeypatch.setattr(Timeline, "exists", lambda self: True)
        monkeypatch.setattr(Timeline, "is_empty", lambda self: False)
        monkeypatch.setattr(Timeline, "schema", lambda self: columns)
        monkeypatch.setattr(Timeline, "properties", lambda self: found)
        checkpoint = Checkpoint(1, "t", {TopicPartition("orders", 0): committed})
        monkeypatch.setattr(topic_sample, "committed_state", lambda *_: CommittedState(True, checkpoint))
        pipeline = load(write, source__envelope="connect", table__schema="infer", **settings)
        return proposed_schema(pipeline, Timeline("/data/orders"))

    return propose


KEYED: dict[str, Any] = {"table__mode": "upsert", "table__key": ["id"]}


def test_columns_are_adopted_as_the_table_can_hold_them(propose: Propose) -> None:
    assert propose(OLD).origin == "inferred when the table was made"
    found = propose(OLD, {**OLD, "n": LONG, "note": TEXT}, {"id": LONG, "old": LONG, "N": INT})
    assert found.changes == ("column n becomes long; it was int", "column note string is added")
    assert found.origin == "inferred when the table was made, then extended by the schema of orders:0:1"
    assert ddl(parse_spark_json(found.record)) == "id long, n long, old string, note string"
    assert found.warnings == ("field N is left out: the table spells it n",)
    assert found.recent == RecentFields(), "in a table that grows, no record erases anything"
    assert propose({**OLD, "un": of("union")}).warnings == (
        "the schema of orders:0:0: column un: no table has a type for union",
    )


def test_ignore_widens_and_refuse_waits(propose: Propose) -> None:
    newest = {**OLD, "n": LONG, "note": TEXT}
    ignored = propose(newest, table__on_schema_change="ignore")
    assert ignored.changes == ("column n becomes long; it was int",)
    assert ignored.warnings == ("field note string is left out: table.on_schema_change is ignore",)
    assert ddl(parse_spark_json(ignored.record)) == "id long, n long, old string"
    refused = propose(newest, table__on_schema_change="refuse")
    assert len(refused.changes) == 2
    assert "approve-schema" in refused.warnings[-1]


def test_a_schema_that_ended_a_transaction_is_known_to_the_next(propose: Propose) -> None:
    met = {MET_PROPERTY: spark_json(parse_ddl("id long, n int, old string, brief string"))}
    assert propose(OLD, properties=met).changes == ("column brief string is added",)
    assert propose(OLD, properties=met, **KEYED).recent == RecentFields(("brief",), {"orders:0": 7})


def test_records_from_before_a_field_was_found_may_lack_it_in_a_keyed_table(propose: Propose) -> None:
    newest = {**OLD, "note": TEXT, "more": struct(a=INT)}
    recent = propose(newest, **KEYED).recent
    assert recent == RecentFields(("note", "more", "more.a"), {"orders:0": 7})
    kept = {
        RECENT_PROPERTY: json.dumps(asdict(recent)),
        RECORD_PROPERTY: spark_json(parse_ddl("id long, n int, old string, note string, more struct<a: int>")),
    }
    assert propose(newest, properties=kept, committed=6, end=9, **KEYED).recent == recent
    assert propose(OLD, properties=kept, committed=6, end=9, **KEYED).recent == recent
    assert propose(newest, properties=kept, committed=7, end=9, **KEYED).recent == RecentFields()
    # Written after the field had been found, so that the source has dropped it.
    assert propose(OLD, properties=kept, committed=6, end=9, first=7, **KEYED).recent == replace(recent, paths=())
    wider = {**newest, "more": struct(a=INT, b=INT)}
    assert propose(wider, properties=kept, committed=6, end=9, **KEYED).recent == RecentFields(
        ("note", "more", "more.a", "more.b"), {"orders:0": 9}
    )


def test_a_schema_that_lacks_a_field_adds_none_to_a_keyed_table(propose: Propose) -> None:
    renamed = {"id": LONG, "n": INT, "new": TEXT}
    assert propose(renamed, **KEYED).changes == ()
    assert propose(renamed, **KEYED, source__optional_fields=["old"]).changes == ("column new string is added",)
    assert propose(renamed).changes == ("column new string is added",)


def test_the_first_records_of_a_new_keyed_table_may_lack_what_the_newest_have(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = {"id": LONG, "new": TEXT}
    both = [(f"orders:0:{place}", framed({}, struct(**members))) for place, members in enumerate([OLD, newer])]
    monkeypatch.setattr(columns, "first_values", lambda pipeline, count: both)
    monkeypatch.setattr(topic_sample, "newest_values", lambda pipeline, count: (both[::-1], {"orders:0": 2}))
    pipeline = load(write, source__envelope="connect", table__schema="infer", table__base_path="/nowhere", **KEYED)
    found = proposed_schema(pipeline, Timeline("/nowhere"))
    assert parse_spark_json(found.record).names == ["id", "n", "old", "new"]
    assert found.recent == RecentFields(("id", "new"), {"orders:0": 2}), "n and old are dropped"


def plain(op: str, after: Any) -> bytes:
    return json.dumps({"before": None, "after": after, "op": op}).encode()


def made_of(write: Write, monkeypatch: pytest.MonkeyPatch, *values: bytes) -> TransactionSchema:
    """The columns of a new table of these events, which are all that the topic has."""
    records = [(f"orders:0:{place}", value) for place, value in enumerate(values)]
    monkeypatch.setattr(columns, "first_values", lambda pipeline, count: records)
    newest = (records[::-1], {"orders:0": len(records)})
    monkeypatch.setattr(topic_sample, "newest_values", lambda pipeline, count: newest)
    settings: dict[str, Any] = {"table__schema": "infer", "table__base_path": "/nowhere", **KEYED}
    return proposed_schema(load(write, source__envelope="debezium", **settings), Timeline("/nowhere"))


def test_events_without_schemas_show_which_columns_the_source_still_has(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = plain("c", {"id": 1, "n": 1, "old": "x"}), plain("c", {"id": 2, "n": 2, "new": None})
    for newest in ([new], [new, plain("d", None)]):
        found = made_of(write, monkeypatch, old, *newest)
        assert parse_spark_json(found.record).names == ["id", "n", "old", "new"]
        assert found.recent == RecentFields(("id", "n", "new"), {"orders:0": 1 + len(newest)}), "old is dropped"


@pytest.mark.parametrize(("op", "warned"), [("u", True), ("d", True), ("c", False), ("r", False)])
def test_a_topic_that_begins_with_a_change_of_a_row_names_a_renamed_table(
    write: Write, monkeypatch: pytest.MonkeyPatch, op: str, warned: bool
) -> None:
    row = {"id": 1, "n": 1}
    for first in (plain(op, None if op == "d" else row), framed(json.loads(plain(op, row)), EVENT)):
        warnings = made_of(write, monkeypatch, first, plain("c", row)).warnings
        texts = [text for text in warnings if "the first record of orders:0 changes a row" in text]
        assert bool(texts) == warned, warnings


EVENT = struct(before=struct(id=LONG, n=INT), after=struct(id=LONG, n=INT), op=TEXT)
