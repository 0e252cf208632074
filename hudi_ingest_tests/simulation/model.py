"""The protocol's own code over a table in memory, and the promises as predicates that are asked after each action.

Each program (a begin, a write, a commit, an abort) stops between any two of its calls; an action decides who goes on. A program
that was taken for dead may go on later, with its lock lost.
"""

from __future__ import annotations

import gc
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import yaml

from hudi_ingest.exceptions import (
    IngestError,
    KafkaUnreachable,
    LeaderMissing,
    NothingToDo,
    OffsetsLost,
    RangeRefused,
    TableUnreachable,
    Terminal,
    TransactionInFlight,
)
from hudi_ingest.faults import InjectedFault
from hudi_ingest.hudi.storage import s3
from hudi_ingest.hudi.storage.storage import Durability
from hudi_ingest.hudi.timeline import epoch as epoch_module
from hudi_ingest.hudi.timeline import pipeline_table as table_module
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import tables
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model import accounting as accounting_module
from hudi_ingest.model import checkpoint as checkpoint_module
from hudi_ingest.model import plan as plan_module
from hudi_ingest.model import transaction as transaction_module
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead
from hudi_ingest.model.offsets import Ranges, Slice, TopicPartition, intersection, ranges, union
from hudi_ingest.model.plan import (
    RangePlan,
    ReplayPlan,
    RetriedFile,
    Retry,
    RetryPlan,
    TransactionKind,
    TransactionPlan,
)
from hudi_ingest.model.report import BaseFile, SliceReport
from hudi_ingest.model.transaction import OpenTransaction, Progress, TransactionState, TransactionStep
from hudi_ingest.operations.requests.allowed_ranges import (
    RangeContext,
    next_ranges,
    range_transaction,
    to_read,
    to_upsert,
)
from hudi_ingest.operations.requests.asked_ranges import require_leaders
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import TableSchema
from hudi_ingest.transaction import checks, commit_contents
from hudi_ingest.transaction import protocol as protocol_module
from hudi_ingest.transaction import rollback as rollback_module
from hudi_ingest.transaction.dead_letters import log as letters_module
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog
from hudi_ingest.transaction.plan.planning import Situation, confirmed_marks, held_offsets, plan_next
from hudi_ingest.transaction.protocol import TransactionProtocol
from hudi_ingest.transaction.timeline_repair import repair_timeline
from hudi_ingest.transaction.write import reports as write_reports
from hudi_ingest_tests.simulation import keyed, sensor, services
from hudi_ingest_tests.simulation.bucket import BucketClient
from hudi_ingest_tests.simulation.ledger import LedgerModel
from hudi_ingest_tests.simulation.programs import LOCK, Program, stop
from hudi_ingest_tests.simulation.trace import POWER_CUT
from hudi_ingest_tests.simulation.world import (
    HOSTS,
    LATER,
    OUTSIDE,
    BrokerInMemory,
    DiskInMemory,
    GroupsInMemory,
    HudiInMemory,
    Instant,
    LossesInMemory,
    Row,
    Setting,
    TimelineInMemory,
    World,
    WriterInMemory,
    cuts_found,
    declared_schema,
    is_of,
    letters_left,
    parsed,
    storage_in,
    write_empty_base_file,
)
from hudi_ingest_tests.support.pipeline_files import document

MAX_RECORDS = 6
COORDINATORS = HOSTS
LONGEST_PROGRAM = 3000
NARROW = (
    *("commit_checked", "commit_leased", "guard passed", "guard passed", "metadata table written", "commit_landed"),
    *(
        "seen to be open",
        "expired instants listed",
        "barrier passed",
        "begin_cleared",
        "ledger_opened",
        "epoch_advanced",
    ),
    *(
        "put orders/.hoodie/hudi_ingest/epoch",
        "answer to put",
        "replace",
        "file_ready",
        "slices_written",
        "ledger written",
    ),
)
"""Points at which something is judged that another program may change before it is done."""
UNFLUSHED = (
    *(
        "commit_landed",
        "sync_changes",
        "metadata table written",
        "instant_requested",
        "instant_inflight",
        "ledger written",
    ),
    *("replaced ", "sync_files", "files deleted", "service done", "clustering requested", "compaction requested"),
    *("file_closed", "barrier passed", "group_told"),
)
"""Points at which something may be changed that is not flushed yet."""
MOST_TICKS = 60
"""Ticks in which everything that waits must come in, once the faults have stopped."""
CLOCKS = (-400, -90, -20, 20, 90, 400)
"""Seconds that a clock may be off; the timeout is 300."""


@dataclass
class Run:
    """One orchestrator's run: its plan, and what its ops have handed on so far."""

    ident: str
    coordinator: int
    plan: TransactionPlan
    transaction: OpenTransaction | None = None
    reports: dict[Slice, SliceReport] = field(default_factory=dict)
    finished: bool = False
    tries: int = 0
    since: datetime = datetime(2026, 1, 1, tzinfo=timezone.utc)
    """When the sensor asked for it."""


class Simulation:
    """Two coordinators on hosts of their own, one table, one topic; who goes on when is said by `act`."""

    def __init__(
        self, ground: Ground, flaws: frozenset[str] = frozenset(), setting: Setting | None = None, told: bool = False
    ) -> None:
        """`told`: what happens is written into `story`."""
        self.ground = ground
        self.flaws = flaws
        self.story: list[str] | None = [] if told else None
        setting = setting or Setting()
        self.pipeline = ground.ordered if setting.ordering else ground.keyed if setting.keyed else ground.pipeline
        self.world = ground.world = World(self.pipeline, ground.columns, flaws, setting)
        forgets = self.world.setting.ledger_forgets
        ledgers = [
            LedgerModel(self.world.clock, lambda: self.world.now, forgets) for _ in range(self.world.setting.ledgers)
        ]
        self.ledgers = [ledgers[host % len(ledgers)] for host in range(COORDINATORS)]
        self.runs: list[Run] = []
        self.programs: list[Program] = []
        self.dead: list[Program] = []
        self.run_of: dict[Program, Run] = {}
        self.others: list[Instant] = []
        self.held: dict[str, list[dict[TopicPartition, int]]] = {}
        """By transaction: the broker's first offsets at any time while it began."""
        self.told: list[TransactionStep] = []
        """What lineage heard."""
        self.published: set[str] = set()
        """Transactions that were completed at any time."""
        kind = self.world.setting
        self.retries = not kind.keyed or kind.ordering or kind.truncates
        """Whether dead letters are retried: the oldest kind of keyed worlds means what it meant before."""
        self.accepts = kind.accepts_losses
        self.judged = -1
        self.cuts = 0
        """How often the power was cut."""
        self.merged: set[str] = set()
        """Clusterings and compactions that services have reported."""
        self.serviced = 0
        """How often table services were begun."""
        self.sensed = 0
        """How often the sensor ticked."""
        self.noticed: set[TopicPartition] = set()
        """Partitions that a plan has found to be cut, until the broker has its old records again."""
        ground.accepts = lambda _: self.accepts
        self.timeline = TimelineInMemory(self.world)
        self.log = DeadLetterLog(storage_in(self.world))
        self.protocols = [
            TransactionProtocol(
                pipeline=self.pipeline,
                resolve_schema=partial(declared_schema, ground.columns),
                table=PipelineTable(self.pipeline, self.timeline),
                epoch=(NoFence if "no epoch" in flaws else TableEpoch)(storage_in(self.world)),
                durability=Durability(DiskInMemory(self.world)),
                ledger=ledger,
                instants=HudiInMemory(self.world),
                write_files=WriterInMemory(self.world),
                groups=GroupsInMemory(self.world),
                letters=DeadLetterLog(storage_in(self.world)),
                find_losses=LossesInMemory(self.world),
                confirm_marks=partial(confirmed_marks, self.pipeline.source),
                copy_letters=self.copy_letters,
                sync_catalog=lambda commits: None,
                note_step=self.world.note_step,
                tell_lineage=self.told.append,
            )
            for ledger in self.ledgers
        ]

    def tell(self, text: str) -> None:
        if self.story is not None:
            self.story.append(text)

    def copy_letters(self, head: LettersHead | None) -> int:
        self.world.reach("letters_copied")
        stop("letters are copied", KafkaUnreachable)
        return head.waiting if head else 0

    def act(self, action: str, which: int, more: int) -> None:
        """Do what a step of a schedule says, if it is possible now; `which` and `more` choose."""
        coordinator, programs = more % COORDINATORS, bool(self.programs)
        if action == "produce":
            self.produce(which, ["row", "bad", "tombstone", "gap", "row"][: more % 5 + 1])
        elif action == "tick":
            self.tick(coordinator)
        elif action == "retry":
            if self.retries:
                self.retry(coordinator, which % 3 + 1, bool(more & 2))
        elif action in ("backfill", "replay"):
            self.ask_for_a_range(coordinator, TransactionKind(action), which, more)
        elif action == "a newer one begins":
            self.a_newer_one_begins(coordinator, bool(which & 1), which > 6, bool(more & 2))
        elif action == "recover":
            self.everything_recovers(bool(which & 1))
        elif action in ("begin", "write", "commit", "abort"):
            if self.waiting("write" if action == "abort" else action):
                steps: dict[str, Callable[[int], None]] = {
                    "begin": self.begin_again,
                    "write": partial(self.write, part=more % 5),
                    "commit": self.commit,
                    "abort": self.abort,
                }
                steps[action](which)
        elif action == "the run ends":
            if any(not each.finished for each in self.runs):
                self.the_run_ends(which)
        elif action == "fail":
            if any(each.errors for each in self.programs):
                self.fail(which, more)
        elif action in ("go on", "come to", "all go on", "finish", "take for dead", "die"):
            if programs:
                acts: dict[str, Callable[[], None]] = {
                    "go on": partial(self.go_on, which, more + 1),
                    "come to": partial(self.come_to, which, NARROW[more % len(NARROW)]),
                    "all go on": partial(self.all_go_on, more + 1),
                    "finish": partial(self.finish, which),
                    "take for dead": partial(self.take_for_dead, which),
                    "die": partial(self.die, which),
                }
                acts[action]()
        else:
            self.the_world_turns(action, coordinator, which, more)

    # What the outside world does.

    def start(self, partitions: int, records: int, history: int = 0) -> None:
        for partition in range(partitions):
            source = TopicPartition("orders", partition)
            self.world.broker[source] = ["row"] * (history + records)
            self.world.hold_from({source: 0})
            self.world.began[source] = history

    def produce(self, number: int, kinds: list[str]) -> None:
        sources = sorted(self.world.broker)
        source = sources[number % len(sources)]
        log = self.world.cut[source][1] if source in self.world.cut else self.world.broker[source]
        if self.world.setting.truncates:
            kinds = ["truncate" if 5 * place % 13 == 3 else kind for place, kind in enumerate(kinds, len(log))]
        log += kinds

    def add_partition(self) -> None:
        source = TopicPartition("orders", len(self.world.broker))
        self.world.broker[source] = []
        self.world.hold_from({source: 0})

    def retention_takes_what_is_committed(self) -> None:
        checkpoint = self.checkpoint()
        if checkpoint is not None and checkpoint.topics["orders"].topic_id == self.world.topic_id:
            self.world.hold_from(checkpoint.offsets)

    def records_are_lost(self, most: int) -> None:
        """Retention takes records that nobody has read yet; every plan gives them up."""
        checkpoint = self.checkpoint()
        for source, offset in checkpoint.offsets.items() if checkpoint else ():
            self.world.hold_from({source: min(offset + most, len(self.world.broker[source]))})

    def lost_records_come_back(self) -> None:
        """As after a look at a broker that was behind."""
        self.world.hold_from(dict.fromkeys(self.world.first, 0))

    def cut_a_log(self, which: int, more: int) -> None:
        """A broker is restored from an older copy, without records that were read; producers have passed its old end, in every second
        case before anybody looks."""
        checkpoint, world = self.checkpoint(), self.world
        offsets = checkpoint.offsets if checkpoint else {}
        # By what was before its first record, nobody could recognize a log.
        read = checkpoint.last if checkpoint else {}
        found = [source for source in sorted(read) if source not in world.cut and not world.damaged]
        if not found:
            return
        source = found[which % len(found)]
        at = max(offsets[source] - 1 - more % 4, 0)
        world.cut[source] = (at, [])
        if which & 1:
            self.tick(more % COORDINATORS)
        if which & 2:
            self.produce(sorted(world.broker).index(source), ["row"] * (offsets[source] - at + more % 3))

    def cut_logs_are_back(self) -> None:
        self.world.cut.clear()
        self.noticed.clear()

    def lose_a_leader(self, coordinator: int) -> None:
        """The last partition's; the others go on."""
        self.world.leaderless.add(max(self.world.broker))
        self.a_newer_one_begins(coordinator, dead=False, late=False, whole=True)

    def time_passes(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)

    def wipe_the_ledger(self, coordinator: int) -> None:
        self.ledgers[coordinator].wipe()

    def delete_the_consumer_group(self) -> None:
        self.world.group = {}

    def end_the_engine(self, host: int) -> None:
        self.world.end_engine(host)

    def cut_power(self, which: int, more: int) -> None:
        """The machine that has table and engines loses its power, perhaps while somebody has changed something and not flushed it. On S3 the
        coordinators' machines do."""
        world, point = self.world, UNFLUSHED[more % len(UNFLUSHED)]
        if which < 8:
            if not self.programs or which < 3:
                self.produce(which, ["row", "bad", "row"][: more % 3 + 1])
                self.tick(more % COORDINATORS)
            self.come_to_one(which, point)
        reported = {
            row.instant
            for ledger in self.ledgers
            for row in ledger.rows.transactions.values()
            if row.state is TransactionState.COMMITTED
        }
        for program in [each for each in self.programs if world.journals or each.host != OUTSIDE]:
            self.programs.remove(program)
            program.crashed = True
            world.calls.discard(program)
            world.trace.append({"step": "killed", "pid": program})
            self.dead.append(program)
        if world.journals:
            world.trace.append(POWER_CUT)
            self.others.clear()
        dice = Random(1000 * which + 100 * more + self.cuts)
        self.cuts += 1
        for was in world.cut_power(dice):
            self.tell(
                f"  {was.name} is lost, or {world.active[was.name].damage if was.name in world.active else 'gone'}"
            )
            self.ground.lost.add("service" if was.service else "commit")
            if was.name in reported | self.merged and was.name not in world.unsure:
                world.wrongs.append(f"P5: {was.name} was reported, and a power cut has taken it")
        for ledger in self.ledgers:
            ledger.rows.forget(dice)
        for run in self.runs if which & 1 else ():
            run.finished = True

    def cut_properties(self, which: int) -> None:
        """An engine dies between two steps of Hudi's update of hoodie.properties, as one is made in a begin for a new metadata table, and
        perhaps the op with it."""
        begins = [each for each in self.programs if each.name.endswith(" begin")]
        if not begins or self.world.setting.on_s3:
            # An object is there as a whole.
            return
        program = begins[which % len(begins)]
        self.advance(program, until="instant_inflight")
        if program.point == "instant_inflight" and not program.over:
            self.end_the_engine(program.host)
            self.world.properties_cut = True
            if which & 1:
                self.die(self.programs.index(program))

    def come_to_one(self, which: int, point: str) -> None:
        """One of the programs comes to the point, or a run that it is of in one of its next steps."""
        program = self.programs[which % len(self.programs)] if self.programs else None
        run = self.run_of.get(program) if program is not None else None
        while program is not None:
            self.advance(program, until=point)
            mine = [each for each in self.programs if run is not None and self.run_of.get(each) is run]
            program = mine[0] if program.over and mine else None

    def a_clock_jumps(self, host: int, which: int) -> None:
        self.world.skews[host] = timedelta(seconds=CLOCKS[which % len(CLOCKS)])
        self.world.clocks_jumped = True

    def clocks_are_right(self) -> None:
        self.world.skews.clear()

    def another_writer_begins(self, rewrites: bool) -> None:
        instant = self.world.new_instant()
        # That it flushes nothing is a limit of the promises.
        self.world.unflushed = [each for each in self.world.unflushed if each.name != instant.name]
        instant.state = "inflight"
        rewrites &= not self.world.setting.keyed
        instant.rewrites = self.world.live()[0] if rewrites and self.world.live() and not self.others else ""
        instant.began_late = instant.rewrites in self.world.being_replaced
        self.world.heartbeats[instant.name] = self.world.now
        self.world.beating[instant.name] = OUTSIDE
        self.others.append(instant)

    def another_writer_commits(self) -> None:
        instant = self.others.pop(0)
        self.world.heartbeats.pop(instant.name, None)
        self.world.beating.pop(instant.name, None)
        is_replaced = instant.began_late and instant.rewrites not in self.world.live()
        if is_replaced or (instant.rewrites and self.is_merged(instant.rewrites)):
            # Hudi refuses it; its cleaning rolls it back.
            self.world.heartbeats.pop(instant.name, None)
        elif instant.name in self.world.active and instant.name not in self.world.doomed:
            # Hudi publishes also one whose rollback an engine has planned whose clock is wrong, which then deletes its files: a limit.
            instant.metadata = self.world.carried()
            if instant.rewrites:
                if instant.rewrites not in self.world.live():
                    self.world.wrongs.append(f"P7: {instant.rewrites} was replaced while another writer changed it")
                path = f"{instant.rewrites}-{instant.name}"
                self.world.files[path] = self.world.files[instant.rewrites]
                instant.files, instant.replaced = (path,), (instant.rewrites,)
            self.world.complete(instant)

    def is_merged(self, path: str) -> bool:
        """Whether a clustering, pending or completed, has the file."""
        return any(path in each.merges for each in (self.world.active | self.world.archived).values())

    def another_writer_cleans(self) -> None:
        self.spawn("another writer's cleaning", self.protocols[0].instants.roll_back_expired, host=OUTSIDE)

    def archive(self) -> None:
        if self.world.damaged:
            return
        pending = [each.name for each in self.world.active.values() if each.state != "completed"]
        completed = sorted(each.name for each in self.world.active.values() if each.state == "completed")
        for name in completed[:-3]:
            if name < min(pending, default="9"):
                self.world.archived[name] = self.world.active.pop(name)

    def the_world_turns(self, what: str, host: int, which: int, more: int) -> None:
        if what.startswith("time "):
            self.time_passes(int(what.split()[1]))
        elif what == "a clock jumps":
            self.a_clock_jumps(host, which)
        elif what == "clocks are right":
            self.clocks_are_right()
        elif what == "wipe the ledger":
            self.wipe_the_ledger(host)
        elif what == "a partition is added":
            # Of a keyed table the offsets of a new one would order nothing.
            if len(self.world.broker) < 4 and not self.world.setting.keyed:
                self.add_partition()
        elif what == "another writer begins":
            # On a damaged table it may begin, and then a person has to repair that.
            if self.checkpoint() is not None and len(self.others) < 2 and not self.world.damaged:
                self.another_writer_begins(bool(host))
        elif what == "another writer commits":
            if self.others and self.world.lock is None:
                self.another_writer_commits()
        elif what == "another writer cleans":
            if self.world.properties:
                self.another_writer_cleans()
        elif what == "archive":
            self.archive()
        elif what == "retention":
            self.retention_takes_what_is_committed()
        elif what == "the topic is recreated":
            # Not while a power cut could still take the first commit: nothing would say where the topic of before began.
            may_be_lost = self.world.unflushed or self.world.damaged
            if self.checkpoint() is not None and len(self.world.logs) < 3 and not may_be_lost:
                self.world.recreate_topic()
                for source in self.world.broker:
                    self.world.broker[source] += ["row", "bad", "row", "gap", "row"][: which // 2 + 1]
        elif what == "records are lost":
            self.records_are_lost(host + 1)
        elif what == "a log is cut":
            self.cut_a_log(which, more)
        elif what == "cut logs are back":
            self.cut_logs_are_back()
        elif what == "a look is behind":
            self.records_are_lost(which % 3 + 1)
            self.tick(host)
            self.lost_records_come_back()
        elif what == "lost records come back":
            self.lost_records_come_back()
        elif what == "a leader is lost":
            if len(self.world.broker) > 1:
                self.lose_a_leader(host)
        elif what == "leaders come back":
            self.world.leaderless.clear()
        elif what == "the consumer group is deleted":
            self.delete_the_consumer_group()
        elif what == "the engine dies":
            self.end_the_engine(host)
        elif what == "the power is cut":
            self.cut_power(which, more)
        elif what == "hoodie.properties is cut":
            self.cut_properties(which)
        elif what == "a service comes to":
            if at_work := [each for each in self.programs if each.name.startswith("services-")]:
                point = services.NARROW[which % len(services.NARROW)]
                self.advance(at_work[host % len(at_work)], until=point)
        elif what == "the sensor ticks":
            if len(self.programs) < 6:
                self.sense(host, which)
        elif what == "services beside a commit":
            if self.world.properties and len(self.programs) < 5:
                self.services_beside_a_commit(host, which)
        elif what == "other services take over":
            if self.world.properties and len(self.programs) < 5:
                self.services_take_over(host, which)
        elif what == "a replay beside services":
            if self.world.properties and len(self.programs) < 5:
                at_work = self.run_services(host, cluster=True, clean=True)
                self.advance(at_work, until=services.EXECUTING[which % len(services.EXECUTING)])
                self.ask_for_a_range(which % COORDINATORS, TransactionKind.REPLAY, 2 * which + 1, which)
        elif what == "services":
            if self.world.properties and len(self.programs) < 6:
                self.run_services(host, cluster=which < 8, clean=which % 3 > 0)
        else:
            raise AssertionError(f"there is no action {what!r}")

    # What the coordinators do.

    def run_services(self, coordinator: int, cluster: bool, clean: bool) -> Program:
        """As `hudi-ingest services` and its schedule do."""
        self.serviced += 1
        table = services.services_over(self.world, self.ledgers[coordinator])

        def run() -> None:
            merge: dict[str, bool] = {"compact" if self.world.setting.keyed else "cluster": cluster}
            done = table.run(clean=clean, report=self.tell, **merge)
            self.merged |= {each.instant for each in done.clusterings} | {each.instant for each in done.compactions}

        return self.spawn(f"services-{self.serviced}", run, host=coordinator)

    def services_beside_a_commit(self, coordinator: int, which: int) -> None:
        """They begin while a commit is between two of its steps, and may get done before it goes on. Their clock may be ahead."""
        self.produce(which, ["row", "tombstone", "row"])
        before = len(self.runs)
        self.tick(coordinator)
        for run in self.runs[before:]:
            while mine := [each for each in self.programs if self.run_of.get(each) is run]:
                if mine[0].name.endswith(" commit"):
                    self.advance(mine[0], until=services.COMMITTING[which % len(services.COMMITTING)])
                    break
                self.run_to_its_end(mine[0])
        host = (coordinator + (which > 2)) % COORDINATORS
        if which > 5:
            self.a_clock_jumps(host, CLOCKS.index(20))
        newer = self.run_services(host, cluster=True, clean=False)
        self.advance(newer, until=services.EXECUTING[which % len(services.EXECUTING)] if which & 2 else "")

    def services_take_over(self, coordinator: int, which: int) -> None:
        """The engine of those at work stands still for so long that others begin, perhaps to their end; then it goes on."""
        older = [each for each in self.programs if each in self.world.calls]
        if not older:
            older = [self.run_services(coordinator, cluster=True, clean=True)]
            self.advance(older[0], until=services.EXECUTING[which % len(services.EXECUTING)])
        for each in older:
            self.world.pause_engine(each.host)
            each.crashed = True
        self.time_passes(301)
        newer = self.run_services(which % COORDINATORS, cluster=True, clean=True)
        self.advance(newer, until=services.EXECUTING[which // 2 % len(services.EXECUTING)] if which & 1 else "")

    def tick(self, coordinator: int) -> None:
        self.timeline.restore_properties()
        plan = self.plan()
        if plan is not None and len(self.programs) < 6:
            self.world.reach("tick_planned")
            ident = f"run-{len(self.runs)}"
            run = Run(ident, coordinator, replace(plan, transaction_id=f"{plan.transaction_id[:-6]}{ident}"))
            self.runs.append(run)
            self.begin(run)

    def sense(self, coordinator: int, which: int) -> Program:
        """A tick of the coordinator's sensor. What becomes of the run that it asks for: most begin; one is asked for twice, as after an
        answer that was lost; one dies before it begins, and Dagster shows it for ever."""
        self.sensed += 1

        def situation() -> Situation:
            committed = self.committed()
            topic_ids, marks = held_offsets(BrokerInMemory(self.world), committed.checkpoint)
            cuts = cuts_found(self.world, committed.checkpoint, marks, topic_ids)
            return Situation(committed, marks, self.world.began, topic_ids, cuts=cuts)

        def tick() -> None:
            theirs = [run for run in self.runs if run.coordinator == coordinator]
            repair_timeline(self.protocols[coordinator].table, self.ledgers[coordinator])
            instance = sensor.Instance(self.pipeline.name, theirs, self.world.clock())
            protocol = self.protocols[coordinator]
            plan = sensor.planned_run(instance, self.ledgers[coordinator], protocol.table, situation)
            stop("a run is asked for")
            if plan is None:
                return
            for number in range(2 if which == 0 else 1):
                ident = f"run-{len(self.runs)}"
                planned = replace(plan, transaction_id=f"{plan.transaction_id[:-6]}{ident}")
                self.runs.append(run := Run(ident, coordinator, planned, since=self.world.clock()))
                self.ground.asked.add("twice" if number else "dies" if which == 1 else "begins")
                if which != 1:
                    self.begin(run)

        return self.spawn(f"sensor-{self.sensed}", tick, host=coordinator)

    def sense_until_all_is_in(self) -> None:
        """P5: whatever Dagster shows of runs that are dead, ticks of the sensors go on."""
        last: BaseException | None = None
        for turn in range(MOST_TICKS):
            self.time_passes(75)
            if self.plan() is None:
                return
            before = len(self.runs)
            last = self.run_to_its_end(self.sense(turn % COORDINATORS, 2)) or last
            for run in self.runs[before:]:
                last = self.run_through(run) or last
                self.judge()
        raise AssertionError(f"P5: the sensor does not get everything in in {turn} ticks; the last error was {last!r}")

    def retry(self, coordinator: int, most: int, whole: bool, generation: int | None = None) -> None:
        """Some of the dead letters are tried again; `whole`: to the end, if the others let it. `generation`: of which topic of the name,
        by default the oldest that has some."""
        checkpoint = self.checkpoint()
        waiting = self.log.waiting(checkpoint.letters) if checkpoint else ()
        left = [(each, letters_left(self.world, each.file.path, each.without)) for each in waiting]
        taken = [(each, rows) for each, rows in left if rows]
        # Those of one topic only, as in operations/requests/dead_letter_retry.py.
        known = [each.entry.generations.get("orders", 0) for each, _ in taken]
        wanted = min(known, default=0) if generation is None else generation
        taken = [each for each, theirs in zip(taken, known, strict=True) if theirs == wanted][:most]
        if checkpoint is None or not taken or len(self.programs) >= 6:
            return
        ident = f"run-{len(self.runs)}"
        places = sorted((source, place % LATER) for _, rows in taken for source, place in rows)
        slices = [
            Slice(source.topic, source.partition, min(offsets), max(offsets) + 1)
            for source, offsets in {s: [offset for at, offset in places if at == s] for s, _ in places}.items()
        ]
        plan = RetryPlan(
            self.world.pipeline.name,
            f"retry-{ident}",
            checkpoint.sequence + 1,
            tuple(slices),
            retry=Retry(
                tuple(RetriedFile(each.file.path, len(rows), each.without) for each, rows in taken),
                taken[0][0].entry.generations,
            ),
        )
        run = Run(ident, coordinator, plan)
        self.runs.append(run)
        self.begin(run)
        if whole:
            self.run_through(run)

    def ask_for_a_range(self, coordinator: int, kind: TransactionKind, which: int, more: int) -> None:
        """What `hudi-ingest backfill` or `replay` plans for some range of a partition."""
        checkpoint = self.checkpoint()
        if checkpoint is None or len(self.programs) >= 6:
            return
        source = sorted(checkpoint.offsets)[which % len(checkpoint.offsets)]
        start = which % (checkpoint.offsets[source] + 1)
        asked = Slice(source.topic, source.partition, start, min(start + more, checkpoint.offsets[source]))
        try:
            require_leaders(self.world.leaderless.intersection([source]))
            topic_ids, marks = held_offsets(BrokerInMemory(self.world), checkpoint)
            known = RangeContext("orders", checkpoint, checkpoint.covered, marks, topic_ids)
            if is_keyed := self.world.setting.keyed:
                left = to_upsert(known, kind, [replace(asked, end=checkpoint.offsets[source])], MAX_RECORDS)
            else:
                left = to_read(known, kind, [asked], skip_covered=True)
        except (RangeRefused, LeaderMissing):
            return
        slices = next_ranges(left, MAX_RECORDS)
        if not slices:
            return
        plan = range_transaction(known, kind, slices, suffix="000000", upserts=is_keyed)
        if isinstance(plan, ReplayPlan) and not is_keyed:
            plan = replace(plan, replaces=self.world.files_of(slices))
        run = Run(ident := f"run-{len(self.runs)}", coordinator, plan)
        run.plan = replace(plan, transaction_id=f"{plan.transaction_id[:-6]}{ident}")
        self.runs.append(run)
        self.begin(run)
        if which & 1:
            self.run_through(run)

    def run_through(self, run: Run) -> BaseException | None:
        """All of the run's ops, one after another, while everybody else stands still."""
        last = None
        while mine := [each for each in self.programs if self.run_of.get(each) is run]:
            last = self.run_to_its_end(mine[0]) or last
        return last

    def begin_again(self, which: int) -> None:
        found = self.waiting("begin")
        self.begin(found[which % len(found)])

    def write(self, which: int, part: int) -> None:
        found = self.waiting("write")
        run = found[which % len(found)]
        slices = run.plan.slices
        self.write_slices(run, slices if part == 4 else (slices[part % len(slices)],))

    def commit(self, which: int) -> None:
        # By mistake also one that has not written everything.
        found = self.waiting("write" if which > 7 else "commit")
        self.publish(found[which % len(found)])

    def abort(self, which: int) -> None:
        run = self.waiting("write")[which % len(self.waiting("write"))]
        assert run.transaction is not None
        abort = partial(self.protocols[run.coordinator].abort, run.transaction, "asked for")
        self.spawn(f"{run.ident} abort", abort, host=run.coordinator)

    # Who goes on, who fails, who dies.

    def go_on(self, which: int, steps: int) -> None:
        self.advance(self.programs[which % len(self.programs)], steps)

    def come_to(self, which: int, point: str) -> None:
        """It goes on until it stands at a point that begins like this, or ends."""
        self.advance(self.programs[which % len(self.programs)], until=point)

    def finish(self, which: int) -> None:
        self.run_to_its_end(self.programs[which % len(self.programs)])

    def fail(self, which: int, error: int) -> None:
        found = [each for each in self.programs if each.errors]
        program = found[which % len(found)]
        kind = program.errors[error % len(program.errors)]
        self.tell(f"  {program.name}: {kind.__name__} at {program.point}")
        program.go_on(kind(f"injected at {program.point}"))
        self.notice_ends()

    def take_for_dead(self, which: int) -> None:
        """Its lock is free and its op may be tried again; it may go on all the same."""
        self.programs[which % len(self.programs)].crashed = True

    def die(self, which: int) -> None:
        program = self.programs[which % len(self.programs)]
        if program in self.world.calls:
            # A call in the engine goes on, and nobody waits for it.
            program.crashed = True
            return
        self.programs.remove(program)
        while self.world.lock is program:
            # A call that is in Hudi's lock runs in the engine, which has not died.
            program.go_on()
        program.crashed = True
        self.world.trace.append({"step": "killed", "pid": program})
        self.dead.append(program)

    def a_newer_one_begins(self, coordinator: int, dead: bool, late: bool, whole: bool) -> None:
        """Where the older ones are `dead` they were only taken for it: they may go on after that."""
        if dead:
            for run in self.runs:
                run.finished = True
            for program in self.programs:
                program.crashed = True
        if late:
            self.time_passes(301)
        self.produce(0, ["row"])
        before = len(self.runs)
        self.tick(coordinator)
        for run in self.runs[before:]:
            while mine := [each for each in self.programs if self.run_of.get(each) is run]:
                self.run_to_its_end(mine[0])
                if not whole:
                    break

    def all_go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for program in list(self.programs):
                self.step(program)

    def the_run_ends(self, which: int) -> None:
        """The orchestrator counts the run as over, whatever its programs do."""
        alive = [each for each in self.runs if not each.finished]
        alive[which % len(alive)].finished = True

    def everything_recovers(self, drain: bool, sensors: bool = False) -> None:
        """P5: without a person, ticks alone bring the table to the broker's ends, and leave nothing open. `sensors`: Dagster does not
        know which runs have ended, and their ticks decide."""
        for run in self.runs if not sensors else ():
            run.finished = True
        for program in list(self.programs):
            if drain:
                self.run_to_its_end(program)
            program.crashed = True
            while self.world.lock is program:
                program.go_on()
            while program in self.world.calls:
                # Such a call ends by itself.
                self.step(program)
        for program in [*self.programs, *self.dead]:
            while not program.over and self.has_a_lease_that_all_wait_for(program, sensors):
                program.go_on()
        while self.others:
            self.another_writer_commits()
        self.world.leaderless.clear()
        if self.world.cut:
            # Nothing more is read of them, and nobody forgets it.
            self.tick_through(3)
            self.cut_logs_are_back()
        self.clocks_are_right()
        self.world.now += timedelta(seconds=1000)
        if self.world.setting.falls_quiet:
            self.judge_a_quiet_time()
        # A begin clears what is left over, so there must be one.
        self.produce(0, ["row"])
        if sensors:
            self.sense_until_all_is_in()
        else:
            self.tick_until_all_is_in()
        if not self.accepts:
            self.judge_stops()
            # As a person does with `hudi-ingest accept-loss`.
            self.accepts = True
            self.tick_until_all_is_in()
            self.accepts = False
        for number, kind in enumerate((TransactionKind.BACKFILL, TransactionKind.REPLAY, TransactionKind.REPLAY)):
            if drain and not self.programs:
                self.ask_for_a_range(0, kind, 2 * number + 1, 5)
                self.judge()
        if self.serviced:
            self.services_recover()
        damaged = [self.world.active[name] for name in self.world.damaged]
        assert not damaged, f"P5: nothing repairs {damaged}"
        left = [each for each in self.world.active.values() if each.state != "completed"]
        assert not left, f"P5: everything is ingested, and open instants are left: {left}"

    def judge_a_quiet_time(self) -> None:
        """P5: where no commit comes that would set the consumer group's offsets, a tick does."""
        self.sense_until_all_is_in()
        self.run_to_its_end(self.sense(0, 2))
        checkpoint = self.checkpoint()
        stands = {source: self.world.group.get(source) for source in checkpoint.offsets} if checkpoint else {}
        assert not checkpoint or stands == checkpoint.offsets, (
            f"P5: the consumer group stands at {stands}, the table at {checkpoint.offsets}"
        )

    def services_recover(self) -> None:
        """P5: the next run of services does what others left undone, and whatever is to be done after it."""
        failure = self.run_to_its_end(self.run_services(0, cluster=True, clean=True))
        assert failure is None, f"P5: services do not get done: {failure!r}"
        self.judge()

    def has_a_lease_that_all_wait_for(self, program: Program, sensors: bool) -> bool:
        """Such a commit may be at work, because no ledger knows it, or Dagster shows its run: everybody waits for it, and a person ends
        the engine if it hangs."""
        run = self.run_of.get(program)
        if run is None or run.transaction is None or program.name != f"{run.ident} commit":
            return False
        if run.transaction.instant not in self.world.beating:
            return False
        ident = run.transaction.plan.transaction_id
        return sensors or not any(ident in ledger.rows.transactions for ledger in self.ledgers)

    def tick_until_all_is_in(self) -> None:
        last: BaseException | None = None
        self.timeline.restore_properties()
        for turn in range(MOST_TICKS):
            plan = self.plan()
            if plan is None:
                return
            run = Run(f"run-{len(self.runs)}", turn % COORDINATORS, plan)
            run.plan = replace(plan, transaction_id=f"{plan.transaction_id[:-6]}{run.ident}")
            self.runs.append(run)
            self.begin(run)
            last = self.run_through(run) or last
            self.judge()
            run.finished = True
        raise AssertionError(f"P5: {plan} is not done after {turn} ticks; the last error was {last!r}")

    def tick_through(self, most: int) -> None:
        """Some runs, one after another."""
        for turn in range(most):
            plan = self.plan()
            if plan is None or len(self.programs) >= 6:
                return
            run = Run(f"run-{len(self.runs)}", turn % COORDINATORS, plan)
            run.plan = replace(plan, transaction_id=f"{plan.transaction_id[:-6]}{run.ident}")
            self.runs.append(run)
            self.begin(run)
            self.run_through(run)
            self.judge()
            run.finished = True

    def judge_stops(self) -> None:
        """P6: a partition that lost its next offset stands still until a person accepts that, and the others go on."""
        checkpoint = self.checkpoint()
        if checkpoint is not None and checkpoint.topics["orders"].topic_id != self.world.topic_id:
            # All of its partitions are another topic's.
            return
        for source, offset in checkpoint.offsets.items() if checkpoint else ():
            end = len(self.world.broker[source])
            assert offset in (end, *range(self.world.first[source])), f"P6: {source} stands at {offset} of {end}"

    def finish_all(self) -> None:
        """The faults stop: everything must come into the table, and stay there whoever wakes up."""
        self.everything_recovers(drain=False, sensors=self.sensed > 0)
        self.judge()
        # Who was paused all the time wakes up after all.
        for program in list(self.programs):
            self.run_to_its_end(program)
            self.judge()
        self.everything_recovers(drain=True)
        self.judge()
        for generation in range(len(self.world.logs) if self.retries else 0):
            self.retry(0, len(self.world.letters), whole=True, generation=generation)
            self.judge()
        if not self.world.setting.keyed:
            assert not any(offset % 2 == 0 for offset in self.letters_that_wait()), "P5: a retry did not take all"
        self.judge_heartbeats()

    def judge_heartbeats(self) -> None:
        """P5: nothing renews the heartbeat of an instant that has ended: a sweep would delete the file in vain."""
        world = self.world
        while world.committing:
            # What died while it waited for one: such a call ends by itself.
            program = next(iter(world.committing.values()))
            assert program in self.dead, f"{program} has not ended"
            program.go_on()
        self.judge()
        ended = [each for each in world.beating if each not in world.active or world.active[each].state == "completed"]
        assert not ended, f"P5: the heartbeats of {ended} are renewed for as long as the engine lives"

    def end(self) -> None:
        """Lets go of all programs, whatever they stand at."""
        for program in [*self.programs, *self.dead]:
            program.end()
        self.programs.clear()
        self.dead.clear()
        self.ground.reached |= self.world.reached

    # How it is judged.

    def judge(self) -> None:
        """P1–P4, P7 and P8 after each action that has changed something."""
        world = self.world
        assert not world.wrongs, world.wrongs
        if world.is_unreadable:
            return
        if self.judged != world.version:
            self.judged = world.version
            self.judge_table()
        self.judge_lineage()

    def judge_table(self) -> None:
        world = self.world
        ends: dict[TopicPartition, int] = {}
        covered: dict[TopicPartition, Ranges] = {}
        earlier: list[tuple[TopicPartition, int, Ranges]] = []
        topics = ["0"]
        sequence = 0
        letters: dict[str, list[Row]] = {}
        waiting: list[Row] = []
        retried: set[Row] = set()
        is_keyed = world.setting.keyed
        kinds = ("row", "tombstone", "truncate") if is_keyed else ("row",)
        for instant in world.completed():
            text = instant.metadata.get(world.pipeline.transaction_key)
            if text is None:
                continue
            published = parsed(text)
            self.published.add(published["transaction"])
            assert instant.name not in world.rolled_back, f"P4: {instant.name} was rolled back and is completed"
            assert published["sequence"] == sequence + 1, f"P2: {published} follows number {sequence}"
            sequence += 1
            slices = [
                Slice(*(each[key] for key in ("topic", "partition", "start", "end"))) for each in published["slices"]
            ]
            plan = world.plans[published["transaction"]]
            assert sorted(plan.slices) == slices, f"P3: {instant.name} published {slices} of {plan.slices}"
            if plan.topics and sequence == 1:
                # After a power cut the first commit may not be of the first topic.
                topics = [plan.topics["orders"].topic_id]
            if plan.topics and plan.topics["orders"].topic_id != topics[-1]:
                earlier += [(source, int(topics[-1]), before) for source, before in covered.items()]
                covered, ends = dict.fromkeys(covered, ()), {}
                topics.append(plan.topics["orders"].topic_id)
                self.ground.recreated = True
            if plan.kind is not TransactionKind.RETRY:
                generation = plan.generations.get("orders", 0)
                assert generation == len(topics) - 1, f"P2: generation {generation} of topic {len(topics)}: {plan}"
            number = int(topics[-1])
            expected, bad = [], []
            retry = plan.retry if isinstance(plan, RetryPlan) else None
            if retry is not None:
                taken = sorted(row for file in retry.files for row in letters_left(world, file.path, file.without))
                expected = [row for row in taken if row[1] % 2 == 0]
                bad = [row for row in taken if row[1] % 2]
                for row in taken:
                    waiting.remove(row)
                if is_keyed:
                    # Which ones are held is the product's to say; the others must be in the table, unless something newer is.
                    held = {*self.listed_letters(instant.name)}
                    expected = [row for row in expected if row not in held]
                    bad = sorted([*bad, *held.difference(bad)])
                    assert {*bad} <= {*taken}, f"P2: {instant.name} has {bad} as dead letters, and took {taken}"
                retried |= {*expected}
            upserts = isinstance(plan, RangePlan) and plan.upserts
            if plan.kind is TransactionKind.REPLAY or upserts:
                waiting = [row for row in waiting if not is_of(row, slices)]
                if not upserts:
                    # The row of a keyed table stays, also if its record is a dead letter once more.
                    retried = {row for row in retried if not is_of(row, slices)}
            for each in slices if retry is None else ():
                before = covered.get(each.source, ())
                here = ranges([(each.start, each.end)])
                if plan.kind is TransactionKind.INGEST:
                    begin = ends.get(each.source, world.began.get(each.source, 0))
                    begin = self.given_up_to(plan).get(each.source, begin)
                    if self.cuts and sequence == 1 and each.start > begin:
                        # No checkpoint is left that says what the broker has lost meanwhile.
                        firsts = [first.get(each.source) for first in self.held[plan.transaction_id]]
                        assert each.start in firsts, f"P1: {each} begins late, and the broker held it from {firsts}"
                        begin = each.start
                    assert each.start == begin, f"P2: {each} does not follow {begin}"
                    ends[each.source] = each.end
                elif plan.kind is TransactionKind.BACKFILL:
                    assert upserts or not intersection(before, here), (
                        f"P2: {each} is backfilled, and {before} was there"
                    )
                else:
                    assert intersection(before, here) == here, f"P1: {each} is replayed, and {before} was there"
                covered[each.source] = union(before, here)
                log = [*enumerate(world.logs[number].get(each.source, ()), LATER * number)][each.start : each.end]
                expected += [(each.source, place) for place, kind in log if kind in kinds]
                bad += [(each.source, place) for place, kind in log if kind == "bad"]
            letters[instant.name] = bad
            waiting += bad
            missing = [path for path in instant.files if path not in world.files and path not in world.cleaned]
            assert not missing, f"P1: files of completed instant {instant.name} are gone: {missing}"
            found = sorted(
                row
                for path in instant.files
                for row in (world.files[path] if path in world.files else world.cleaned[path])
            )
            if is_keyed:
                self.ground.upserted.add(plan.kind)
                won, last = (
                    sorted(row for row in found if len(row) == 2),
                    sorted(keyed.surviving(world, expected).values()),
                )
                if retry is not None:
                    last = [row for row in last if row in won]
                assert won == last, f"P1, P2, P3: {instant.name} has {won}, the last changes of its ranges are {last}"
                continue
            kept = sum(each.kept for each in plan.replaces)
            self.ground.published.add((plan.kind, kept > 0))
            assert len(found) == len(expected) + kept, f"P1, P2, P3: {instant.name} has {found}, kept are {kept}"
            assert kept or found == expected, f"P1, P2, P3: {instant.name} has {found}, its ranges are {expected}"
        missing = [path for path in world.live() if path not in world.files]
        assert not missing, f"P1: files of the table are gone: {missing}"
        rows = keyed.visible(world) if is_keyed else sorted(row for path in world.live() for row in world.files[path])
        wanted = [
            (source, place)
            for source, number, there in (
                *earlier,
                *((source, int(topics[-1]), there) for source, there in covered.items()),
            )
            for start, end in there
            for place, kind in [*enumerate(world.logs[number].get(source, ()), LATER * number)][start:end]
            if kind in kinds or (source, place) in retried
        ]
        if is_keyed:
            last_changes = keyed.surviving(world, wanted)
            if world.setting.ordering:
                # Once a delete is compacted, a late change of its key counts as a new one.
                forgotten = {key for key, row in last_changes.items() if row in world.forgotten}
                rows = [row for row in rows if keyed.key_of(row) not in forgotten]
            wanted = keyed.upserts(world, last_changes.values())
            assert rows == sorted(wanted), f"P8: the table has {rows}, the last changes of its keys are {wanted}"
            rows = wanted
        wanted.sort()
        rows.sort()
        assert rows == wanted, f"P1, P2: the table has {rows}, covered are the rows {wanted}"
        checkpoint = self.checkpoint()
        seen = (checkpoint.sequence, dict(checkpoint.offsets)) if checkpoint else (0, {})
        assert seen == (sequence, ends), f"P7: the table says {seen}, committed is {(sequence, ends)}"
        assert (checkpoint.covered if checkpoint else {}) == covered, f"P7: the table says it covers {checkpoint}"

        self.judge_letters(letters, sorted(waiting), checkpoint)

    def judge_lineage(self) -> None:
        while self.told:
            step = self.told.pop()
            # One that failed to begin may not have a plan yet.
            known = {Progress.START: self.world.plans.keys(), Progress.COMPLETE: self.published}.get(step.progress)
            assert known is None or step.transaction_id in known, f"told of {step}, which never was so"

    def given_up_to(self, plan: TransactionPlan) -> dict[TopicPartition, int]:
        """P1: where partitions go on behind what they lost, which the broker must have lost when the transaction began."""
        for each in plan.resets:
            seen = [first[each.source] for first in self.held[plan.transaction_id] if each.source in first]
            assert each.restart in seen, f"P1: {each} is given up, and the broker held it from {seen}"
            self.ground.given_up = True
        return {each.source: each.restart for each in plan.resets if each.restart is not None}

    def judge_letters(self, expected: dict[str, list[Row]], waiting: list[Row], checkpoint: Checkpoint | None) -> None:
        """P1, P2: exactly the bad records of committed ranges are dead letters, each once."""
        head = checkpoint.letters if checkpoint else None
        entries = self.log.entries(head)
        found = {
            each.instant: sorted(row for file in each.files for row in self.world.letters[file.path])
            for each in entries
        }
        unsynced = {file.path for each in entries for file in each.files} - self.world.synced
        assert not unsynced, f"P5: dead letters {unsynced} are committed and would not outlive a power cut"
        assert len(found) == len(entries), "P2: an instant is in the list of dead letters twice"
        found = {instant: rows for instant, rows in found.items() if rows}
        expected = {instant: rows for instant, rows in expected.items() if rows}
        assert found == expected, f"P1, P2: dead letters are {found}, bad records {expected}"
        left = [
            row for each in self.log.waiting(head) for row in letters_left(self.world, each.file.path, each.without)
        ]
        assert sorted(left) == waiting, f"P2: {left} wait, and {waiting} have not become rows"
        assert len(waiting) == (head.waiting if head else 0)

    def listed_letters(self, instant: str) -> list[Row]:
        """The dead letters of one commit."""
        checkpoint = self.checkpoint()
        entries = self.log.entries(checkpoint.letters if checkpoint else None)
        return [
            row
            for each in entries
            if each.instant == instant
            for file in each.files
            for row in self.world.letters[file.path]
        ]

    def letters_that_wait(self) -> list[int]:
        """Their offsets."""
        checkpoint = self.checkpoint()
        waiting = self.log.waiting(checkpoint.letters) if checkpoint else ()
        return [offset for each in waiting for _, offset in letters_left(self.world, each.file.path, each.without)]

    def checkpoint(self) -> Checkpoint | None:
        return self.committed().checkpoint

    def committed(self) -> CommittedState:
        pipeline = self.pipeline
        if self.world.is_unreadable:
            # Whoever wants to know it repairs the table first.
            return CommittedState(exists=False)
        return self.timeline.committed(pipeline.checkpoint_key, pipeline.transaction_key)

    # How programs are made.

    def plan(self) -> TransactionPlan | None:
        if self.world.damaged:
            try:
                repair_timeline(self.protocols[0].table, self.ledgers[0])
                self.ground.lost.add("repaired")
            except (TableUnreachable, TransactionInFlight) as error:
                self.tell(f"  not repaired: {error}")
                return None
        committed = self.committed()
        if "group is the truth" in self.flaws and committed.checkpoint is not None:
            committed = replace(committed, checkpoint=replace(committed.checkpoint, offsets=self.world.group))
        try:
            topic_ids, marks = held_offsets(BrokerInMemory(self.world), committed.checkpoint)
            cuts = cuts_found(self.world, committed.checkpoint, marks, topic_ids)
            self.noticed |= {*cuts}.intersection(self.world.cut)
            plan = plan_next(
                self.pipeline,
                Situation(committed, marks, self.world.began, topic_ids, cuts=cuts),
                now=self.world.now,
                at_once=True,
                accepts=lambda loss: self.accepts,
            )
        except (NothingToDo, LeaderMissing, OffsetsLost):
            return None
        assert self.accepts or not plan.resets, f"P6: {plan} gives up what nobody has given up"
        again = self.noticed & ({each.source for each in plan.slices} - {each.source for each in plan.resets})
        assert not again, f"P6: the logs of {again} were found to be cut, nobody has accepted it, and {plan} reads them"
        self.ground.left_out |= bool(plan.leaderless)
        return plan

    def spawn(self, name: str, what: Callable[[], None], run: Run | None = None, host: int | None = None) -> Program:
        if host is None:
            host = run.coordinator if run is not None else 0
        program = Program(name, what, host)
        if self.story is not None:
            program.told = lambda point: self.tell(f"  {name}: {point}")
        self.programs.append(program)
        if run is not None:
            self.run_of[program] = run
        return program

    def orchestrate(self, program: Program) -> None:
        """What the orchestrator does when an op has ended: the next one, another try, or the end of the run."""
        run = self.run_of.get(program)
        dead = run is None or run.finished or program.crashed
        if run is None or (dead and program.failure is not None):
            return
        # A run that was taken for dead goes on with its next ops all the same.
        op = program.name.rsplit(" ", 1)[-1]
        if program.failure is not None:
            run.tries += 1
            if isinstance(program.failure, Terminal) or run.tries > 2:
                run.finished = True
            elif op == "begin":
                self.begin(run)
            elif op == "commit":
                self.publish(run)
            else:
                missing = tuple(each for each in run.plan.slices if each not in run.reports)
                self.write_slices(run, missing)
        elif op == "begin":
            for each in run.plan.slices:
                if each.count or len(run.plan.slices) == 1:
                    self.write_slices(run, (each,))
            empty = tuple(each for each in run.plan.slices if not each.count)
            if empty and len(run.plan.slices) > 1:
                self.write_slices(run, empty)
        elif op == "write" and len(run.reports) == len(run.plan.slices):
            self.publish(run)
        elif op == "commit":
            run.finished = True

    def begin(self, run: Run) -> Program:
        def run_is_finished(ident: str) -> bool | None:
            theirs = next(each for each in self.runs if each.ident == ident)
            return theirs.finished if theirs.coordinator == run.coordinator else None

        def begin() -> None:
            since = len(self.world.firsts) - 1
            opened = self.protocols[run.coordinator].begin(run.plan, Owner.dagster_run(run.ident), run_is_finished)
            self.held[opened.plan.transaction_id] = self.world.firsts[since:]
            run.transaction, run.plan = OpenTransaction.from_dict(opened.to_dict()), opened.plan
            run.reports.clear()

        return self.spawn(f"{run.ident} begin", begin, run)

    def write_slices(self, run: Run, slices: tuple[Slice, ...]) -> Program:
        transaction = run.transaction

        def write() -> None:
            assert transaction is not None, f"{run.ident} did not begin"
            for report in self.protocols[run.coordinator].write(transaction, slices, run.tries):
                if run.transaction is transaction:
                    run.reports[report.slice] = report

        return self.spawn(f"{run.ident} write", partial(self.or_abort, run, transaction, write), run)

    def publish(self, run: Run) -> Program:
        transaction, reports = run.transaction, list(run.reports.values())

        def commit() -> None:
            assert transaction is not None, f"{run.ident} did not begin"
            self.protocols[run.coordinator].commit(transaction, reports)

        return self.spawn(f"{run.ident} commit", partial(self.or_abort, run, transaction, commit), run)

    def or_abort(self, run: Run, transaction: OpenTransaction | None, step: Callable[[], None]) -> None:
        """What an op does: an error that no other attempt can mend ends the transaction."""
        try:
            step()
        except Terminal as error:
            assert transaction is not None
            self.protocols[run.coordinator].abort(transaction, str(error))
            raise

    def waiting(self, step: str) -> list[Run]:
        """Runs whose next op may start, be tried again, or be started by mistake: an old run's too."""
        if len(self.programs) >= 6:
            return []
        if step == "begin":
            busy = {each.name for each in self.programs if not each.crashed}
            return [each for each in self.runs if each.transaction is None and f"{each.ident} begin" not in busy][-4:]
        begun = [each for each in self.runs if each.transaction is not None][-4:]
        if step == "write":
            return begun
        return [each for each in begun if len(each.reports) == len(each.plan.slices)]

    def step(self, program: Program) -> None:
        self.advance(program, 1)

    def advance(self, program: Program, points: int = LONGEST_PROGRAM, until: str = "") -> None:
        """It goes on over so many points, but not beyond one that begins with `until`."""
        while points and not program.over:
            if program.point == LOCK and self.world.lock not in (None, program):
                # What holds it runs in the engine and goes on by itself.
                assert self.world.lock is not None
                points -= self.world.lock.go_on()
            else:
                points -= program.go_on(points=points, until=until)
                if program.over and self.story is not None:
                    self.tell(f"  {program.name}: ends{f': {program.failure!r}' if program.failure else ''}")
            self.notice_ends()
            if until and program.point.startswith(until):
                break

    def notice_ends(self) -> None:
        for each in [each for each in self.programs if each.over]:
            self.programs.remove(each)
            if each.failure is not None and not isinstance(each.failure, (IngestError, InjectedFault)):
                raise each.failure
            self.orchestrate(each)

    def run_to_its_end(self, program: Program) -> BaseException | None:
        self.advance(program)
        assert program.over, f"{program.name} does not end; it stands at {program.point}"
        return program.failure


class NoFence(TableEpoch):
    """Lets everybody pass."""

    def require(self, epoch: Epoch, what: str) -> None:
        return


@lru_cache(None)
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


_source = lru_cache(None)(TopicPartition)


def plain(value: Any) -> Any:
    """What dataclasses.asdict returns, in a fraction of its time."""
    kind: Any = type(value)
    if hasattr(kind, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in _names(kind)}
    if isinstance(value, (tuple, list)):
        return kind(map(plain, value))
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value


@dataclass
class Ground:
    """What the simulations of one process share: the pipeline, and what they came to."""

    pipeline: Pipeline
    keyed: Pipeline
    ordered: Pipeline
    """Keyed, with an ordering column."""
    columns: TableSchema
    world: World | None = None
    reached: set[str] = field(default_factory=set)
    published: set[tuple[TransactionKind, bool]] = field(default_factory=set)
    """Kinds of transactions that were committed, and whether they copied rows of shared files."""
    upserted: set[TransactionKind] = field(default_factory=set)
    """Kinds that were committed to a keyed table."""
    lost: set[str] = field(default_factory=set)
    """What power cuts took, or damaged, and that it was repaired."""
    asked: set[str] = field(default_factory=set)
    """What became of runs that a sensor asked for."""
    accepts: Callable[[object], bool] = lambda _: True
    """Whether plans of the newest simulation may give offsets up."""
    given_up: bool = False
    """Whether a transaction was committed that gave offsets up."""
    recreated: bool = False
    """Whether one was committed that reads another topic of the same name."""
    left_out: bool = False
    """Whether one was planned without the partitions that had no leader."""


@contextmanager
def simulated() -> Iterator[Ground]:
    """While this lasts the protocol's modules read the clock of the newest Simulation's world, and stop in it."""
    with tempfile.TemporaryDirectory(prefix="hudi-ingest-simulation-") as folder:
        path = Path(folder, "orders.yaml")
        limits = {"max_records": MAX_RECORDS, "timeout_seconds": 300}
        written = document(transaction=limits, on_bad_record="dead_letter")
        path.write_text(yaml.safe_dump(written))
        pipeline = load_pipeline(path, {})
        written["table"] |= {"mode": "upsert", "key": ["id"], "buckets": keyed.BUCKETS}
        path.write_text(yaml.safe_dump(written))
        keyed_pipeline = load_pipeline(path, {})
        written["table"]["ordering"] = keyed.ORDERING
        path.write_text(yaml.safe_dump(written))
        ground = Ground(pipeline, keyed_pipeline, load_pipeline(path, {}), pipeline.table_schema)
    shape = checks.shape_of(ground.pipeline)

    def world() -> World:
        assert ground.world is not None
        return ground.world

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return world().clock()

    def read_letters(storage: object, path: str, columns: object, without: Sequence[Slice]) -> pa.Table:
        return pa.table({"offset": [offset for _, offset in letters_left(world(), path, without)]})

    def committed(timeline: Timeline, checkpoint_key: str, transaction_key: str) -> CommittedState:
        assert isinstance(timeline, TimelineInMemory)
        return timeline.committed(checkpoint_key, transaction_key)

    def empty_base_file(storage: object, instant: str, folder: str, group: str, *_: object) -> BaseFile:
        return write_empty_base_file(world(), instant, group)

    text = SimpleNamespace(loads=parsed, dumps=json.dumps)
    patched = [
        *((module, "reach", lambda point: world().reach(point)) for module in (protocol_module, rollback_module)),
        (letters_module, "reach", lambda point: world().reach(point)),
        (letters_module, "read_letters", read_letters),
        *((module, "datetime", Clock) for module in (protocol_module, checks, tables)),
        (write_reports, "kept_cluster", lambda source: nullcontext(BrokerInMemory(world()))),
        (s3, "client_of", lambda options: BucketClient(world())),
        (s3, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=world().new_name()))),
        # The same text and the same pipeline thousands of times.
        *((kind, "from_json", staticmethod(lru_cache(4096)(kind.from_json))) for kind in (Checkpoint, Accounting)),
        *((module, "json", text) for module in (accounting_module, epoch_module, letters_module)),
        *((module, "asdict", plain) for module in (checkpoint_module, plan_module, transaction_module, letters_module)),
        (Slice, "source", property(lambda slice_: _source(slice_.topic, slice_.partition))),
        *((module, "shape_of", lambda pipeline: shape) for module in (protocol_module, checks)),
        (table_module, "committed_state", committed),
        (commit_contents, "write_empty_base_file", empty_base_file),
        *services.patches(world, Clock),
        *sensor.patches(world, lambda loss: ground.accepts(loss)),
    ]
    with ExitStack() as patches:
        for target, name, stand_in in patched:
            patches.enter_context(mock.patch.object(target, name, stand_in))
        # All that is there stays, and a schedule leaves little that only the collector finds.
        patches.callback(gc.set_threshold, *gc.get_threshold())
        patches.callback(gc.unfreeze)
        gc.freeze()
        gc.set_threshold(50_000)
        yield ground
