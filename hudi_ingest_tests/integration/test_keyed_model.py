"""Random changes, transactions, faults, compactions and replays of real keyed tables, compared with a dictionary after each step.

In CI each kind of step once, on two tables. `HUDI_INGEST_KEYED_STEPS=40 HUDI_INGEST_KEYED_EXAMPLES=20` makes it long, with
`HUDI_INGEST_NEW_EXAMPLES=1` it finds other examples.
"""

from __future__ import annotations

import json
import os
import random
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hudi import HudiTable
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from pyspark.sql import Row, SparkSession

from hudi_ingest.exceptions import IngestError, NothingToDo
from hudi_ingest.faults import InjectedFault
from hudi_ingest.local.broker import create_topic
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.upkeep.table_services import services_for
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.changing_rows import ChangingRows, Form, Record, by_partition
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, fresh_ground, make_pipeline
from hudi_ingest_tests.support.keyed_model import KeyedModel
from hudi_ingest_tests.support.requesting import requested

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

STEPS = int(os.environ.get("HUDI_INGEST_KEYED_STEPS", "1"))
EXAMPLES = int(os.environ.get("HUDI_INGEST_KEYED_EXAMPLES", "1"))
# A failure is shown as it was found: each smaller example would take as long again.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
CHANGES = 30
BEFORE_THE_COMMIT = ("marker_written", "rows_written", "file_closed", "slices_written", "commit_leased")


class KeyedTable(RuleBasedStateMachine):
    """One table, its topic, and the dictionary. `records` are those of the topic, in the order of each partition."""

    def __init__(self, form: Form, bootstrap_servers: str, folders: pytest.TempPathFactory, fault: Fault) -> None:
        super().__init__()
        self.rows = ChangingRows(form)
        self.model = KeyedModel()
        self.records: list[Record] = []
        self.committed = 0
        self.fault = fault
        self._closing = fresh_ground(bootstrap_servers, folders.mktemp(f"keyed-{form}"))
        self.ground: Ground = self._closing.__enter__()
        create_topic(bootstrap_servers, self.ground.name, self.rows.kafka_partitions)
        self.pipeline = make_pipeline(self.ground, **self.rows.settings())
        self.produce(random.Random(0))
        self.commit()

    def produce(self, dice: random.Random) -> None:
        records = self.rows.records(dice, dice.randrange(CHANGES // 3, CHANGES))
        for partition, values in by_partition(records).items():
            self.ground.send(partition, values)
        self.records += records

    def commit(self) -> None:
        self.ground.run(self.pipeline)
        self.note_committed()

    def note_committed(self) -> None:
        """All that was produced is in the table."""
        self.model.apply(change for record in self.records[self.committed :] for change in record.changes)
        self.committed = len(self.records)
        assert seen_by_hudi_rs(self.ground) == self.model.rows()

    @initialize(dice=st.randoms(use_true_random=False))
    def does_all_of_it_once(self, dice: random.Random) -> None:
        """So that a single example, as in CI, has every kind of step."""
        self.breaks_off(dice, dice.choice(BEFORE_THE_COMMIT))
        self.is_compacted()
        self.commits_and_dies(dice)
        self.is_replayed(0.3)
        self.transactions(dice, 1)

    @rule(dice=st.randoms(use_true_random=False), transactions=st.integers(1, 2))
    def transactions(self, dice: random.Random, transactions: int) -> None:
        for _ in range(transactions):
            self.produce(dice)
            self.commit()

    @rule(dice=st.randoms(use_true_random=False), point=st.sampled_from(BEFORE_THE_COMMIT))
    def breaks_off(self, dice: random.Random, point: str) -> None:
        self.produce(dice)
        before = self.model.rows()
        self.fault.arm(point, "raise")
        with pytest.raises((InjectedFault, IngestError)):
            self.ground.run(self.pipeline)
        assert self.fault.was_reached(point)
        assert seen_by_hudi_rs(self.ground) == before
        self.produce(dice)
        self.commit()

    @rule(dice=st.randoms(use_true_random=False))
    def commits_and_dies(self, dice: random.Random) -> None:
        self.produce(dice)
        self.fault.arm("commit_landed", "raise")
        with pytest.raises(InjectedFault):
            self.ground.run(self.pipeline)
        self.note_committed()
        with pytest.raises(NothingToDo):
            self.ground.run(self.pipeline)

    @rule()
    def is_compacted(self) -> None:
        compact(self.ground, self.pipeline)
        self.model.compact()
        assert seen_by_hudi_rs(self.ground) == self.model.rows()
        assert seen_by_spark(self.spark, self.ground, "read_optimized") == self.model.rows()

    @rule(share=st.floats(0, 0.9))
    def is_replayed(self, share: float) -> None:
        places = sorted((change.kafka_partition, change.offset) for r in self.records for change in r.changes)
        partition, start = places[int(share * len(places))]
        slice_ = Slice(self.ground.name, partition, start, self.rows.offsets[partition])
        assert list(requested(self.ground, self.pipeline, TransactionKind.REPLAY, [slice_]))
        self.model.apply(
            change
            for record in self.records
            for change in record.changes
            if change.kafka_partition == partition and change.offset >= start
        )
        assert seen_by_hudi_rs(self.ground) == self.model.rows()

    @property
    def spark(self) -> SparkSession:
        return current_session(self.ground.home).newSession()

    def teardown(self) -> None:
        """All readers agree before and after a compaction, and an incremental one gets the last commit's rows alone."""
        try:
            since = last_completion(self.ground)
            first = self.committed
            self.produce(random.Random(first))
            self.commit()
            assert seen_by_spark(self.spark, self.ground) == self.model.rows()
            last = [change for record in self.records[first:] for change in record.changes]
            changed = incrementally(self.spark, self.ground, since)
            late = {slot: row for slot, row in changed.items() if self.model.rows().get(slot) != row}
            assert {slot: row for slot, row in changed.items() if slot not in late} == self.model.rows_of(last)
            # Hudi does not compare them with what was compacted before.
            assert self.rows.form == "fields" or not late
            assert all(row in [change.row for change in last] for row in late.values())
            self.is_compacted()
            assert seen_by_spark(self.spark, self.ground) == self.model.rows()
            assert incrementally(self.spark, self.ground, since) == self.model.rows_of(last)
            if self.rows.form != "fields":
                assert told_by_cdc(self.spark, self.ground) == self.model.rows()
        finally:
            self._closing.__exit__(None, None, None)


def seen_by_hudi_rs(ground: Ground) -> dict[tuple[str, str], dict[str, Any]]:
    return as_dictionary([row for batch in HudiTable(ground.base_path).read() for row in batch.to_pylist()])


def seen_by_spark(
    spark: SparkSession, ground: Ground, query: str = "snapshot"
) -> dict[tuple[str, str], dict[str, Any]]:
    rows = spark.read.format("hudi").option("hoodie.datasource.query.type", query).load(ground.base_path)
    return as_dictionary([row.asDict() for row in rows.collect()])


def last_completion(ground: Ground) -> str:
    """When the newest completed instant was completed, as Hudi writes it."""
    names = [path.name for path in Path(ground.base_path, ".hoodie", "timeline").iterdir()]
    return max(name.split("_")[1].split(".")[0] for name in names if "_" in name and name[0].isdigit())


def incrementally(spark: SparkSession, ground: Ground, since: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Rows of commits completed after `since`."""
    reader = spark.read.format("hudi").option("hoodie.datasource.query.type", "incremental")
    rows = reader.option("hoodie.datasource.read.begin.instanttime", since).load(ground.base_path)
    return as_dictionary([row.asDict() for row in rows.collect()])


def told_by_cdc(spark: SparkSession, ground: Ground) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows that all changes since the table's first commit come to, each of which must begin with what the earlier ones left."""
    reader = spark.read.format("hudi").option("hoodie.datasource.query.type", "incremental")
    reader = reader.option("hoodie.datasource.query.incremental.format", "cdc")
    changes = reader.option("hoodie.datasource.read.begin.instanttime", "000").load(ground.base_path).collect()

    def order(change: Row) -> tuple[str, int, bool]:
        """As docs/keyed-tables.md has it."""
        row = json.loads(change["after"] or change["before"])
        return change["ts_ms"], row["_kafka_offset"], change["op"] == "d"

    rows: dict[tuple[str, str], dict[str, Any]] = {}
    random.Random(0).shuffle(changes)
    for change in sorted(changes, key=order):
        before, after = (
            # Members that are null are not in Hudi's JSON.
            text and {name: json.loads(text).get(name) for name in ("id", "n", "note", "dt")}
            for text in (change["before"], change["after"])
        )
        slot = (before or after)["dt"], (before or after)["id"]
        assert rows.pop(slot, None) == before
        assert (change["op"] == "i", change["op"] == "d") == (not before, not after)
        if after:
            rows[slot] = after
    return rows


def as_dictionary(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """By table partition and key, without Hudi's columns and those of Kafka; every key must be there once in its partition."""
    of_keys = [
        ((row["dt"], row["id"]), {name: value for name, value in row.items() if not name.startswith("_")})
        for row in rows
    ]
    found = dict(of_keys)
    assert len(found) == len(of_keys), "a key has two rows"
    return found


def compact(ground: Ground, pipeline: Pipeline) -> None:
    spark = current_session(ground.home)
    lines: list[str] = []
    services_for(pipeline, ground.ledger, spark, ground.home).run(clean=False, report=lines.append)


@pytest.mark.parametrize("form", ["debezium", "mirror", "fields"])
def test_p8_a_keyed_table_holds_what_its_changes_come_to(
    form: Form, bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory, fault: Fault
) -> None:
    run_state_machine_as_test(
        # A factory will do, says its documentation.
        cast(type[KeyedTable], partial(KeyedTable, form, bootstrap_servers, tmp_path_factory, fault)),
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, phases=PHASES, suppress_health_check=list(HealthCheck)
        ),
    )
