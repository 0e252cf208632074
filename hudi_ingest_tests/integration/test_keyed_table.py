"""Keyed tables on a real broker, Spark and Hudi: one row per key, whoever writes; read by Spark and by hudi-rs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import BadRecord, CommitRefused, Fenced, RangeRefused
from hudi_ingest.faults import InjectedFault
from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.files.late_changes import FORGOTTEN
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.broker import create_topic
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.operations.health.judgement import accounting_holds
from hudi_ingest.operations.observation import look_at
from hudi_ingest.operations.requests.dead_letter_retry import RetryResult
from hudi_ingest.operations.requests.planning import new_request, survey_replay
from hudi_ingest.operations.requests.work import file_request, retry_result, work_off
from hudi_ingest.operations.upkeep.sweep import sweep_for
from hudi_ingest.operations.upkeep.table_services import services_for
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.write import job
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, fresh_ground, make_pipeline
from hudi_ingest_tests.support.registry import Registry
from hudi_ingest_tests.support.requesting import requested
from hudi_ingest_tests.support.serializers import avro_bytes

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@dataclass
class KeyedGround:
    """A ground whose topic holds changes, and what the table must therefore hold: n by (table partition, id)."""

    ground: Ground
    pipeline: Pipeline
    expected: dict[tuple[str, str], int] = field(default_factory=dict)

    def send(self, *changes: tuple[str, str, int | None]) -> None:
        """Produce changes (dt, id, n); None deletes. A key's changes are all in one Kafka partition."""
        for dt, key, n in changes:
            record = {"id": key, "dt": dt, "n": n or 0, "gone": n is None}
            self.ground.send(sum(key.encode()) % 2, [json.dumps(record).encode()])
            if n is None:
                self.expected.pop((dt, key), None)
            else:
                self.expected[dt, key] = n

    def run(self) -> CommitReceipt:
        return self.ground.run(self.pipeline)

    @property
    def committed(self) -> Checkpoint:
        checkpoint = PipelineTable(self.pipeline).committed().checkpoint
        assert checkpoint is not None
        return checkpoint

    def timeline(self, action: str) -> list[str]:
        """The instants that completed an action."""
        names = (path.name for path in Path(self.ground.base_path, ".hoodie", "timeline").iterdir())
        return [name.partition("_")[0] for name in names if name.endswith(f".{action}") and "_" in name]

    def files_of(self, instant: str) -> set[str]:
        """The data files of an instant, relative to the table."""
        base = Path(self.ground.base_path)
        paths = (path.relative_to(base) for path in base.rglob(f"*{instant}*") if path.is_file())
        return {str(path) for path in paths if path.parts[0] != ".hoodie"}

    def groups(self) -> tuple[FileGroup, ...]:
        return HudiWriter(current_session(self.ground.home), self.pipeline).file_groups(None)

    def require_expected(self, by_rust: bool = True, by_listing: bool = False) -> None:
        """Spark, Spark without the metadata table (`by_listing`), and hudi-rs read exactly the expected rows."""
        spark = current_session(self.ground.home)
        for metadata_table in ("true", "false") if by_listing else ("true",):
            reader = spark.read.format("hudi").option("hoodie.metadata.enable", metadata_table)
            rows = reader.load(self.ground.base_path).select("dt", "id", "n").collect()
            assert sorted((row.dt, row.id, row.n) for row in rows) == self.expected_rows, metadata_table
        if by_rust:
            rows = self.ground.rows().select(["dt", "id", "n"]).to_pylist()
            assert sorted((row["dt"], row["id"], row["n"]) for row in rows) == self.expected_rows

    @property
    def expected_rows(self) -> list[tuple[str, str, int]]:
        return sorted((dt, key, n) for (dt, key), n in self.expected.items())


@pytest.fixture(scope="module")
def keyed(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedGround]:
    """The table that the tests of this module change one after another."""
    with fresh_ground(bootstrap_servers, tmp_path_factory.mktemp("keyed")) as ground:
        create_topic(bootstrap_servers, ground.name, 2)
        table = {
            "mode": "upsert",
            "key": ["id"],
            "buckets": 2,
            "delete_field": "gone",
            "schema": "id string, dt string, n long, gone boolean",
        }
        yield KeyedGround(ground, make_pipeline(ground, table=table))


@dataclass(frozen=True)
class OtherWriter:
    """A Spark session in which nothing of Hudi's is set."""

    spark: SparkSession
    table: str

    def sql(self, statement: str) -> None:
        self.spark.catalog.refreshTable(self.table)
        self.spark.sql(statement.format(table=self.table))


@pytest.fixture
def other(keyed: KeyedGround) -> OtherWriter:
    if not Path(keyed.ground.base_path, ".hoodie").exists():
        keyed.send(("d0", "k0", 0))
        keyed.run()
    spark = current_session(keyed.ground.home).newSession()
    name = keyed.ground.name
    spark.sql(f"create table if not exists {name} using hudi location '{keyed.ground.base_path}'")
    return OtherWriter(spark, name)


def never(run_id: str) -> bool | None:
    return None


def age(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then))


@pytest.mark.tier(1)
def test_p1_p3_p8_one_row_per_key(keyed: KeyedGround) -> None:
    keyed.send(*((f"d{n % 2}", f"k{n}", n) for n in range(20)))
    assert keyed.run().rows == 20
    keyed.require_expected()
    keyed.send(
        ("d0", "k0", 100), ("d0", "k0", 101), ("d1", "k1", None), ("d0", "k2", 5), ("d0", "k2", None), ("d2", "new", 1)
    )
    receipt = keyed.run()
    assert receipt.rows == 6
    assert sum(report.deletes for report in receipt.reports) == 2
    assert sum(report.superseded for report in receipt.reports) == 2
    keyed.require_expected(by_listing=True)
    commits = PipelineTable(keyed.pipeline).commits()
    assert [commit.instant for commit in commits] == sorted(keyed.timeline("deltacommit"))
    checkpoint = PipelineTable(keyed.pipeline).committed().checkpoint
    assert accounting_holds(keyed.pipeline, checkpoint, commits).passed
    logs = {file.path for file in PipelineTable(keyed.pipeline).timeline.log_files()}
    assert logs == {path for commit in commits for path in commit.files if ".log." in path}


@pytest.mark.tier(1)
def test_h2_p3_p5_failed_attempts_leave_no_log_files(keyed: KeyedGround, fault: Fault) -> None:
    """A slice whose first attempt wrote files and was not reported, then an instant that is abandoned."""
    keyed.send(*(("d0", f"k{n}", 1000 + n) for n in range(3, 9)))
    protocol = keyed.ground.protocol(keyed.pipeline)
    opened = protocol.begin(keyed.ground.plan(keyed.pipeline), Owner.this_process(), never)
    fault.arm("slices_written", "raise")
    with pytest.raises(InjectedFault):
        protocol.write(opened, opened.plan.busy)
    failed = keyed.files_of(opened.instant)
    assert failed
    reports = protocol.write(opened, opened.plan.busy)
    protocol.commit(opened, reports)
    written = {file.path for report in reports for file in report.written}
    assert written == {path for path in keyed.files_of(opened.instant) if ".log." in path}
    assert not written & failed
    keyed.require_expected()

    keyed.send(("d0", "k3", 2000), ("d3", "elsewhere", 1))
    dead = protocol.begin(keyed.ground.plan(keyed.pipeline), Owner.dagster_run("dead"), never)
    reports = protocol.write(dead, dead.plan.busy)
    fault.arm("commit_leased", "raise")
    with pytest.raises(InjectedFault):
        protocol.commit(dead, reports)
    assert any(path.endswith(".parquet") for path in keyed.files_of(dead.instant)), "the new file group's base file"
    again = protocol.begin(keyed.ground.plan(keyed.pipeline), Owner.this_process(), lambda run_id: True)
    assert again.plan.slices == dead.plan.slices
    assert keyed.files_of(dead.instant) == set()
    with pytest.raises(Fenced):
        protocol.commit(dead, reports)
    with pytest.raises(Fenced):
        protocol.write(dead, dead.plan.busy)
    protocol.commit(again, protocol.write(again, again.plan.busy))
    keyed.require_expected()


@pytest.mark.tier(1)
def test_p3_r9_a_file_that_comes_too_late_is_invisible_and_swept(keyed: KeyedGround) -> None:
    commit = PipelineTable(keyed.pipeline).commits()[-1]
    path = next(path for path in sorted(commit.files) if ".log." in path)
    late = Path(keyed.ground.base_path, f"{path.rpartition('_')[0]}_1-9-9")
    late.write_bytes(Path(keyed.ground.base_path, path).read_bytes().replace(b"elsewhere", b"elsewhile"))
    spark = current_session(keyed.ground.home)
    rows = spark.read.format("hudi").load(keyed.ground.base_path).select("dt", "id", "n").collect()
    assert sorted((row.dt, row.id, row.n) for row in rows) == keyed.expected_rows
    age(late, 3600)
    sweep = sweep_for(keyed.pipeline, keyed.ground.ledger, spark)
    result = sweep.run(timedelta(minutes=10), delete=True, report=lambda line: None)
    assert [orphan.file.path for orphan in result.orphans] == [str(late.relative_to(keyed.ground.base_path))]
    keyed.require_expected(by_listing=True)


@pytest.mark.tier(1)
def test_p8_a_replay_to_the_committed_end_applies_all_changes_in_their_order(keyed: KeyedGround) -> None:
    """Of a table whose deletes are compacted away; a bad record is kept, and tried again by the replay."""
    pipeline = keyed.pipeline.model_copy(update={"on_bad_record": "dead_letter"})
    offsets = keyed.committed.offsets
    keyed.ground.send(0, [b"no json"])
    assert keyed.ground.run(pipeline).rejected == 1
    compacted = services_for(pipeline, keyed.ground.ledger, current_session(keyed.ground.home), keyed.ground.home).run(
        clean=False, report=lambda line: None, compact=True
    )
    assert compacted.compactions
    keyed.require_expected()

    bad = TopicPartition(keyed.ground.name, 0)
    with pytest.raises(RangeRefused, match=r"ends before the committed offset \d+. The table is keyed"):
        survey_replay(look_at(pipeline).whole(), [Slice(bad.topic, bad.partition, 0, offsets[bad])])
    # As it was asked for before the bad record came.
    asked = [Slice(source.topic, source.partition, 0, end) for source, end in offsets.items()]
    (receipt,) = requested(keyed.ground, pipeline, TransactionKind.REPLAY, asked)
    assert (receipt.rows, receipt.rejected) == (sum(offsets.values()), 1)
    assert receipt.instant in keyed.timeline("deltacommit")
    assert keyed.committed.offsets == {**offsets, bad: offsets[bad] + 1}
    assert keyed.committed.letters is not None
    assert keyed.committed.letters.waiting == 1
    keyed.require_expected()


def test_p8_a_dead_letter_becomes_a_row_unless_that_could_undo_a_newer_change(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    """Its key has an older row, a newer one, or none, or was deleted and the delete compacted away."""
    with fresh_ground(bootstrap_servers, tmp_path) as ground:
        create_topic(bootstrap_servers, ground.name, 2)
        table = {"mode": "upsert", "key": ["id"], "buckets": 1, "delete_field": "gone"}
        columns = "id string, dt string, n {kind}, gone boolean"
        pipeline = make_pipeline(
            ground, on_bad_record="dead_letter", table={**table, "schema": columns.format(kind="long")}
        )
        fixed = make_pipeline(
            ground,
            on_bad_record="dead_letter",
            table={**table, "schema": columns.format(kind="string")},
            transforms=[{"cast": {"n": "long"}}],
        )
        keyed = KeyedGround(ground, pipeline)
        keyed.send(*(("d0", key, 1) for key in ("older", "newer", "deleted", "forgotten")))
        keyed.run()

        def send_bad(*keys: str) -> None:
            for key in keys:
                record = {"id": key, "dt": "d0", "n": "2", "gone": False}
                ground.send(sum(key.encode()) % 2, [json.dumps(record).encode()])
            assert keyed.run().rejected == len(keys)

        def compact() -> None:
            services = services_for(pipeline, ground.ledger, current_session(ground.home), ground.home)
            assert services.run(clean=False, report=lambda line: None, compact=True).compactions

        def retried() -> RetryResult:
            request = file_request(new_request(fixed, TransactionKind.RETRY), ground.home)
            for _ in work_off(fixed, request, home=ground.home, report=lambda line: None):
                pass
            return retry_result(fixed, ground.ledger, request.request_id)

        send_bad("older", "newer", "deleted", "new")
        keyed.send(("d0", "newer", 3), ("d0", "deleted", None))
        keyed.run()
        compact()
        result = retried()
        assert (result.tried, result.rows, result.waiting) == (4, 4, 0)
        keyed.expected |= {("d0", "older"): 2, ("d0", "new"): 2}
        keyed.require_expected()

        send_bad("forgotten", "older")
        keyed.send(("d0", "forgotten", None))
        keyed.run()
        compact()
        base = max(keyed.timeline("commit"))
        logs = [path for path in Path(ground.base_path).rglob("*.log.*") if ".hoodie" not in path.parts]
        old = [path for path in logs if path.name.partition(".log.")[0].rpartition("_")[2] < base]
        assert old
        for path in old:
            # As cleaning does, some commits later.
            path.unlink()
        result = retried()
        assert (result.tried, result.rows, result.waiting) == (2, 1, 1)
        (reason,) = result.reasons
        assert FORGOTTEN in reason
        keyed.require_expected()


def test_p7_other_writers_change_the_table_between_transactions(keyed: KeyedGround, other: OtherWriter) -> None:
    keyed.send(("d0", "k4", 4), ("d0", "k6", 6), ("d0", "k10", 10), ("d1", "k11", 11))
    keyed.run()
    other.sql("update {table} set n = 7000 where id = 'k4'")
    other.sql("delete from {table} where id in ('k10', 'k11')")
    # A MERGE needs the ordering value: the row's own, because a smaller one would lose.
    rows = (
        "(select s.*, coalesce(t._kafka_offset, 0L) _kafka_offset from "
        "(select 'k6' id, 7600L n, 'd0' dt union all select 'sql', 1L, 'd0') s "
        "left join {table} t on t.id = s.id and t.dt = s.dt)"
    )
    merge = (
        f"merge into {{table}} t using {rows} s on t.id = s.id and t.dt = s.dt when matched then update set %s n = s.n, "
        "_kafka_offset = s._kafka_offset when not matched then insert (id, n, dt, _kafka_offset, _kafka_partition, "
        "_kafka_topic) values (s.id, s.n, s.dt, s._kafka_offset, 0, '')"
    )
    with pytest.raises(AnalysisException, match="No matching assignment found for target table record key field"):
        other.sql(merge % "")
    other.sql(merge % "id = s.id, dt = s.dt,")
    keyed.expected |= {("d0", "k4"): 7000, ("d0", "k6"): 7600, ("d0", "sql"): 1}
    del keyed.expected["d0", "k10"], keyed.expected["d1", "k11"]
    keyed.require_expected()
    # Our next changes of the same keys are newer.
    keyed.send(("d0", "k4", 8000), ("d0", "k10", 8010), ("d0", "sql", 2), ("d0", "k6", None))
    keyed.run()
    keyed.require_expected()


def test_p7_other_writers_change_the_table_during_a_transaction(keyed: KeyedGround, other: OtherWriter) -> None:
    keyed.send(("d0", "k12", 12), ("d0", "k14", 14))
    keyed.run()
    keyed.send(("d0", "k8", 9008), ("d6", "both", 2))
    protocol = keyed.ground.protocol(keyed.pipeline)
    opened = protocol.begin(keyed.ground.plan(keyed.pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.busy)
    other.sql("update {table} set n = 1 where id in ('k8', 'k14')")
    other.sql("delete from {table} where id = 'k12'")
    other.sql(
        "insert into {table} (id, dt, n, _kafka_partition, _kafka_offset, _kafka_topic) values ('both', 'd6', 1L, 0, 0L, '')"
    )
    protocol.commit(opened, reports)
    # The record's change is newer than the row that the update has read.
    keyed.expected["d0", "k14"] = 1
    del keyed.expected["d0", "k12"]
    # The other writer's new file group has no base file before its first compaction, and hudi-rs passes over such ones.
    keyed.require_expected(by_rust=False)
    groups = keyed.groups()
    assert len({(group.partition_path, group.bucket) for group in groups}) == len(groups), groups


def test_p7_a_dropped_partition_gets_new_file_groups(keyed: KeyedGround, other: OtherWriter) -> None:
    keyed.send(("d6", "both", 2))
    keyed.run()
    other.sql("alter table {table} drop partition (dt = 'd6')")
    del keyed.expected["d6", "both"]
    keyed.require_expected()
    keyed.send(("d6", "both", 3), ("d6", "newer", 4))
    keyed.run()
    keyed.require_expected()
    keyed.send(("d6", "both", 5), ("d1", "k9", 6))
    protocol = keyed.ground.protocol(keyed.pipeline)
    opened = protocol.begin(keyed.ground.plan(keyed.pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.busy)
    other.sql("alter table {table} drop partition (dt = 'd6')")
    with pytest.raises(CommitRefused, match="another writer replaced or made a file group of table partition 'dt=d6'"):
        protocol.commit(opened, reports)
    protocol.abort(opened, "its file group was replaced")
    keyed.run()
    del keyed.expected["d6", "newer"]
    keyed.require_expected(by_listing=True)


@pytest.mark.tier(1)
def test_p1_p2_s5_events_of_debezium_leave_no_row_where_one_was(bootstrap_servers: str, tmp_path: Path) -> None:
    ann, bob = {"id": 1, "name": "ann", "country": "eu"}, {"id": 2, "name": "bob", "country": "eu"}
    moved, renamed = {**ann, "country": "us"}, {**bob, "id": 3}
    with fresh_ground(bootstrap_servers, tmp_path) as ground:
        create_topic(bootstrap_servers, ground.name, 1)
        pipeline = make_pipeline(
            ground,
            source={"envelope": "debezium", "before_image": "row"},
            table={
                "mode": "upsert",
                "key": ["id"],
                "partition_by": ["country"],
                "buckets": 1,
                "schema": "id long not null, name string not null, country string",
            },
        )

        def send(*events: tuple[str, dict[str, Any] | None, dict[str, Any] | None]) -> None:
            records = [
                json.dumps({"before": before, "after": after, "op": op}).encode() for op, before, after in events
            ]
            ground.send(0, [value for record in records for value in (record, None)])

        send(("r", None, ann), ("r", None, bob))
        assert ground.run(pipeline).rows == 2
        send(("u", ann, moved), ("d", bob, None), ("c", None, renamed), ("u", renamed, {**renamed, "name": "rob"}))
        receipt = ground.run(pipeline)
        assert (receipt.rows, sum(report.deletes for report in receipt.reports)) == (4, 1)
        assert sum(report.moves for report in receipt.reports) == 1
        expected = [(1, "ann", "us"), (3, "rob", "eu")]
        spark_rows = current_session(ground.home).read.format("hudi").load(ground.base_path).collect()
        assert sorted((row.id, row.name, row.country) for row in spark_rows) == expected
        by_rust = ground.rows().select(["id", "name", "country"]).to_pylist()
        assert sorted(tuple(row.values()) for row in by_rust) == expected


@pytest.mark.tier(1)
def test_p1_s14_values_that_an_update_left_out_are_those_of_the_keys_row(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"id": "int64", "n": "int32", "title": "string", "scores": {"type": "array", "items": {"type": "int32"}}}
    fields = [{"field": name, **(kind if isinstance(kind, dict) else {"type": kind})} for name, kind in columns.items()]
    row = {"type": "struct", "fields": fields}
    members = [{"field": "before", **row}, {"field": "after", **row}, {"field": "op", "type": "string"}]
    text, numbers = "__debezium_unavailable_value", [*b"__debezium_unavailable_value"]
    with fresh_ground(bootstrap_servers, tmp_path) as ground:
        create_topic(bootstrap_servers, ground.name, 1)
        pipeline = make_pipeline(
            ground,
            on_bad_record="dead_letter",
            source={"envelope": "debezium"},
            table={
                "mode": "upsert",
                "key": ["id"],
                "partition_by": [],
                "buckets": 1,
                "schema": "id long not null, n int, title string, scores array<int>",
            },
            # The placeholder is longer.
            expectations=[
                {"name": "short", "condition": "length(title) < 20", "severity": "reject"},
                {"name": "few", "condition": "n < 50"},
            ],
        )

        def applied(*rows: tuple[int, int, str | None, list[int]] | int) -> CommitReceipt:
            """Send the rows, and a delete for each bare key, and ingest them."""
            schema = {"type": "struct", "fields": members}
            for row in rows:
                image = dict(zip(columns, (row, 0, None, []) if isinstance(row, int) else row, strict=True))
                payload = {"before": image, "op": "d"} if isinstance(row, int) else {"after": image, "op": "u"}
                ground.send(0, [json.dumps({"schema": schema, "payload": payload}).encode()])
            return ground.run(pipeline)

        def require(*expected: tuple[int, int, str | None, list[int]]) -> None:
            by_rust = ground.rows().select([*columns]).to_pylist()
            assert sorted(tuple(row.values()) for row in by_rust) == [*expected]
            by_spark = current_session(ground.home).read.format("hudi").load(ground.base_path).collect()
            assert sorted((row.id, row.n, row.title, row.scores) for row in by_spark) == [*expected]

        applied((1, 1, "one", [1, 2]), (2, 1, "two", [3]), (3, 1, "tres", [4]))
        receipt = applied((1, 2, "new", numbers), (1, 3, text, numbers), (3, 2, text, numbers), 2, (4, 1, "four", []))
        assert (receipt.rows, receipt.rejected) == (5, 0)
        require((1, 3, "new", [1, 2]), (3, 2, "tres", [4]), (4, 1, "four", []))
        compact_all(ground, pipeline)
        applied((1, 4, text, [5]), (4, 2, text, numbers), (3, 3, "three", numbers))
        require((1, 4, "new", [5]), (3, 3, "three", [4]), (4, 2, "four", []))
        receipt = applied(
            (1, 5, text, numbers), (2, 2, text, [6]), (3, 4, "gone", [7]), 3, (3, 5, text, [8]), (5, 1, text, [])
        )
        assert (receipt.rows, receipt.rejected) == (3, 3)
        require((1, 5, "new", [5]), (4, 2, "four", []))
        assert [(note.offset, note.field) for report in receipt.reports for note in report.bad_records] == [
            (12, "title"),
            (15, "title"),
            (16, "title"),
        ]
        # A slice that is cut for several tasks is read by one, once a change may need one of the range before.
        monkeypatch.setattr(job, "rows_per_task", lambda *_: 4)
        receipt = applied(*((1, 10 + n, f"t{n}", [n]) for n in range(12)), (1, 99, text, numbers))
        assert dict(receipt.violations) == {"few": 1}
        require((1, 99, "t11", [11]), (4, 2, "four", []))
        left = {
            path.name for path in Path(ground.base_path).glob(f".*_{receipt.instant}.log.*") if "crc" not in path.name
        }
        assert left == {Path(file.path).name for report in receipt.reports for file in report.written}


def compact_all(ground: Ground, pipeline: Pipeline) -> None:
    spark = current_session(ground.home)
    services_for(pipeline, ground.ledger, spark, ground.home).run(clean=False, report=list[str]().append)


def test_p1_a_column_that_the_source_renames_or_drops_erases_no_value(bootstrap_servers: str, tmp_path: Path) -> None:
    with fresh_ground(bootstrap_servers, tmp_path) as ground:
        create_topic(bootstrap_servers, ground.name, 1)

        def pipeline(columns: str, **source: Any) -> Pipeline:
            table = {"mode": "upsert", "key": ["id"], "partition_by": [], "buckets": 1, "schema": columns}
            return make_pipeline(ground, source={"envelope": "debezium", **source}, table=table)

        def send(types: dict[str, str], *rows: dict[str, Any]) -> None:
            fields = [{"field": name, "type": kind, "optional": True} for name, kind in types.items()]
            members = [{"field": "after", "type": "struct", "fields": fields}, {"field": "op", "type": "string"}]
            schema = {"type": "struct", "fields": members}
            records = [{"schema": schema, "payload": {"after": row, "op": "u"}} for row in rows]
            ground.send(0, [json.dumps(record).encode() for record in records])

        def rows(*names: str) -> list[tuple[Any, ...]]:
            found = ground.rows().select(["id", *names]).to_pylist()
            return sorted(tuple(row[name] for name in ("id", *names)) for row in found)

        declared, types = "id long not null, city string, size int", {"id": "int64", "city": "string", "size": "int32"}
        send(types, {"id": 1, "city": "Ulm", "size": 1}, {"id": 2, "city": "Bonn", "size": 2})
        ground.run(pipeline(declared))
        renamed = {"id": "int64", "town": "string", "size": "int32"}
        send(types, {"id": 2, "city": "Bern", "size": 3})
        send(renamed, {"id": 1, "town": "Ulm", "size": 4})
        with pytest.raises(BadRecord, match=rf"{ground.name}:0:3.*city.*erase.*optional_fields.*town"):
            ground.run(pipeline(declared))
        assert rows("city", "size") == [(1, "Ulm", 1), (2, "Bonn", 2)]

        both = declared + ", town string"
        ground.run(pipeline(both, optional_fields=["city", "town"]))
        assert rows("city", "size", "town") == [(1, None, 4, "Ulm"), (2, "Bern", 3, None)]
        # A large value that was not sent again since the column has its new name: nobody knows it, and it is not null.
        left_out = {"id": 2, "town": "__debezium_unavailable_value", "size": 5}
        send(renamed, left_out)
        with pytest.raises(BadRecord, match=rf"{ground.name}:0:4.*town.*snapshot.*cannot be known"):
            ground.run(pipeline(both, optional_fields=["city", "town"]))
        send(renamed, {"id": 2, "town": "Bern", "size": 5})
        ground.run(pipeline(both, optional_fields=["city", "town"]))
        assert rows("size", "town") == [(1, 4, "Ulm"), (2, 5, "Bern")]

        dropped = {"id": "int64", "town": "string"}
        send(dropped, {"id": 2, "town": "Bern"})
        with pytest.raises(BadRecord, match=rf"{ground.name}:0:6.*size.*erase"):
            ground.run(pipeline(both, optional_fields=["city", "town"]))
        ground.run(pipeline(both, optional_fields=["city", "town", "size"]))
        assert rows("city", "size", "town") == [(1, None, 4, "Ulm"), (2, None, None, "Bern")]


def test_p1_a_column_that_a_registered_schema_loses_erases_no_value(
    bootstrap_servers: str, registry: Registry, tmp_path: Path
) -> None:
    with fresh_ground(bootstrap_servers, tmp_path) as ground:
        create_topic(bootstrap_servers, ground.name, 1)

        def run(**source: Any) -> list[tuple[Any, ...]]:
            of_registry = {"format": "avro", "schema_registry": {"url": registry.url}, **source}
            columns = "id long not null, city string, planned string"
            table = {"mode": "upsert", "key": ["id"], "partition_by": [], "buckets": 1, "schema": columns}
            ground.run(make_pipeline(ground, source=of_registry, table=table))
            found = ground.rows().select(["id", "city", "planned"]).to_pylist()
            return sorted(tuple(row.values()) for row in found)

        def record(identifier: int, **texts: str) -> bytes:
            fields = [{"name": name, "type": ["null", "string"], "default": None} for name in texts]
            schema = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, *fields]}
            return avro_bytes(registry, ground.name, json.dumps(schema), {"id": identifier, **texts})

        ground.send(0, [record(1), record(1, city="Ulm"), record(2, city="Bonn"), record(3)])
        expected = [(1, "Ulm", None), (2, "Bonn", None), (3, None, None)]
        assert run() == expected
        ground.send(0, [record(2, city="Bern"), record(1, town="Ulm")])
        with pytest.raises(BadRecord, match=rf"{ground.name}:0:5.*city.*erase.*optional_fields.*town"):
            run()
        assert run(optional_fields=["city"]) == [(1, None, None), (2, "Bern", None), (3, None, None)]


ALL_TYPES = {
    "i": ("int", -3, -3),
    "l": ("long", 2**40, 2**40),
    "f": ("float", 0.5, 0.5),
    "d": ("double", -1e300, -1e300),
    "b": ("boolean", True, True),
    "day": ("date", "1969-02-03", date(1969, 2, 3)),
    "at": ("timestamp", "2026-02-03T04:05:06.000007Z", datetime(2026, 2, 3, 4, 5, 6, 7, timezone.utc)),
    "price": ("decimal(20,4)", "-12345678901.2345", Decimal("-12345678901.2345")),
    "raw": ("binary", "aGVsbG8=", b"hello"),
    "text": ("string not null", "ö,:\u0000", "ö,:\u0000"),
    "s": ("struct<x: int, y: decimal(9,2)>", {"x": None, "y": "1.50"}, {"x": None, "y": Decimal("1.50")}),
    "a": ("array<struct<q: double>>", [{"q": 1.5}, {"q": None}], [{"q": 1.5}, {"q": None}]),
    "m": ("map<string, long>", {"k": 1, "n": None}, {"k": 1, "n": None}),
}
"""By column: its type, a value as JSON, and the value that readers see."""
NESTED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "top": ("{}", lambda value: value),
    "in_struct": ("struct<x: {}>", lambda value: {"x": value}),
    "in_array": ("array<{}>", lambda value: [value, None]),
    "in_map": ("map<string, {}>", lambda value: {"k": value, "n": None}),
    "in_struct_in_array": ("array<struct<x: {}>>", lambda value: [{"x": value}, {"x": None}, None]),
}
"""By name: the type around a type, and the value around a value."""


@pytest.mark.parametrize("depths", [["top"], [name for name in NESTED if name != "top"]], ids=["top", "nested"])
def test_p1_values_of_all_types_at_all_depths_in_log_files_are_read_by_spark_and_hudi_rs(
    depths: list[str], bootstrap_servers: str, tmp_path: Path
) -> None:
    """Few rows are an Avro block, unless they have arrays, maps, or times inside structs: then they are a Parquet block."""
    types: dict[str, str] = {}
    sent, full, bare = ({"id": identifier} for identifier in ("full", "full", "bare"))
    for depth in depths:
        around, put = NESTED[depth]
        for name, (kind, value, read) in ALL_TYPES.items():
            column = f"{depth}_{name}"
            types[column] = around.format(kind if depth == "top" else kind.removesuffix(" not null"))
            sent[column], full[column] = put(value), put(read)
        bare[f"{depth}_text"] = put("")
    columns = ", ".join(f"{column} {kind}" for column, kind in types.items())
    with fresh_ground(bootstrap_servers, tmp_path) as ground:
        create_topic(bootstrap_servers, ground.name, 1)
        table = {"mode": "upsert", "key": ["id"], "partition_by": [], "buckets": 1, "schema": f"id string, {columns}"}
        ground.send(0, [json.dumps(row).encode() for row in (sent, bare)])
        ground.run(make_pipeline(ground, table=table))
        expected = [dict.fromkeys(full) | bare, full]
        read = current_session(ground.home).read.format("hudi").load(ground.base_path).orderBy("id")
        by_spark = [_with_zones(row.asDict(recursive=True)) for row in read.select(*full).collect()]
        assert by_spark == expected
        by_rust = ground.rows().select([*full]).sort_by("id").to_pylist(maps_as_pydicts="strict")
        assert by_rust == expected
        # hudi-rs takes what was written before a column was added for rows of some columns only.
        table["schema"] = f"id string, {columns}, added string"
        changed: dict[str, Any] = {**bare, "added": "x"}
        ground.send(0, [json.dumps(changed).encode()])
        ground.run(make_pipeline(ground, table=table))
        with_column = ground.rows().select([*full, "added"]).sort_by("id").to_pylist(maps_as_pydicts="strict")
        assert with_column == [dict.fromkeys(full) | changed, {**full, "added": None}]


def _with_zones(value: Any) -> Any:
    """The value as hudi-rs gives it: Spark gives times without a zone, as local ones."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc)
    if isinstance(value, dict):
        return {key: _with_zones(inner) for key, inner in value.items()}
    return [_with_zones(inner) for inner in value] if isinstance(value, list) else value


def test_p4_p7_file_groups_that_change_once_they_were_looked_up_refuse_the_commit(
    keyed: KeyedGround, other: OtherWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed.send(("d0", "k18", 18))
    keyed.run()
    # File groups are looked up only once another writer has been there.
    other.sql("update {table} set n = 19 where id = 'k18'")
    keyed.send(("d0", "k16", 160))
    protocol = keyed.ground.protocol(keyed.pipeline)
    opened = protocol.begin(keyed.ground.plan(keyed.pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.busy)
    look_up = HudiWriter.file_groups

    def look_up_too_early(
        writer: HudiWriter, paths: Collection[str] | None, files: bool = False
    ) -> tuple[FileGroup, ...]:
        groups = look_up(writer, paths, files)
        other.sql("delete from {table} where id = 'k18'")
        return groups

    with monkeypatch.context() as early:
        early.setattr(HudiWriter, "file_groups", look_up_too_early)
        with pytest.raises(CommitRefused, match=r"another writer's deltacommit .* was completed while file groups"):
            protocol.commit(opened, reports)
    protocol.abort(opened, "refused")
    del keyed.expected["d0", "k18"]
    keyed.run()
    keyed.require_expected()
