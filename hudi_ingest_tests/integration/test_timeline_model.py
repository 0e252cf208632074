"""The simulation's table does what Hudi's client does to a local one: the same random programs of begins, files, commits, expired leases,
rollbacks, clusterings and cleanings on both, looked at after each step."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import TypeVar
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from hudi_ingest.exceptions import IngestError
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.file_groups import RowSource, file_id
from hudi_ingest.hudi.files.new_files import NewFiles
from hudi_ingest.hudi.services.table_services import HudiServices
from hudi_ingest.hudi.storage.paths import HEARTBEATS, TIMELINE, heartbeat_path
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.hudi.timeline.pipeline_table import committed_state
from hudi_ingest.hudi.timeline.publication import Publication
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.model.checkpoint import next_checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import BaseFile
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.commit_contents import commit_metadata
from hudi_ingest.transaction.ports import InstantWriter
from hudi_ingest_tests.simulation import services
from hudi_ingest_tests.simulation.programs import Program
from hudi_ingest_tests.simulation.services import ServicesInMemory
from hudi_ingest_tests.simulation.world import (
    HudiInMemory,
    TimelineInMemory,
    World,
    WriterInMemory,
    declared_schema,
    storage_in,
)
from hudi_ingest_tests.support.pipeline_files import document

pytestmark = pytest.mark.spark

PROGRAMS = range(int(os.environ.get("HUDI_INGEST_TIMELINE_PROGRAMS", "0"))) or (1, 4, 6)
"""Without a number those in which a clustering's second try deletes what the first has written, and cleaning what was replaced."""
STEPS = 24
SOURCE = TopicPartition("orders", 0)
EXPIRED = timedelta(seconds=1000)
T = TypeVar("T")


@dataclass
class Table:
    """One of the two."""

    pipeline: Pipeline
    instants: InstantWriter
    services: HudiServices
    timeline: Timeline
    storage: TableStorage
    world: World | None = None
    began: list[OpenTransaction] = field(default_factory=list)
    clusterings: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def epoch(self) -> TableEpoch:
        return TableEpoch(self.storage)

    def begin(self) -> str:
        committed = committed_state(self.timeline, self.pipeline.checkpoint_key, self.pipeline.transaction_key)
        checkpoint = committed.checkpoint
        start = checkpoint.offsets[SOURCE] if checkpoint else 0
        number = len(self.began)
        plan = IngestPlan(
            self.pipeline.name,
            f"t{number}",
            (checkpoint.sequence if checkpoint else 0) + 1,
            (Slice(SOURCE.topic, SOURCE.partition, start, start + 2),),
        )
        schema = declared_schema(self.pipeline.table_schema)
        epoch = self.epoch.advance(self.epoch.current().number + 1, plan.transaction_id).number
        instant = self.instants.begin(plan, schema)
        now = datetime.now(timezone.utc)
        self.began.append(OpenTransaction(plan, instant, epoch, now, now + EXPIRED, schema, ""))
        return ""

    def write(self, which: int, path: str) -> str:
        """A file of one row."""
        transaction = self.began[which]
        epoch = Epoch(transaction.epoch, transaction.plan.transaction_id)
        if self.world is not None:
            WriterInMemory(self.world)._require_open(transaction)
            self.world.markers.setdefault(transaction.instant, set()).add(path)
            self.world.files[path] = [(SOURCE, len(self.world.files))]
            return ""
        source = RowSource(SOURCE, "0-0-0")
        files: NewFiles[str] = NewFiles(self.storage, transaction.instant, epoch)
        content = one_row(self.pipeline, transaction.instant, path)
        self.sizes[path] = len(content)
        try:
            files.open(source, "", path).write(content)
            files.close(path)
            files.report(SOURCE, path)
            files.finish(source)
        except BaseException:
            files.discard()
            raise
        return ""

    def commit(self, which: int, paths: list[str], expects_current: bool) -> str:
        transaction = self.began[which]
        plan, instant = transaction.plan, transaction.instant
        committed = committed_state(self.timeline, self.pipeline.checkpoint_key, self.pipeline.transaction_key)
        before = committed.checkpoint
        if self.world is not None:
            self.world.synced |= {*paths}
        self.instants.commit(
            Publication(
                instant=instant,
                files=[BaseFile("", path.partition("_")[0], path, 1, self.sizes.get(path, 1), 0, 0) for path in paths],
                metadata=commit_metadata(self.pipeline, plan, next_checkpoint(before, plan, 0, instant), ()),
                expected_checkpoint=committed.checkpoint_text if expects_current else '{"sequence": 99}',
                epoch=Epoch(transaction.epoch, plan.transaction_id),
                schema=transaction.schema,
                clean=False,
            )
        )
        return ""

    def serve(self, call: Callable[[], T]) -> T:
        """What services do, in memory as a program in an engine."""
        if self.world is None:
            return call()
        world, found = self.world, list[T]()
        with ExitStack() as stack:
            for where, name, instead in services.patches(lambda: world, datetime):
                stack.enter_context(mock.patch.object(where, name, instead))
            program = Program("services", lambda: found.append(call()))
            program.go_on(points=10**9)
            if program.failure is not None:
                raise program.failure
        return found[0]

    def plan_clustering(self) -> str:
        instant = self.serve(self.services.plan_clustering)
        if instant is not None:
            self.clusterings.append(instant)
        return "" if instant is None else "planned"

    def cluster(self, which: int) -> str:
        done = self.serve(partial(self.services.cluster, self.clusterings[which]))
        return f"{done.replaced} files replaced, {done.written} with {done.rows} rows written"

    def die_in_clustering(self, which: int, path: str) -> str:
        """A try has begun the newest plan, if nobody has done it, and written a file."""
        instant = self.clusterings[which]
        if self.timeline.instants().pending.isdisjoint([instant]):
            return ""
        path += f"{instant}.parquet"
        if self.world is not None:
            self.world.active[instant].state = "inflight"
            self.world.files[path] = []
        else:
            Path(self.storage.base_path, TIMELINE, f"{instant}.clustering.inflight").touch()
            Path(self.storage.base_path, path).write_bytes(b"half a file")
        return "died"

    def clean(self) -> str:
        return f"{self.serve(self.services.clean)} files deleted"

    def of_services(self) -> list[int]:
        """The clustering of each file that is there."""
        if self.world is not None:
            paths = {*self.world.files}
        else:
            paths = {path.name for path in Path(self.storage.base_path).glob("*.parquet")}
        found = (path.rpartition("_")[2].removesuffix(".parquet") for path in paths)
        return sorted(self.clusterings.index(instant) for instant in found if instant in self.clusterings)

    def live(self, paths: list[str]) -> list[str]:
        """The files that readers see; of a clustering's ones its number."""
        found = self.world.live() if self.world is not None else [file.path for file in self.timeline.files()]
        instants = {each: f"clustering {number}" for number, each in enumerate(self.clusterings)}
        return sorted(
            path if path in paths else instants[path.rpartition("_")[2].removesuffix(".parquet")] for path in found
        )

    def retire(self, which: int) -> str:
        self.epoch.retire(self.began[which].plan.transaction_id)
        return ""

    def roll_back(self, which: int) -> str:
        return str(self.instants.roll_back(self.began[which].instant))

    def roll_back_expired(self) -> str:
        self.instants.roll_back_expired()
        return ""

    def expire(self, which: int) -> str:
        """The lease of an instant ends, if it has one."""
        instant = self.began[which].instant
        if self.world is not None:
            if instant in self.world.heartbeats:
                self.world.heartbeats[instant] -= EXPIRED
            return ""
        path = Path(self.storage.base_path, heartbeat_path(instant))
        if path.exists():
            before = path.stat().st_mtime - EXPIRED.total_seconds()
            os.utime(path, (before, before))
        return ""

    def looks(self, paths: list[str]) -> object:
        """What readers and the next begin see, by the transactions' numbers."""
        names = [each.instant for each in self.began]
        instants, commits = self.timeline.instants(), self.timeline.completed()
        state = committed_state(self.timeline, self.pipeline.checkpoint_key, self.pipeline.transaction_key)
        beating = (
            {*self.world.heartbeats}
            if self.world is not None
            else {file.path.rpartition("/")[2] for file in self.storage.files(HEARTBEATS)}
        )
        return {
            "pending": sorted(names.index(each) for each in instants.pending.intersection(names)),
            "completed": [names.index(each.instant) for each in commits if each.instant in names],
            "clusterings pending": [each in instants.pending for each in self.clusterings],
            "of clusterings": self.of_services(),
            "live": self.live(paths),
            "open": sorted((each.transaction_id, each.leased) for each in self.instants.open_instants()),
            "heartbeats": sorted(names.index(each) for each in beating.intersection(names)),
            "files": [
                path in self.world.files if self.world is not None else self.storage.exists(path) for path in paths
            ],
            "checkpoint": state.checkpoint and (state.checkpoint.sequence, state.checkpoint.transaction_id),
            "epoch": self.epoch.current(),
        }


def one_row(pipeline: Pipeline, instant: str, path: str) -> bytes:
    hudis = {"_hoodie_commit_time": instant, "_hoodie_commit_seqno": "0", "_hoodie_record_key": path}
    hudis |= {"_hoodie_partition_path": "", "_hoodie_file_name": path}
    columns = pipeline.table_schema.columns
    values = {field.name: pa.array([None if field.nullable else 0]).cast(field.type) for field in columns}
    content = io.BytesIO()
    pq.write_table(pa.table({**{name: [text] for name, text in hudis.items()}, **values}), content)
    return content.getvalue()


@pytest.mark.parametrize("seed", PROGRAMS)
def test_the_model_of_a_table_does_what_hudi_does(
    seed: int, tmp_path: Path, spark_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which files are small enough, and how many are merged at once, are settings.
    monkeypatch.setattr(services, "SMALL", 1000)
    monkeypatch.setattr(services, "MOST_FILES", 1000)
    file = tmp_path / "orders.yaml"
    changes = {"table__base_path": str(tmp_path / "table"), "table__retain_commits": services.RETAINED}
    file.write_text(yaml.safe_dump(document(**changes)))
    pipeline = load_pipeline(file, {})
    world = World(pipeline, pipeline.table_schema)
    real_timeline = Timeline(pipeline.table.base_path)
    spark = current_session(spark_home)
    model = Table(
        pipeline, HudiInMemory(world), ServicesInMemory(world), TimelineInMemory(world), storage_in(world), world
    )
    writer, service = HudiWriter(spark, pipeline), HudiServices(spark, pipeline, 1000)
    tables = (model, Table(pipeline, writer, service, real_timeline, real_timeline.storage))
    for table in tables:
        table.instants.create_table(declared_schema(pipeline.table_schema))
    draw, told = random.Random(seed), []
    paths: list[str] = []
    files: dict[int, list[str]] = {}
    coming = [*WHOLE["ingest"], *WHOLE["ingest"]]
    for step in range(STEPS):
        given = bool(coming)
        action = coming.pop(0) if coming else draw.choice(ACTIONS)
        if action in WHOLE:
            action, *coming = WHOLE[action]
        if action in ("cluster", "die in clustering") and not model.clusterings:
            action = "plan clustering"
        newest = len(model.began) - 1
        which = newest if given else draw.randint(max(0, newest - 1), newest)
        flag = draw.random() < 0.9
        path = f"{file_id(SOURCE.topic, SOURCE.partition, step, '', 'any')}_0-0-0_"
        told.append(f"{action} t{which}{'' if flag else ' with another checkpoint'}")
        answers = []
        for table in tables:
            if action == "write" and table is model:
                path += f"{tables[1].began[which].instant}.parquet"
            acts: dict[str, Callable[[], str]] = {
                "begin": table.begin,
                "write": partial(table.write, which, path),
                "commit": partial(table.commit, which, files.get(which, []), flag),
                "retire": partial(table.retire, which),
                "roll back": partial(table.roll_back, which),
                "roll back what has expired": table.roll_back_expired,
                "expire": partial(table.expire, which),
                "plan clustering": table.plan_clustering,
                "cluster": partial(table.cluster, -1),
                "die in clustering": partial(table.die_in_clustering, -1, path),
                "clean": table.clean,
            }
            try:
                answers.append(acts[action]())
            except IngestError as error:
                answers.append(type(error).__name__)
        assert answers[0] == answers[1], f"seed {seed}: {told}"
        if action == "write":
            paths.append(path)
            if not answers[0]:
                files.setdefault(which, []).append(path)
        looks = [table.looks(paths) for table in tables]
        assert looks[0] == looks[1], f"seed {seed}: {told}"
    assert not world.wrongs, f"seed {seed}: {told}"


WHOLE = {"ingest": ("begin", "write", "commit"), "merge": ("plan clustering", "cluster")}
"""Several actions, without which a program seldom comes far."""
ACTIONS = (
    *(
        "ingest",
        "ingest",
        "ingest",
        "merge",
        "begin",
        "write",
        "write",
        "write",
        "commit",
        "commit",
        "expire",
        "retire",
    ),
    *("roll back", "roll back what has expired", "roll back what has expired"),
    *("plan clustering", "plan clustering", "cluster", "cluster", "die in clustering", "clean", "clean"),
)
