"""Columns follow the schemas that come with the records, as `table.on_schema_change` says: Connect's JSON in a table that only grows,
Debezium's in a keyed one. No row loses the value of a new field; hudi-rs and Spark read old and new rows together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.exceptions import BadRecord, SchemaNotApproved, SchemaOutdated
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.local.broker import create_topic
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.operations.upkeep.approvals import approve_schema_change
from hudi_ingest.operations.upkeep.table_services import run_services
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.columns.schema_change import proposed_schema
from hudi_ingest_tests.support.ground import Ground, fresh_ground, make_pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ID, TEXT, INT, LONG = (
    {"type": "int64"},
    {"type": "string", "optional": True},
    {"type": "int32"},
    {"type": "int64"},
)


def struct(**members: Mapping[str, Any]) -> dict[str, Any]:
    fields = [{"optional": True, **member, "field": name} for name, member in members.items()]
    return {"type": "struct", "optional": True, "fields": fields}


FIRST = struct(id=ID, n=INT, s=struct(a=INT))
WIDER = struct(id=ID, n=LONG, s=struct(a=INT, b=TEXT), note=TEXT)
BRIEFLY = struct(id=ID, n=LONG, s=struct(a=INT, b=TEXT), note=TEXT, extra=TEXT)
LATER = struct(id=ID, n=LONG, s=struct(a=INT, b=TEXT), note=TEXT, extra=TEXT, later=TEXT)
NAMES = ("id", "n", "s", "note", "extra")
BIG = 2**40


class Source:
    """A topic of two partitions in one of the envelopes, and its pipeline."""

    def __init__(self, ground: Ground, envelope: str) -> None:
        self._ground = ground
        self.is_keyed = envelope == "debezium"
        self._envelope = envelope

    def pipeline(self, policy: str = "evolve", **source: Any) -> Pipeline:
        table: dict[str, Any] = {"schema": "infer", "partition_by": [], "on_schema_change": policy}
        if self.is_keyed:
            table |= {"mode": "upsert", "key": ["id"], "buckets": 1}
        return make_pipeline(self._ground, source={"envelope": self._envelope, **source}, table=table)

    def send(self, partition: int, schema: dict[str, Any], *rows: dict[str, Any]) -> None:
        for row in rows:
            record = {"schema": schema, "payload": row}
            if self.is_keyed:
                event = struct(before=schema, after=schema, op={"type": "string"})
                record = {"schema": event, "payload": {"before": None, "after": row, "op": "c"}}
            self._ground.send(partition, [json.dumps(record).encode()])

    def run(self, policy: str = "evolve", **source: Any) -> CommitReceipt:
        return self._ground.run(self.pipeline(policy, **source))

    def compact(self) -> None:
        """hudi-rs does not read log files from before a column was widened."""
        run_services(self.pipeline(), compact=True, clean=False, home=self._ground.home)

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """The rows by id as hudi-rs reads them, which must be as Spark does."""
        names = [name for name in NAMES if name in Timeline(self._ground.base_path).schema().names]
        by_rust = {row["id"]: tuple(row.values()) for row in self._ground.rows().select(names).to_pylist()}
        frame = current_session(self._ground.home).newSession().read.format("hudi").load(self._ground.base_path)
        by_spark = {row.id: tuple(row.asDict(recursive=True).values()) for row in frame.select(*names).collect()}
        assert by_rust == by_spark
        assert frame.count() == len(by_rust)
        return by_rust


@pytest.fixture(params=["connect", "debezium"])
def source(request: pytest.FixtureRequest, bootstrap_servers: str, tmp_path: Path) -> Iterator[Source]:
    with fresh_ground(bootstrap_servers, tmp_path) as ground:
        create_topic(bootstrap_servers, ground.name, 2)
        yield Source(ground, request.param)


@pytest.mark.tier(1)
def test_s10_a_table_is_made_from_records_of_which_only_the_newer_have_a_field(source: Source) -> None:
    source.send(0, FIRST, {"id": 1, "n": 1, "s": {"a": 1}})
    source.send(0, WIDER, {"id": 2, "n": BIG, "s": {"a": 2, "b": "b2"}, "note": "n2"})
    receipt = source.run()
    assert (receipt.rows, receipt.rejected) == (2, 0)
    assert source.rows() == {1: (1, 1, {"a": 1, "b": None}, None), 2: (2, BIG, {"a": 2, "b": "b2"}, "n2")}


def test_s10_columns_follow_the_schemas_in_the_records(source: Source) -> None:
    source.send(0, FIRST, {"id": 1, "n": 1, "s": {"a": 1}})
    source.send(1, FIRST, {"id": 2, "n": 2, "s": {"a": 2}})
    assert source.run("refuse").rows == 2

    # Added and widened in the middle of a slice, while another partition is still at the old schema.
    source.send(0, FIRST, {"id": 3, "n": 3, "s": {"a": 3}})
    source.send(0, WIDER, {"id": 4, "n": BIG, "s": {"a": 4, "b": "b4"}, "note": "n4"})
    source.send(1, FIRST, {"id": 5, "n": 5, "s": {"a": 5}})
    changes = ("column n becomes long; it was int", "column s.b string is added", "column note string is added")
    with pytest.raises(SchemaNotApproved) as refused:
        source.run("refuse")
    assert refused.value.changes == changes
    approve_schema_change(source.pipeline("refuse"), refused.value.fingerprint)
    receipt = source.run("refuse")
    assert (receipt.rows, receipt.rejected, receipt.plan.schema_changes) == (3, 0, changes)
    expected: dict[int, tuple[Any, ...]] = {
        number: (number, number, {"a": number, "b": None}, None) for number in (1, 2, 3, 5)
    }
    expected[4] = (4, BIG, {"a": 4, "b": "b4"}, "n4")
    if source.is_keyed:
        source.compact()
    assert source.rows() == expected

    # A schema that neither the table nor the newest records have.
    def row(number: int, **more: Any) -> dict[str, Any]:
        return {"id": number, "n": number, "s": {"a": number, "b": "b"}, "note": "n", **more}

    source.send(0, WIDER, row(6))
    source.send(0, BRIEFLY, row(7, extra="e7"))
    source.send(0, WIDER, *(row(number) for number in range(8, 15)))
    assert proposed_schema(source.pipeline(), Timeline(source.pipeline().table.base_path)).changes == ()
    with pytest.raises(SchemaOutdated, match=r"column extra string is added.*the next transaction reads"):
        source.run()
    assert source.rows() == expected, "nothing is visible"
    receipt = source.run()
    assert (receipt.rows, receipt.rejected, receipt.plan.schema_changes) == (9, 0, ("column extra string is added",))
    expected = {number: (*values, None) for number, values in expected.items()}
    expected |= {number: (number, number, {"a": number, "b": "b"}, "n", None) for number in range(6, 15)}
    expected[7] = (7, 7, {"a": 7, "b": "b"}, "n", "e7")
    assert source.rows() == expected

    # Left out and named, from the middle of a slice, too.
    source.send(0, LATER, row(15, extra="e15", later="l15"))
    source.send(0, BRIEFLY, *(row(number, extra="e") for number in range(16, 23)))
    source.send(1, LATER, row(23, extra="e23", later="l23"))
    ignoring = source.pipeline("ignore")
    (warning,) = proposed_schema(ignoring, Timeline(ignoring.table.base_path)).warnings
    assert warning == "field later string is left out: table.on_schema_change is ignore"
    receipt = source.run("ignore")
    assert (receipt.rows, receipt.rejected, receipt.plan.schema_changes) == (9, 0, ())
    assert receipt.fields is not None
    assert "fields without a column: later" in receipt.fields.text
    for number in range(15, 24):
        extra = f"e{number}" if number in (15, 23) else "e"
        expected[number] = (number, number, {"a": number, "b": "b"}, "n", extra)
    assert source.rows() == expected
    assert "later" not in Timeline(ignoring.table.base_path).schema().names

    # By now the source has the field everywhere, so a schema without it shows that it was dropped.
    source.send(1, WIDER, row(23))
    if source.is_keyed:
        with pytest.raises(BadRecord, match=r"field extra: .*would erase its value"):
            source.run()
        assert source.rows() == expected
        assert source.run(optional_fields=["extra"]).rows == 1
        expected[23] = (23, 23, {"a": 23, "b": "b"}, "n", None)
        assert source.rows() == expected
    else:
        assert source.run().rows == 1
