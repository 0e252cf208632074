"""A Hudi table, its storage and a broker in memory, that stop at each step so that a schedule can interleave them.

The table does what Hudi 1.2 was seen to do: an instant is requested, inflight, completed; LAZY cleaning rolls back what has
no lease; a rollback looks the expired instants up first, takes the lock for its plan and deletes without it; a commit writes
the metadata table before it looks whether its instant is still there; every error inside the lock takes the heartbeat away.

Each host has a clock, and engines run on hosts: what a host writes has its time, and what it judges it judges by its own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import count
from random import Random
from typing import Any, TypeVar, cast

import pyarrow as pa

from hudi_ingest.exceptions import (
    CommitRefused,
    EngineLost,
    Fenced,
    IngestError,
    KafkaUnreachable,
    LeaderMissing,
    LogTruncated,
    TableUnreachable,
    WriteIncomplete,
)
from hudi_ingest.faults import POINTS, InjectedFault
from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.files.live_files import group_of
from hudi_ingest.hudi.options import (
    ORDERING_PROPERTY,
    RECORD_KEY_PROPERTY,
    TYPE_PROPERTY,
    renewable_ms,
    table_properties,
)
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import EPOCH_PATH, METADATA_TIMELINE, PRIMARY, TIMELINE, dead_letters_folder
from hudi_ingest.hudi.storage.s3 import S3Storage
from hudi_ingest.hudi.storage.storage import StoredFile, TableStorage, Upload
from hudi_ingest.hudi.timeline.clock import wait_for_clock
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, committed_state
from hudi_ingest.hudi.timeline.publication import Publication
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, TableFile, Timeline, _Held
from hudi_ingest.kafka.cluster import Topic
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import LastRecord, Offsets, Slice, TopicPartition, Watermarks
from hudi_ingest.model.plan import IngestPlan, LogCut, OffsetLoss, ReplacedFile, RetryPlan, TransactionPlan
from hudi_ingest.model.report import BaseFile, LetterFile, LogFile, SliceReport
from hudi_ingest.model.storage_options import StorageOptions
from hudi_ingest.model.transaction import OpenInstant, OpenTransaction, TransactionSchema
from hudi_ingest.operations.requests.replaced_files import files_to_replace
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC
from hudi_ingest.records.schema.columns import TableSchema, spark_json
from hudi_ingest.transaction.plan.arithmetic import find_losses
from hudi_ingest.transaction.plan.cut_logs import cut_logs
from hudi_ingest.transaction.plan.planning import held_offsets
from hudi_ingest.transaction.write.job import _past
from hudi_ingest.transaction.write.reports import require_same_topics
from hudi_ingest_tests.simulation import keyed
from hudi_ingest_tests.simulation.programs import LOCK, Ended, Program, running, stop
from hudi_ingest_tests.simulation.trace import Line
from hudi_ingest_tests.support.damaged_table import avro_file, avro_long

ROWS_PER_FILE = 2
HOSTS = 2
OUTSIDE = -1
"""The host of other writers. Its engine never dies, and its clock is right."""
OPERATIONS = {"clustering": "CLUSTER", "compaction": "COMPACT"}
V = TypeVar("V")


def declared_schema(columns: TableSchema) -> TransactionSchema:
    """What transaction/columns/schema_change.py finds for a pipeline that declares its columns, and a table that has the same."""
    return TransactionSchema("declared", spark_json(columns.record), columns.spark_json)


Row = tuple[TopicPartition, int]
"""A record's place. Those of recreated topics are apart: `LATER` is added for each topic of the name that was before."""
LATER = 1000
ANOTHER = 500
"""Added to the places of records that have the offsets of those that a broker has lost."""


@dataclass
class Instant:
    """`metadata` is the inflight file's, then the commit's; `files` are what the commit lists."""

    name: str
    state: str
    metadata: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    completed_at: int = 0
    """The place of its completion among all."""
    completed_time: datetime | None = None
    transaction: str = ""
    replaced: tuple[str, ...] = ()
    """Files that the commit took out of the table."""
    rewrites: str = ""
    """Of another writer's: the file that it has read, and publishes anew."""
    began_late: bool = False
    """Likewise: after the guard of a replay that replaces its file had passed, so that Hudi finds the conflict when it commits."""
    service: str = ""
    """Of a table service's: clustering or compaction."""
    planned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the beginning of a new file's name: the files that the service merges into it."""
    completion: str = ""
    """When it was completed, as its engine saw it; in keyed tables only."""
    damage: str = ""
    """What a power cut has left of its newest file, if not all: nothing (`empty`), the beginning (`cut off`), or all of it without the
    metadata table's (`metadata`). Its state is what is left without that file, except for `metadata`."""
    written_at: datetime = datetime(2026, 1, 1, tzinfo=timezone.utc)
    """Of a damaged one: when."""

    @property
    def merges(self) -> tuple[str, ...]:
        """The files that a service merges."""
        return tuple(path for paths in self.planned.values() for path in paths)


def time_text(time: datetime) -> str:
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03}"


def _kafka_columns(rows: Sequence[Row]) -> pa.Table:
    columns = {
        TOPIC: [source.topic for source, _ in rows],
        PARTITION: [source.partition for source, _ in rows],
        OFFSET: [offset for _, offset in rows],
    }
    return pa.table(columns)


@lru_cache(4096)
def parsed(text: str | bytes) -> Any:
    """What JSON says, which nobody may change, because it is read hundreds of times."""
    return json.loads(text)


class Tracked(dict[str, V]):
    """A dictionary that counts changes of what is published in the world's `version`."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def __setitem__(self, key: str, value: V) -> None:
        self._world.changes(key)
        super().__setitem__(key, value)

    def pop(self, key: str, *default: V) -> V:  # type: ignore[override]
        self._world.changes(key)
        return super().pop(key, *default)


@dataclass(frozen=True)
class Unflushed:
    """A change below .hoodie that a power cut may undo: `before` is a copy of what an instant, or the properties, were."""

    number: int
    name: str
    before: Any
    time: datetime


PROPERTIES = "properties"


@dataclass(frozen=True)
class Setting:
    """What differs between worlds. `engines`: one for both hosts, or one for each with a lock in common (`table.lock`)."""

    engines: int = 1
    ledgers: int = 2
    on_s3: bool = False
    accepts_losses: bool = True
    """Whether plans give up what the broker lost (`on_data_loss: skip_to_earliest`), or stop."""
    keyed: bool = False
    """Whether the table is keyed, and records are changes of its rows."""
    ordering: bool = False
    """Of a keyed one: whether a column orders the changes, some of which come too late."""
    log_cuts: bool = False
    """Whether brokers are restored from older copies."""
    truncates: bool = False
    """Of a keyed one: whether it is the mirror of a table that is truncated now and then."""
    power_cuts: bool = False
    """Whether the power of the machine that has table and engines is cut. On S3 the processes die, and nothing is lost."""
    ledger_forgets: bool = False
    """Whether the ledger's server answers before it flushes: PostgreSQL without synchronous_commit, SQLite with synchronous=NORMAL. A power
    cut takes its last changes."""
    falls_quiet: bool = False
    """Whether nothing comes for a while once the faults have stopped, so that no commit does what is left to a tick."""


class World:
    """All that outlives a process. `flaws` names what is broken on purpose."""

    def __init__(
        self,
        pipeline: Pipeline,
        columns: TableSchema,
        flaws: frozenset[str] = frozenset(),
        setting: Setting | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.columns = columns
        self.flaws = flaws
        self.setting = setting or Setting()
        self.version = 0
        """Counts changes to what is judged: what is published, and what becomes of it."""
        self.published: set[str] = set()
        """Completed instants, their files, and the small files that they may rely on."""
        self.skews: dict[int, timedelta] = {}
        """By host: how far its clock is ahead, if it is wrong."""
        self.clocks_jumped = False
        self.now = datetime(2026, 1, 1, tzinfo=timezone.utc)
        self.logs: list[dict[TopicPartition, list[str]]] = [{}]
        """Of each topic that the name has had, the newest last: what is in its partitions."""
        self.first: dict[TopicPartition, int] = {}
        self.firsts: list[dict[TopicPartition, int]] = []
        """What `first` was after each change by retention, oldest first."""
        self.cut: dict[TopicPartition, tuple[int, list[str]]] = {}
        """Partitions whose broker was restored from an older copy: the offset where its log ended then, and what producers have written
        there since. The log that the table was made of may come back."""
        self.leaderless: set[TopicPartition] = set()
        """Partitions whose broker is down."""
        self.began: dict[TopicPartition, int] = {}
        """Where live transactions begin; what is before is history."""
        self.properties: dict[str, str] = {}
        """Those in force."""
        self.properties_cut = False
        """Whether their file is empty beside its backup. Hudi reads the table even so; hudi-rs, and so we, do not."""
        self.active: dict[str, Instant] = Tracked(self)
        self.archived: dict[str, Instant] = Tracked(self)
        self.heartbeats: dict[str, datetime] = {}
        self.beating: dict[str, int] = {}
        """Instants whose heartbeat is renewed, and the engine that does it."""
        self.files: dict[str, list[Row]] = Tracked(self)
        self.cleaned: dict[str, list[Row]] = {}
        """What was in the files that cleaning has deleted."""
        self.forgotten: set[Row] = set()
        """Deletes that a compaction has left out: late changes of their keys count as new ones."""
        self.markers: dict[str, set[str]] = {}
        self.synced: set[str] = set()
        """Files that outlive a power cut."""
        self.journals = self.setting.power_cuts and not self.setting.on_s3
        self.unflushed: list[Unflushed] = []
        """Oldest first."""
        self.changed = {PROPERTIES: 0}
        """The number of the newest change of each instant, and of the properties."""
        self.unflushed_texts: dict[str, bytes | None] = {}
        """Small files that were replaced and whose folders are not flushed yet, with what was there before."""
        self.unsure: set[str] = set()
        """Instants of which the step has said that they might not survive a power cut."""
        self.damaged: set[str] = set()
        self._changes = count(1)
        self.texts: dict[str, bytes] = Tracked(self)
        self.letters: dict[str, list[Row]] = Tracked(self)
        self.lock: Program | None = None
        self.lock_engine = 0
        """The engine that has Hudi's lock."""
        self.calls: set[Program] = set()
        """Programs that wait for a service that an engine executes, which goes on whatever becomes of them."""
        self.committing: dict[str, Program | None] = {}
        """By instant: programs that wait for a commit that an engine executes."""
        self.generations: dict[int, int] = defaultdict(int)
        """By engine: how often it has died."""
        self.last_instants: dict[int, str] = defaultdict(str)
        """By engine: the newest instant that it created."""
        self.group: dict[TopicPartition, int] = {}
        self.plans: dict[str, TransactionPlan] = {}
        self.rolled_back: set[str] = set()
        self.doomed: set[str] = set()
        """Open instants whose rollback is planned."""
        self.being_replaced: frozenset[str] = frozenset()
        """The files that the newest replay to pass its guard replaces."""
        self.epoch = ""
        """The table's, as its file has it. A transaction that begins once more, with another ledger, has one epoch after another."""
        self.superseded: set[str] = set()
        """Those before it."""
        self.reached: set[str] = set()
        self.trace: list[Line] = []
        """What the programs' steps have logged."""
        self.wrongs: list[str] = []
        """What no step may do, found while it was done."""
        self._moment = 0
        self._completed: tuple[int, list[Instant]] = -1, []
        self._commits: tuple[int, list[CommittedInstant]] = -1, []
        self.judged: tuple[int, CommittedState] = -1, CommittedState(exists=False)
        self._names = count()

    def reach(self, point: str) -> None:
        """Stands in for faults.reach: every point of the product is a place to stop, to fail or to die."""
        POINTS[point]
        self.reached.add(point)
        stop(point, InjectedFault)

    def note_step(self, step: Line) -> None:
        if step["outcome"] != Ended.__name__:
            # Else the schedule is over.
            self.trace.append({**step, "pid": running()})

    def clock(self, host: int | None = None) -> datetime:
        """The time as a host sees it, by default the running program's."""
        if host is None:
            program = running()
            host = program.host if program is not None else None
        skew = self.skews.get(host) if host is not None else None
        return self.now if skew is None else self.now + skew

    def engine_of(self, host: int) -> int:
        return host if host == OUTSIDE else host % self.setting.engines

    def changes(self, key: str) -> None:
        """An instant or a file is changed or goes, which matters if it is published."""
        if key in self.published:
            self.version += 1

    def will_change(self, name: str) -> None:
        """Remember what a power cut may bring back, until that is flushed."""
        if self.journals:
            before = dict(self.properties) if name == PROPERTIES else copy(self.active.get(name))
            self.changed[name] = next(self._changes)
            self.unflushed.append(Unflushed(self.changed[name], name, before, self.now))

    def flush(self, since: int = 0) -> None:
        """The changes after that one are on disk, and those before them of the same instants, which do not matter any more."""
        flushed = {each.name for each in self.unflushed if each.number > since}
        self.unflushed = [each for each in self.unflushed if each.name not in flushed]

    @property
    def last_change(self) -> int:
        return self.unflushed[-1].number if self.unflushed else 0

    def cut_power(self, dice: Random) -> list[Instant]:
        """All processes of the machine die. What was not flushed is there, or not, or in part; returns the completed instants that are
        lost or damaged, as they were."""
        for engine in range(self.setting.engines):
            self.end_engine(engine)
        if not self.journals:
            return []
        # Other writers work there, too.
        self.stop_heartbeats(OUTSIDE)
        self.lock = None
        self.version += 1
        for name in [*self.heartbeats]:
            if dice.random() < 0.3:
                del self.heartbeats[name]
        # That other writers flush nothing is a limit of the promises.
        others = {path for each in self.completed() if self.is_foreign(each) for path in each.files}
        for files in (self.files, self.letters):
            for path in [path for path in files if path not in self.synced and path not in others]:
                if dice.random() < 0.5:
                    files.pop(path)
        for path, text in self.unflushed_texts.items():
            if dice.random() < 0.5:
                self.restore_text(path, text)
        self.unflushed_texts.clear()
        lost = []
        for name in dict.fromkeys(each.name for each in self.unflushed):
            changes = [each for each in self.unflushed if each.name == name]
            kept = dice.randint(0, len(changes))
            if name == PROPERTIES:
                if kept < len(changes):
                    self.properties = changes[kept].before
                continue
            found = self.active.get(name)
            was = copy(found)
            if name in self.archived or self.is_built_on(found):
                continue
            if kept < len(changes):
                before = changes[kept].before
                if before is None:
                    self.active.pop(name, None)
                else:
                    self.active[name] = found = before
            elif found is not None:
                self.damage(found, changes, dice)
            if was is not None and was.state == "completed" and (kept < len(changes) or was != found):
                lost.append(was)
        self.unflushed.clear()
        return lost

    def is_foreign(self, instant: Instant) -> bool:
        """Whether it is another writer's."""
        return not instant.transaction and not instant.service

    @property
    def is_unreadable(self) -> bool:
        """Whether a completed instant, or the properties, stop readers."""
        return self.properties_cut or any(self.active[name].damage in ("empty", "cut off") for name in self.damaged)

    def is_built_on(self, instant: Instant | None) -> bool:
        """Whether another writer, which flushes nothing, or a service has begun or completed something after it, or a transaction after a
        service: a person decides then, if it is damaged."""
        if instant is None or instant.state != "completed":
            return False
        return any(
            (each.completed_at > instant.completed_at or each.name > instant.completion)
            and (instant.service or not each.transaction)
            for each in self.active.values()
        )

    def damage(self, instant: Instant, changes: Sequence[Unflushed], dice: Random) -> None:
        """A file has its name, and perhaps not its content."""
        what = dice.choice(("", "", "empty", "cut off", "metadata"))
        if instant.state == "completed" and what and (instant.transaction or what != "metadata"):
            instant.damage, instant.written_at = what, changes[-1].time
            if what != "metadata":
                before = changes[-1].before
                instant.state, instant.metadata, instant.files = before.state, before.metadata, before.files
                instant.replaced, instant.completed_at, instant.completed_time = (), 0, None
            self.damaged.add(instant.name)
        elif instant.state == "requested" and instant.service and what == "empty":
            instant.damage, instant.written_at = what, changes[-1].time
            self.damaged.add(instant.name)
        elif instant.state == "inflight" and instant.transaction and what == "empty":
            # Nobody knows whose it is; Hudi rolls it back once it has no lease.
            instant.metadata, instant.transaction = {}, ""

    def restore_text(self, path: str, text: bytes | None) -> None:
        if text is None:
            self.texts.pop(path, None)
        else:
            self.texts[path] = text
        if path == EPOCH_PATH:
            self.superseded.add(self.epoch)
            self.epoch = (text or b"").decode()
            self.superseded.discard(self.epoch)

    def put_aside(self, file: str) -> None:
        """A file of the timeline is moved away, and its instant is what it was before."""
        instant = self.active.get(file.partition(".")[0].partition("_")[0])
        if instant is None or instant.name not in self.damaged:
            return
        self.will_change(instant.name)
        self.version += 1
        self.damaged.discard(instant.name)
        instant.damage = ""
        if "_" in file.partition(".")[0]:
            instant.state, instant.files, instant.replaced = "inflight", (), ()
            instant.completed_at, instant.completed_time = 0, None
        else:
            # The plan of a service.
            del self.active[instant.name]

    def complete(self, instant: Instant, host: int | None = None) -> None:
        if instant.transaction or instant.service:
            self.will_change(instant.name)
        self._moment += 1
        self.version += 1
        self.published |= {instant.name, *instant.files}
        if self.setting.keyed or self.journals:
            instant.completion = self.new_time() if host is None else self.issued_time(host)
        instant.state, instant.completed_at, instant.completed_time = "completed", self._moment, self.clock(host)

    @property
    def broker(self) -> dict[TopicPartition, list[str]]:
        return self.logs[-1]

    def shown(self, source: TopicPartition) -> list[str]:
        """What the broker has in the partition."""
        at, since = self.cut.get(source, (None, []))
        return [*self.broker[source][:at], *since]

    def record_at(self, source: TopicPartition, offset: int) -> LastRecord:
        """What identifies the record that the broker has there."""
        is_another = source in self.cut and offset >= self.cut[source][0]
        return LastRecord(offset, offset + ANOTHER if is_another else offset)

    @property
    def topic_id(self) -> str:
        return f"{len(self.logs) - 1}"

    def recreate_topic(self) -> None:
        self.logs.append({source: [] for source in self.broker})
        self.leaderless.clear()
        self.hold_from(dict.fromkeys(self.broker, 0))

    def hold_from(self, first: Offsets) -> None:
        """The broker's first offsets are these from now on."""
        self.first |= first
        self.firsts.append(dict(self.first))

    def new_time(self, host: int | None = None) -> str:
        """The time that Hudi gives to an instant or its completion."""
        self.now += timedelta(milliseconds=1)
        return time_text(self.clock(host))

    def issued_time(self, host: int) -> str:
        """As `new_time`. A driver's times only increase: Hudi waits for its clock inside the lock."""
        while (time := self.new_time(host)) <= self.last_instants[host]:
            self.now += timedelta(seconds=1)
        self.last_instants[host] = time
        return time

    def new_instant(self, host: int | None = None) -> Instant:
        while (name := self.new_time(host)) in self.active or name in self.archived:
            pass
        self.will_change(name)
        found = self.active[name] = Instant(name, "requested")
        return found

    def completed(self) -> list[Instant]:
        """Every completed instant, in the order of completion."""
        if self._completed[0] != self.version:
            found = [each for each in (self.active | self.archived).values() if each.state == "completed"]
            self._completed = self.version, sorted(found, key=lambda each: each.completed_at)
        return self._completed[1]

    def commits(self) -> list[CommittedInstant]:
        """The completed instants of the active timeline, newest first, as Timeline shows them."""
        if self._commits[0] != self.version:
            found = sorted(self.active.values(), key=lambda each: each.name, reverse=True)
            shown = [
                CommittedInstant(
                    each.name,
                    each.metadata,
                    time,
                    dict.fromkeys(each.files, 1),
                    operation=OPERATIONS.get(each.service, ""),
                    replaced=frozenset(map(group_of, each.replaced)),
                )
                for each in found
                if (time := each.completed_time)
            ]
            self._commits = self.version, shown
        return self._commits[1]

    def live(self) -> list[str]:
        """Paths of the files that readers see, in the order of their commits."""
        if self.setting.keyed:
            return [path for each in keyed.file_slices(self).values() for path in each.files]
        found: dict[str, None] = {}
        for each in self.completed():
            for path in each.replaced:
                found.pop(path, None)
            found |= dict.fromkeys(each.files)
        return list(found)

    def clustered(self) -> set[str]:
        """Files that pending clusterings merge."""
        return {path for each in self.active.values() if each.state != "completed" for path in each.merges}

    def files_of(self, slices: Sequence[Slice]) -> tuple[ReplacedFile, ...]:
        """The live files with rows of the slices, as a replay finds them by their statistics, or else by their rows."""
        files = [self._with_statistics(path) for path in self.live()]
        return files_to_replace(files, slices, lambda path: _kafka_columns(self.files[path]), "orders")

    def _with_statistics(self, path: str) -> TableFile:
        rows = self.files[path]
        of: list[set[Any]] = [
            {source.topic for source, _ in rows},
            {source.partition for source, _ in rows},
            {at for _, at in rows},
        ]
        topics, partitions, offsets = ((min(values), max(values)) if values else None for values in of)
        return TableFile(path, "", len(rows), 10, None, topics, partitions, offsets)

    def leased(self, instant: str, host: int | None = None, renewable: bool = False) -> bool:
        """Whether its heartbeat has not expired, as `host` sees it; `renewable`: and a commit may renew it."""
        seconds = self.pipeline.transaction.timeout_seconds
        timeout = timedelta(milliseconds=renewable_ms(seconds)) if renewable else timedelta(seconds=seconds)
        beat = self.heartbeats.get(instant)
        if "lease never expires" in self.flaws:
            return beat is not None
        if "no lease" in self.flaws:
            return False
        if beat is None:
            return False
        beating = self.beating.get(instant)
        if beating is not None and host in (None, OUTSIDE):
            # That other writers' clocks are right is a limit of the promises.
            return True
        if beating is not None:
            beat = self.clock(beating)
        return self.clock(host) - beat <= timeout

    def new_name(self) -> str:
        return f"{next(self._names):x}"

    def put(self, path: str, content: bytes) -> None:
        """A small file of the table has this content."""
        self.texts[path] = content
        if path == EPOCH_PATH:
            if content.decode() != self.epoch:
                self.superseded.add(self.epoch)
            self.epoch = content.decode()
            if self.journals:
                # A run that begins once more, where a power cut has taken table and ledger, has the epoch that it had.
                self.superseded.discard(self.epoch)
        else:
            # Those who rely on it are not known.
            self.published.add(path)

    def delete_below(self, folder: str) -> None:
        for stored in (self.texts, self.letters):
            for path in [each for each in stored if each.startswith(f"{folder}/")]:
                stored.pop(path)

    def carried(self) -> dict[str, str]:
        """What Hudi's rolling metadata puts into another writer's commit."""
        key = self.pipeline.checkpoint_key
        completed = sorted(self.active.values(), key=lambda each: -each.completed_at)
        for each in [each for each in completed if each.state == "completed"][:10]:
            if key in each.metadata:
                return {key: each.metadata[key]}
        return {}

    def end_engine(self, host: int) -> None:
        """The Spark driver dies, with every call that runs in it."""
        engine = self.engine_of(host)
        self.generations[engine] += 1
        self.last_instants[engine] = ""
        if self.lock_engine == engine:
            self.lock = None
        self.stop_heartbeats(engine)

    def pause_engine(self, host: int) -> None:
        """It stands still for longer than a lease is renewed: what it does later it does without one. Not inside Hudi's lock, which
        it would lose without knowing it: a limit of the promises."""
        engine = self.engine_of(host)
        if self.lock is None or self.lock_engine != engine:
            self.stop_heartbeats(engine)

    def stop_heartbeats(self, engine: int) -> None:
        for instant in [each for each, beating in self.beating.items() if beating == engine]:
            self.heartbeats[instant] = self.clock(engine)
            del self.beating[instant]


def in_engine(world: World) -> Engine:
    """The engine of the running program's host; another writer's is a JVM of its own, whose clock is right."""
    program = running()
    number = world.engine_of(program.host) if program is not None else 0
    return Engine(world, number, world.generations[number])


@dataclass(frozen=True)
class Engine:
    """One call's view of the Spark driver that it runs in."""

    world: World
    number: int
    generation: int

    def wait_for_clock(self) -> None:
        """As hudi/write_client.py does before it takes a client. Raises ClockBehind."""
        world = self.world
        # A rollback stays on the timeline, as an instant after the one that it ended.
        newest = max((*world.active, *world.rolled_back), default="")
        if world.setting.keyed:
            newest = max(newest, *(each.completion for each in world.active.values()), "")

        def sleep(seconds: float) -> None:
            # Of several that wait at once each is passed by the other's time.
            world.now += timedelta(seconds=max(seconds, 0.001))
            self.step("waits for the clock")

        wait_for_clock(
            "/data/orders", newest, world.last_instants[self.number], lambda: world.clock(self.number), sleep
        )

    def new_instant(self) -> Instant:
        found = self.world.new_instant(self.number)
        self.world.last_instants[self.number] = found.name
        return found

    def step(self, point: str, *errors: type[Exception]) -> None:
        if point in POINTS:
            self.world.reached.add(point)
        stop(point, *errors)
        if self.generation != self.world.generations[self.number]:
            raise EngineLost("the Spark driver went away")

    @contextmanager
    def hudi_lock(self) -> Iterator[None]:
        while self.world.lock is not None:
            self.step(LOCK)
        self.world.lock, self.world.lock_engine = running(), self.number
        try:
            yield
        finally:
            if self.generation == self.world.generations[self.number]:
                self.world.lock = None


class HudiInMemory:
    """The InstantWriter of hudi/write_client.py over a World."""

    def __init__(self, world: World) -> None:
        self._world = world

    def create_table(self, schema: TransactionSchema) -> None:
        engine = in_engine(self._world)
        engine.step("create_table", EngineLost)
        self._world.will_change(PROPERTIES)
        if not self._world.properties:
            self._world.properties = {"hoodie.table.partition.fields": ""}
            table = self._world.pipeline.table
            if table.is_keyed:
                self._world.properties |= {
                    TYPE_PROPERTY: "MERGE_ON_READ",
                    RECORD_KEY_PROPERTY: ",".join(table.key_columns),
                    ORDERING_PROPERTY: ",".join(table.ordering_fields),
                }
        engine.step("table_created", EngineLost)
        self._world.properties |= table_properties(self._world.pipeline, schema.record_key)

    def update_properties(self, wanted: dict[str, str]) -> None:
        engine = in_engine(self._world)
        engine.step("update_properties", EngineLost)
        self._world.will_change(PROPERTIES)
        self._world.properties |= wanted

    def drop_indexes(self, names: Collection[str]) -> None:
        raise AssertionError("the metadata table is not in memory")

    def rebuild_metadata_table(self) -> None:
        raise AssertionError("the metadata table is not in memory")

    def file_groups(self, partition_paths: Collection[str] | None, files: bool = False) -> tuple[FileGroup, ...]:
        assert self._world.setting.keyed, "only a keyed table's file groups matter"
        engine = in_engine(self._world)
        engine.step("file groups", EngineLost, TableUnreachable)
        return tuple(FileGroup("", group) for group in sorted(keyed.file_slices(self._world)))

    def begin(self, plan: TransactionPlan, schema: TransactionSchema) -> str:
        world = self._world
        engine = in_engine(world)
        engine.step("begin", EngineLost, TableUnreachable)
        engine.wait_for_clock()
        instant = engine.new_instant()
        with self._heartbeat(engine, instant.name):
            engine.step("instant_requested", EngineLost, TableUnreachable, InjectedFault)
            if instant.name not in world.active:
                raise TableUnreachable(f"{instant.name}.commit.requested does not exist")
            world.will_change(instant.name)
            instant.state = "inflight"
            instant.transaction = plan.transaction_id
            world.plans[plan.transaction_id] = plan
            instant.metadata = {world.pipeline.transaction_key: json.dumps(plan.to_dict())}
            engine.step("instant_inflight", EngineLost, TableUnreachable, InjectedFault)
            engine.step("instant_begun", EngineLost, InjectedFault)
        return instant.name

    @contextmanager
    def _heartbeat(self, engine: Engine, instant: str) -> Iterator[None]:
        """Written once. The flaw: renewed until the client is closed, which a caller that is killed never does."""
        world = self._world
        world.heartbeats[instant] = world.clock(engine.number)
        if "a begin renews its heartbeat" in world.flaws:
            world.beating[instant] = engine.number
        try:
            yield
        finally:
            world.beating.pop(instant, None)

    def commit(self, publication: Publication) -> None:
        world = self._world
        instant = publication.instant
        engine = in_engine(world)
        engine.step("commit", EngineLost)
        engine.wait_for_clock()
        if not world.leased(instant, engine.number, renewable=True) and "no lease" not in world.flaws:
            raise Fenced(f"instant {instant} is no longer open")
        world.heartbeats[instant] = world.clock(engine.number)
        world.beating[instant], world.committing[instant] = engine.number, running()
        try:
            engine.step("commit_leased", EngineLost, InjectedFault)
            with engine.hudi_lock():
                self._publish(engine, publication)
                world.heartbeats.pop(instant, None)
        except (CommitRefused, TableUnreachable):
            world.heartbeats.pop(instant, None)
            raise
        finally:
            world.beating.pop(instant, None)
            world.committing.pop(instant, None)
        engine.step("commit_landed", EngineLost, TableUnreachable, InjectedFault)

    def _publish(self, engine: Engine, publication: Publication) -> None:
        world, instant, epoch = self._world, publication.instant, publication.epoch
        replaced = [file.path for file in publication.replaced]
        # What the guard must see, whatever the guard is: written down apart from it.
        fenced = epoch.to_json() in world.superseded
        self._guard(instant, publication.expected_checkpoint or "", epoch, replaced, publication.read)
        world.being_replaced = frozenset(replaced)
        engine.step("guard passed", TableUnreachable)
        listed = {file.path for file in publication.files} | {file.path for file in publication.log_files}
        for path in world.markers.pop(instant, set()) - listed:
            world.files.pop(path, None)
        if instant in world.rolled_back:
            world.wrongs.append(f"P4: {instant} was rolled back, and then written into the metadata table")
        engine.step("metadata table written", TableUnreachable)
        open_instant = world.active.get(instant)
        if open_instant is None or open_instant.state == "requested":
            raise TableUnreachable(f"{instant}.inflight does not exist")
        if not listed <= world.synced:
            world.wrongs.append(
                f"P5: {instant} is published before {sorted(listed - world.synced)} would outlive a power cut"
            )
        if open_instant.state == "completed":
            world.wrongs.append(f"P2: {instant} is published twice")
        if fenced:
            world.wrongs.append(f"P4: {epoch} landed, and epoch {world.epoch} had begun before")
        open_instant.metadata, open_instant.files = dict(publication.metadata), tuple(sorted(listed))
        open_instant.replaced = tuple(replaced)
        world.complete(open_instant, engine.number)

    def _guard(
        self, instant: str, expected: str, epoch: Epoch, replaced: Sequence[str], read: Collection[str] = ()
    ) -> None:
        """What CommitGuard.java does."""
        world, pipeline = self._world, self._world.pipeline
        if "no epoch" not in world.flaws and world.texts.get(EPOCH_PATH, b"").decode() != epoch.to_json():
            raise CommitRefused(f"the table is in another epoch than {epoch}")
        found = world.active.get(instant)
        if "no open check" not in world.flaws and (found is None or found.state == "completed"):
            raise CommitRefused(f"instant {instant} is not open")
        if "no rollback check" not in world.flaws and instant in world.doomed:
            raise CommitRefused(f"instant {instant} is being rolled back")
        newest, sequence = "", -1
        for each in world.active.values():
            if each.state != "completed":
                continue
            published = each.metadata.get(pipeline.transaction_key)
            if published and parsed(published)["transaction"] == epoch.transaction_id:
                raise CommitRefused(f"{each.name} has already published {epoch.transaction_id}")
            if world.setting.keyed and not published and not each.service and each.name not in read:
                raise CommitRefused(f"another writer's {each.name} was completed while file groups were looked up")
            text = each.metadata.get(pipeline.checkpoint_key)
            if text and parsed(text)["sequence"] > sequence:
                newest, sequence = text, parsed(text)["sequence"]
        now = world.issued_time(in_engine(world).number) if world.setting.keyed else ""
        for each in world.active.values() if now and "no clock check" not in world.flaws else ():
            if each.service == "compaction" and each.name >= now:
                raise CommitRefused(f"compaction {each.name} is ahead of this driver's clock")
        if "no checkpoint check" not in world.flaws and newest != expected:
            raise CommitRefused(f"the committed checkpoint is {newest or 'none'}, not {expected or 'none'}")
        if "no live check" not in world.flaws and replaced:
            pending = [each for each in world.active.values() if each.state != "completed" and each.name != instant]
            others = [each.name for each in pending if not each.service]
            changed = set(replaced) - set(world.live())
            merged = set(replaced) & world.clustered() if "no clustering check" not in world.flaws else set()
            if others or changed or merged:
                raise CommitRefused(f"others are at work {others}, {changed} are gone, and {merged} are being merged")

    def roll_back(self, instant: str) -> bool:
        world = self._world
        engine = in_engine(world)
        engine.step("roll_back", EngineLost, TableUnreachable)
        engine.wait_for_clock()
        if "no barrier" not in world.flaws:
            with engine.hudi_lock():
                pass
        engine.step("barrier passed", EngineLost, TableUnreachable)
        found = world.active.get(instant)
        if "rolls completed back" in world.flaws:
            self._delete(engine, [instant])
            return True
        if found is not None and found.state == "completed":
            return False
        engine.step("seen to be open", EngineLost, TableUnreachable)
        world.heartbeats.pop(instant, None)
        self.roll_back_failed_writes(engine)
        return True

    def roll_back_expired(self) -> None:
        engine = in_engine(self._world)
        engine.step("roll_back_expired", EngineLost, TableUnreachable)
        engine.wait_for_clock()
        # Other writers clean as Hudi does, without it.
        if "no barrier" not in self._world.flaws and engine.number != OUTSIDE:
            with engine.hudi_lock():
                pass
            engine.step("barrier passed", EngineLost, TableUnreachable)
        self.roll_back_failed_writes(engine)

    def roll_back_failed_writes(self, engine: Engine, judges: int | None = None) -> None:
        """`judges`: the host by whose clock leases have ended, if not the engine's."""
        world = self._world
        host = engine.number if judges is None else judges
        expired = [
            each.name
            for each in world.active.values()
            if each.state != "completed"
            and not each.service
            and not each.damage
            and (each.name in world.doomed or not world.leased(each.name, host))
        ]
        # A commit that is inside the lock now stands, whatever the clocks say.
        elsewhere = world.setting.ledgers > 1 and world.clocks_jumped and world.lock is None
        # Hudi looks the instants up before it has the lock, and what it has looked up it deletes.
        engine.step("expired instants listed", EngineLost, TableUnreachable)
        if expired:
            with engine.hudi_lock():
                # Hudi deletes also those that were completed meanwhile. Under an engine's epoch that is no transaction that its ledger knows.
                # Others had a lease by the clock of their own host, and none by this one's: a limit of the promises.
                expired = [name for name in expired if not self._may_be_lost(name, host, elsewhere)]
                world.doomed |= {name for name in expired if not self._is_completed(name)}
                engine.step("rollbacks scheduled", TableUnreachable)
            self._delete(engine, expired)

    def _may_be_lost(self, name: str, host: int, elsewhere: bool) -> bool:
        if not self._is_completed(name):
            return False
        return host == OUTSIDE or elsewhere or self._world.is_foreign(self._world.active[name])

    def _is_completed(self, name: str) -> bool:
        found = self._world.active.get(name)
        return found is not None and found.state == "completed"

    def _delete(self, engine: Engine, instants: Sequence[str]) -> None:
        world = self._world
        for name in instants:
            found = world.active.get(name)
            for path in world.markers.pop(name, set()) | set(found.files if found else ()):
                world.files.pop(path, None)
            engine.step("files deleted", EngineLost, TableUnreachable)
            if found is not None and found.state != "completed":
                world.will_change(name)
                world.active.pop(name, None)
                world.heartbeats.pop(name, None)
            world.changes(name)
            world.rolled_back.add(name)

    def open_instants(self) -> tuple[OpenInstant, ...]:
        engine = in_engine(self._world)
        engine.step("open_instants", EngineLost, TableUnreachable)
        return tuple(
            OpenInstant(each.name, each.transaction, self._world.leased(each.name, engine.number))
            for each in self._world.active.values()
            if each.state == "inflight" and each.transaction and not each.damage
        )


class WriterInMemory:
    """The SliceWriter: files of at most ROWS_PER_FILE rows, marker first, fenced before each is opened and closed."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(
        self,
        transaction: OpenTransaction,
        slices: Sequence[Slice],
        attempts: dict[TopicPartition, int],
        record_bytes: int,
    ) -> tuple[SliceReport, ...]:
        engine = in_engine(self._world)
        reports = []
        for each in slices:
            made: list[str] = []
            try:
                reports.append(self._write(engine, transaction, each, attempts[each.source], made))
            except EngineLost:
                raise
            except (IngestError, InjectedFault) as error:
                for path in made:
                    self._world.files.pop(path, None)
                if isinstance(error, (Fenced, LogTruncated)):
                    raise
                # Whatever happens in a worker reaches the op as a failed Spark job.
                raise WriteIncomplete(f"{each}: the Spark job failed: {error}") from error
        if not isinstance(transaction.plan, RetryPlan) and "no topic check" not in self._world.flaws:
            require_same_topics(self._world.pipeline, transaction.plan, {each.topic for each in slices})
        return tuple(reports)

    def _write(
        self, engine: Engine, transaction: OpenTransaction, each: Slice, attempt: int, made: list[str]
    ) -> SliceReport:
        records = self._records(transaction, each)
        last = self._world.record_at(each.source, each.end - 1) if each.count else None
        if self._world.setting.keyed:
            return self._write_changes(engine, transaction, each, records, attempt, made)
        rows = [offset for offset, kind in records if kind == "row"]
        bad = [offset for offset, kind in records if kind == "bad"]
        files = []
        for first in range(0, len(rows), ROWS_PER_FILE):
            content = [(each.source, offset) for offset in rows[first : first + ROWS_PER_FILE]]
            files.append(self._write_file(engine, transaction, content, attempt, made))
        letters = [self._write_letters(engine, transaction, each.source, bad, attempt)] if bad else []
        engine.step("task_done", EngineLost, InjectedFault)
        skipped = sum(kind == "tombstone" for _, kind in records)
        copies = []
        for old in transaction.plan.replaces:
            if old.kept and old.source == each.source:
                if old.path not in self._world.files:
                    raise WriteIncomplete(f"{old.path} is gone")
                kept = [row for row in self._world.files[old.path] if not is_of(row, transaction.plan.slices)]
                copies.append(self._write_file(engine, transaction, kept, attempt, made))
        return SliceReport(
            each,
            attempt,
            tuple(files),
            rows=len(rows),
            skipped=skipped,
            gaps=each.count - len(rows) - skipped - len(bad),
            value_bytes=10 * len(rows),
            rejected=len(bad),
            letters=tuple(letters),
            copies=tuple(copies),
            last=last,
        )

    def _write_changes(
        self,
        engine: Engine,
        transaction: OpenTransaction,
        each: Slice,
        records: Sequence[tuple[int, str]],
        attempt: int,
        made: list[str],
    ) -> SliceReport:
        """Log files of a keyed table: the last change of each key."""
        world, plan = self._world, transaction.plan
        changes = [(each.source, offset) for offset, kind in records if kind in ("row", "tombstone")]
        deleted = sum(kind == "tombstone" for _, kind in records)
        bad = [offset for offset, kind in records if kind == "bad"]
        truncates = [offset for offset, kind in records if kind == "truncate"]
        of_truncate: list[Row] = []
        if isinstance(plan, RetryPlan) and changes:
            names = TimelineInMemory(world)._names()
            written, held = keyed.late(world, changes, _past(world.pipeline, plan), transaction.instant, names)
            bad = sorted([*bad, *(row[1] for row in held)])
            changes = [row for row in changes if row not in held]
            world.reached.update(f"late change {what}" for what, rows in (("written", written), ("held", held)) if rows)
            world.reached.update(["late change superseded"] if len(written) < len(changes) else [])
        else:
            if truncates:
                of_truncate = keyed.truncated(world, each.source, truncates[-1], transaction.instant)
                world.reached.add("truncate")
            after = [row for row in changes if not truncates or row[1] > truncates[-1]]
            written = [*keyed.winners(world, [*of_truncate, *after]).values()]
        files = []
        by_group: dict[str, list[Row]] = defaultdict(list)
        for row in written:
            by_group[keyed.group_of(row)].append(row)
        for group, rows in sorted(by_group.items()):
            last = sorted(rows)
            path = f".{group}_{transaction.instant}.log.1_0-{each.partition}-{attempt}"
            self._write_rows(engine, transaction, path, last, made)
            upserts = len(keyed.upserts(world, last))
            files.append(LogFile("", group, path, upserts, len(last) - upserts, 10, last[0][1], last[-1][1]))
        letters = [self._write_letters(engine, transaction, each.source, bad, attempt)] if bad else []
        engine.step("task_done", EngineLost, InjectedFault)
        return SliceReport(
            each,
            attempt,
            value_bytes=10 * len(changes),
            rows=len(changes),
            deletes=deleted,
            superseded=len(changes) + len(of_truncate) - len(written),
            skipped=len(truncates),
            truncates=len(truncates),
            truncated=len(of_truncate),
            gaps=each.count - len(changes) - len(bad) - len(truncates),
            rejected=len(bad),
            letters=tuple(letters),
            log_files=tuple(files),
        )

    def _records(self, transaction: OpenTransaction, each: Slice) -> list[tuple[int, str]]:
        """Offsets and what is there. Of dead letters those with even offsets can become rows now."""
        world, plan = self._world, transaction.plan
        if isinstance(plan, RetryPlan):
            letters = [row for file in plan.retry.files for row in letters_left(world, file.path, file.without)]
            return [
                (offset, "bad" if offset % 2 else "row") for source, offset in sorted(letters) if source == each.source
            ]
        if each.source in world.leaderless and each.count:
            raise KafkaUnreachable(f"{each.source} has no leader")
        if each.start < world.first[each.source] and each.count:
            raise WriteIncomplete(f"{each}: the broker's first offset is {world.first[each.source]}")
        if each.source in world.cut and each.count and not isinstance(plan, IngestPlan):
            raise WriteIncomplete(f"{each}: nothing recognizes the log of a range that was read before")
        log, later = world.shown(each.source), LATER * (len(world.logs) - 1)
        record = transaction.follows.get(each.source) if each.count else None
        if record is not None and (record.offset >= len(log) or world.record_at(each.source, record.offset) != record):
            # As range_reader.py says.
            world.reached.add("a cut log is recognized")
            raise LogTruncated(f"{each}: cut", topic=each.topic, partition=each.partition, offset=each.start)
        if each.end > len(log):
            raise WriteIncomplete(f"{each}: the partition ends at {len(log)}")
        if each.source in world.cut:
            later += ANOTHER
        return [(later + offset, log[offset]) for offset in range(each.start, each.end)]

    def _write_letters(
        self, engine: Engine, transaction: OpenTransaction, source: TopicPartition, offsets: list[int], attempt: int
    ) -> LetterFile:
        folder = dead_letters_folder(transaction.instant)
        path = f"{folder}/{source.topic}-{source.partition}-{offsets[0]}_{attempt}.parquet"
        assert path not in self._world.letters, f"{path} is written twice"
        self._world.letters[path] = [(source, offset) for offset in offsets]
        self._world.published.add(path)
        engine.step("letters_closed", EngineLost, InjectedFault)
        return LetterFile(path, len(offsets), 1)

    def _write_file(
        self,
        engine: Engine,
        transaction: OpenTransaction,
        rows: list[Row],
        attempt: int,
        made: list[str],
    ) -> BaseFile:
        source, first = rows[0]
        identifier = f"{source.topic}-{source.partition}-{first}-{transaction.instant}"
        path = f"{identifier}_{attempt}.parquet"
        self._write_rows(engine, transaction, path, rows, made)
        return BaseFile("", identifier, path, len(rows), 10 * len(rows), first, rows[-1][1])

    def _write_rows(
        self, engine: Engine, transaction: OpenTransaction, path: str, rows: Sequence[Row], made: list[str]
    ) -> None:
        world, instant = self._world, transaction.instant
        self._require_open(transaction)
        world.markers.setdefault(instant, set()).add(path)
        engine.step("marker_written", EngineLost, InjectedFault)
        made.append(path)
        content = world.files[path] = []
        engine.step("file_opened", EngineLost, InjectedFault)
        for row in rows:
            content.append(row)
            world.changes(path)
            engine.step("rows_written", EngineLost, InjectedFault)
        engine.step("file_ready", EngineLost, InjectedFault)
        self._require_open(transaction)
        # An open stream writes on into a file that was deleted meanwhile; on an object store it appears only now.
        world.files[path] = content
        engine.step("file_closed", EngineLost, InjectedFault)
        self._require_open(transaction)

    def _require_open(self, transaction: OpenTransaction) -> None:
        if transaction.instant not in self._world.heartbeats:
            raise Fenced(f"instant {transaction.instant} is no longer open")
        epoch = Epoch(transaction.epoch, transaction.plan.transaction_id)
        if "no epoch" not in self._world.flaws:
            TableEpoch(storage_in(self._world)).require(epoch, "a file must not be written")


def write_empty_base_file(world: World, instant: str, group: str) -> BaseFile:
    """Stands in for the one of hudi/files/base_file.py."""
    path = f"{group}_0-0-0_{instant}.parquet"
    world.markers.setdefault(instant, set()).add(path)
    stop("marker of an empty base file", OSError)
    world.files[path] = []
    return BaseFile("", group, path, 0, 1, 0, 0)


def is_of(row: Row, slices: Iterable[Slice]) -> bool:
    return any(row[0] == each.source and each.start <= row[1] < each.end for each in slices)


def letters_left(world: World, path: str, without: Iterable[Slice]) -> list[Row]:
    """The file's dead letters but for those in ranges that were replayed since."""
    without = tuple(without)
    return [row for row in world.letters[path] if not is_of(row, without)]


class StorageInMemory(LocalStorage):
    """The small files of a table: the epoch, the manifests of dead letters."""

    def __init__(self, world: World) -> None:
        self.base_path = world.pipeline.table.base_path
        self._world = world

    def read(self, path: str) -> bytes:
        stop(f"read {path}", OSError)
        if path.startswith(f"{TIMELINE}/"):
            return self._timeline_file(path.rpartition("/")[2])
        if path not in self._world.texts:
            raise FileNotFoundError(path)
        return self._world.texts[path]

    def exists(self, path: str) -> bool:
        stop(f"look for {path}", OSError)
        return path in self._world.texts or path in self._world.files

    def names(self, folder: str) -> tuple[str, ...]:
        return names_on_timeline(self._world)

    def replace(self, path: str, content: bytes) -> None:
        stop(f"replace {path}", OSError)
        world = self._world
        if world.journals:
            world.unflushed_texts.setdefault(path, world.texts.get(path))
        world.put(path, content)
        stop(f"replaced {path}", OSError)
        if "no flush of small files" not in world.flaws:
            world.unflushed_texts.pop(path, None)

    def files_beside(self, folder: str, excluded: Container[str]) -> list[StoredFile]:
        """The timeline's files if a power cut has damaged some: nothing else is looked for there."""
        world = self._world
        if not world.damaged:
            return []
        stop(f"list {folder}", OSError)
        if folder == METADATA_TIMELINE:
            lost = [each for each in world.damaged if world.active[each].damage == "metadata"]
            return [StoredFile(f"{folder}/{name}.deltacommit.requested", 0, world.now) for name in sorted(lost)]
        return [
            StoredFile(f"{folder}/{file}", len(self._timeline_file(file)), instant.written_at)
            for instant in world.active.values()
            for file in timeline_files(world, instant)
        ]

    def _timeline_file(self, file: str) -> bytes:
        """What is in it, as far as a repair looks at it."""
        world = self._world
        instant = world.active.get(file.partition(".")[0].partition("_")[0])
        files = timeline_files(world, instant) if instant is not None else ()
        if instant is None or file not in files:
            raise FileNotFoundError(file)
        is_newest = file == files[-1]
        if is_newest and instant.damage in ("empty", "cut off"):
            return _WHOLE[:-9] if instant.damage == "cut off" else b""
        if file.endswith("inflight") and instant.transaction:
            plan = json.dumps(world.plans[instant.transaction].to_dict()).encode()
            return avro_file(world.pipeline.transaction_key.encode() + avro_long(len(plan)) + plan)
        return b"" if file.endswith("commit.requested") else _WHOLE

    def delete(self, path: str) -> None:
        stop(f"delete {path}", OSError)
        if path.startswith(f"{TIMELINE}/") and not path.endswith(".crc"):
            self._world.put_aside(path.rpartition("/")[2])
        else:
            self._world.texts.pop(path, None)

    def sync(self, paths: Iterable[str]) -> None:
        stop("sync of a folder", OSError)
        self._world.flush()

    def files(self, folder: str) -> list[StoredFile]:
        """None: markers are not in this world, and a disk has no open uploads."""
        stop(f"list {folder}", OSError)
        return []

    def delete_folder(self, folder: str) -> None:
        stop(f"delete {folder}", OSError)
        self._world.delete_below(folder)


class S3InMemory(S3Storage):
    """The real S3Storage over the world's bucket, in which data files and the rows of dead letters are not objects."""

    def __init__(self, world: World) -> None:
        super().__init__("s3a://lake/orders", StorageOptions())
        self._world = world

    def exists(self, path: str) -> bool:
        return super().exists(path) or path in self._world.files

    def names(self, folder: str) -> tuple[str, ...]:
        return names_on_timeline(self._world) if folder == TIMELINE else super().names(folder)

    def delete_folder(self, folder: str) -> None:
        super().delete_folder(folder)
        self._world.delete_below(folder)

    def unfinished_uploads(self, suspected: Iterable[str] = ()) -> list[Upload]:
        """None: data files are not in the bucket."""
        stop("list_multipart_uploads", OSError)
        return []


def storage_in(world: World) -> TableStorage:
    return S3InMemory(world) if world.setting.on_s3 else StorageInMemory(world)


_WHOLE = avro_file()


_NAMES = {
    "": ("{0}.commit.requested", "{0}.inflight", "{0}_{1}.commit"),
    "clustering": ("{0}.clustering.requested", "{0}.clustering.inflight", "{0}_{1}.replacecommit"),
}
"""By service: an instant's files, in the order in which they come."""
_NAMES_OF_KEYED = {
    "": ("{0}.deltacommit.requested", "{0}.deltacommit.inflight", "{0}_{1}.deltacommit"),
    "compaction": ("{0}.compaction.requested", "{0}.compaction.inflight", "{0}_{1}.commit"),
}


def timeline_files(world: World, instant: Instant) -> tuple[str, ...]:
    """Their names, in the order in which they were written."""
    names = (_NAMES_OF_KEYED if world.setting.keyed else _NAMES)[instant.service]
    there = {"requested": 1, "inflight": 2, "completed": 3}[instant.state]
    if instant.damage and instant.state == "inflight":
        there = 3
    return tuple(name.format(instant.name, instant.completion or instant.name) for name in names[:there])


def names_on_timeline(world: World) -> tuple[str, ...]:
    return tuple(file for each in world.active.values() for file in timeline_files(world, each))


class TimelineInMemory(Timeline):
    """The real Timeline's judgement over a World's instants."""

    _seen: tuple[CommittedInstant, ...] | None = None

    def __init__(self, world: World) -> None:
        self.base_path = world.pipeline.table.base_path
        self.storage = storage_in(world)
        self._held_by: dict[Program | None, _Held] = {}
        self._world = world

    @property
    def _held(self) -> _Held | None:
        """What the running program holds, which is a process of its own."""
        return self._held_by.get(running())

    @_held.setter
    def _held(self, held: _Held | None) -> None:
        if held is None:
            self._held_by.pop(running(), None)
        else:
            self._held_by[running()] = held

    def committed(self, checkpoint_key: str, transaction_key: str) -> CommittedState:
        """What `committed_state` says, computed once after each change of the table."""
        if not self.exists():
            return CommittedState(exists=False)
        commits, version = self.completed(), self._world.version
        if self._held is not None:
            # It may show an older state of the table.
            version = -1
        if version < 0 or self._world.judged[0] != version:
            seen = copy(self)
            seen._seen = commits
            self._world.judged = version, committed_state(seen, checkpoint_key, transaction_key)
        return self._world.judged[1]

    def completed(self) -> tuple[CommittedInstant, ...]:
        return super().completed() if self._seen is None else self._seen

    def schema(self) -> pa.Schema:
        return self._world.columns.columns

    def live_paths(self, folders: Collection[str] | None = None) -> frozenset[str]:
        """Without those that the metadata table has lost. No place to stop: it is the same look as that at the commits."""
        lost = {path for name in self._world.damaged for path in self._world.active[name].files}
        return frozenset(self._world.live()) - lost

    def restore_properties(self) -> bool:
        was, self._world.properties_cut = self._world.properties_cut, False
        return was

    def is_empty(self) -> bool:
        return not self._world.active

    def properties(self) -> dict[str, str]:
        held = self._held
        if held is None:
            return self._world.properties
        if held.properties is None:
            # With the names on the timeline, as in `_looked`.
            held.properties = dict(self._world.properties)
            held.names = held.names or self.storage.names(TIMELINE)
        return held.properties

    def _names(self) -> tuple[str, ...]:
        stop("timeline", TableUnreachable)
        return super()._names()

    def _completed(self) -> Iterator[CommittedInstant]:
        stop("timeline", TableUnreachable)
        world, held = self._world, self._held
        if held is None or held.table is None:
            if world.is_unreadable:
                raise TableUnreachable("a completed instant, or hoodie.properties, cannot be read")
            commits: Any = [*world.commits()]
            if held is not None:
                # Those of the names that are held, as where all of them were read before.
                held.names = held.names or self.storage.names(TIMELINE)
                completed = {requested for requested, more, _ in (name.partition("_") for name in held.names) if more}
                held.table = commits = [each for each in commits if each.instant in completed]
            yield from commits
        else:
            yield from cast("Iterable[CommittedInstant]", held.table)


class GroupsInMemory:
    """The consumer group's committed offsets."""

    def __init__(self, world: World) -> None:
        self._world = world

    def group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {source: self._world.group[source] for source in partitions if source in self._world.group}

    def commit_group_offsets(self, group: str, offsets: Offsets) -> None:
        stop("commit_group_offsets", KafkaUnreachable)
        self._world.group = dict(offsets)
        stop("group offsets committed", KafkaUnreachable)


class DiskInMemory(StorageInMemory):
    """The table as the product's Durability meets it: a file below .hoodie for each instant, and hoodie.properties, as big as the number of
    their newest change. An instant that was rolled back has its rollback's."""

    def exists(self, path: str) -> bool:
        """None: what makes folders table partitions is not in this world."""
        return False

    def files_beside(self, folder: str, excluded: Container[str]) -> list[StoredFile]:
        """No place to stop: it is the same look as that at what was changed."""
        changes = self._world.changed.items()
        return [StoredFile(_path_of(name), number, _SAME_TIME) for name, number in changes if self._is_there(name)]

    def sync(self, paths: Iterable[str]) -> None:
        world, flushed = self._world, {*paths}
        changes = {name for name in world.changed if _path_of(name) in flushed}
        try:
            stop("sync_changes" if changes else "sync_files", OSError)
        except OSError:
            world.unsure |= changes - {PROPERTIES}
            raise
        if not all(map(self._is_there, changes)):
            raise FileNotFoundError("an instant that was archived meanwhile")
        world.synced |= {path for path in flushed if not path.startswith(f"{TIMELINE}/")}
        world.unflushed = [each for each in world.unflushed if each.name not in changes]

    def _is_there(self, name: str) -> bool:
        return name not in self._world.archived


def _path_of(name: str) -> str:
    return PRIMARY if name == PROPERTIES else f"{TIMELINE}/{name}"


_SAME_TIME = datetime(2026, 1, 1, tzinfo=timezone.utc)


class LossesInMemory:
    """What the broker has lost of the committed offsets; see transaction/plan/planning.py."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, checkpoint: Checkpoint | None) -> tuple[OffsetLoss, ...]:
        stop("find_losses", KafkaUnreachable)
        topic_ids, marks = held_offsets(BrokerInMemory(self._world), checkpoint)
        return find_losses(checkpoint, marks, topic_ids, cuts_found(self._world, checkpoint, marks, topic_ids))


def cuts_found(
    world: World,
    checkpoint: Checkpoint | None,
    marks: Mapping[TopicPartition, Watermarks],
    topic_ids: Mapping[str, str],
) -> Mapping[TopicPartition, LogCut]:
    """What transaction/plan/planning.py knows of partitions whose log was cut."""
    if not world.setting.log_cuts:
        # The schedules of other worlds mean what they meant before the product looked.
        return {}

    def compare(last: Mapping[TopicPartition, LastRecord]) -> dict[TopicPartition, int | bool]:
        return {source: world.record_at(source, record.offset) == record for source, record in last.items()}

    return cut_logs(storage_in(world), checkpoint, marks, topic_ids, compare)


@dataclass(frozen=True)
class BrokerInMemory:
    """The world's one topic, as KafkaCluster shows it."""

    world: World

    def topics(self, committed: Iterable[str] = ()) -> dict[str, Topic]:
        return {"orders": Topic(self.world.topic_id, tuple(sorted(self.world.broker)))}

    def watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        led = self.led_watermarks(partitions)
        if missing := {*partitions} - led.keys():
            raise LeaderMissing(f"{missing} have no leader")
        return led

    def group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return GroupsInMemory(self.world).group_offsets(group, partitions)

    def commit_group_offsets(self, group: str, offsets: Offsets) -> None:
        GroupsInMemory(self.world).commit_group_offsets(group, offsets)

    def led_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        world = self.world
        led = [source for source in partitions if source not in world.leaderless]
        return {source: Watermarks(world.first[source], len(world.shown(source))) for source in led}

    def first_offsets(self, watermarks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
        return {source: self.world.began.get(source, 0) for source in watermarks}
