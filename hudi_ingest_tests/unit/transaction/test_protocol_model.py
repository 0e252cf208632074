"""P1–P5, P7: the protocol's own code over a table in memory, with every order of steps, failures and deaths tried at random.

Each program (a begin, a write, a commit, an abort) stops between any two of its calls; a rule decides who goes on. A program
that was taken for dead may go on later, with its lock lost.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
import yaml
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from hudi_ingest.exceptions import IngestError, KafkaUnreachable, LeaderMissing, NothingToDo, RangeRefused, Terminal
from hudi_ingest.faults import POINTS, InjectedFault
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable, committed_state
from hudi_ingest.ledger import tables
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead
from hudi_ingest.model.offsets import Ranges, Slice, TopicPartition, intersection, ranges, union
from hudi_ingest.model.plan import ReplayPlan, RetriedFile, Retry, RetryPlan, TransactionKind, TransactionPlan
from hudi_ingest.model.report import SliceReport
from hudi_ingest.model.transaction import OpenTransaction, Progress, TransactionStep
from hudi_ingest.operations.requests.allowed_ranges import RangeContext, next_ranges, range_transaction, to_read
from hudi_ingest.operations.requests.asked_ranges import require_leaders
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction import checks
from hudi_ingest.transaction import protocol as protocol_module
from hudi_ingest.transaction import rollback as rollback_module
from hudi_ingest.transaction.dead_letters import log as letters_module
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog
from hudi_ingest.transaction.plan.planning import Situation, held_offsets, plan_next
from hudi_ingest.transaction.protocol import TransactionProtocol
from hudi_ingest_tests.support.pipeline_files import document
from hudi_ingest_tests.support.steps import Program, stop
from hudi_ingest_tests.support.table_in_memory import (
    BrokerInMemory,
    DurabilityInMemory,
    GroupsInMemory,
    HudiInMemory,
    Instant,
    LedgerInMemory,
    LossesInMemory,
    Row,
    StorageInMemory,
    TimelineInMemory,
    World,
    WriterInMemory,
    declared_schema,
    is_of,
    letters_left,
)

MAX_RECORDS = 6
OUTSIDE = [
    *("time 1", "time 200", "time 301", "wipe the ledger", "a partition is added", "the engine dies", "archive"),
    *("another writer begins", "another writer commits", "another writer cleans"),
    *("retention", "records are lost", "lost records come back", "the consumer group is deleted"),
    *("a leader is lost", "a leader is lost", "leaders come back"),
]
COORDINATORS = 2
LONGEST_PROGRAM = 3000
ACTIONS = [
    *(["go on"] * 4 + ["finish"] * 3 + ["all go on"] * 2 + ["tick"] * 3 + ["a newer one begins"] * 3 + ["fail"] * 2),
    *(
        "produce",
        "produce",
        "begin",
        "write",
        "commit",
        "commit",
        "abort",
        "take for dead",
        "die",
        "the run ends",
        "recover",
        *(["retry"] * 4),
        "backfill",
        "replay",
        "replay",
    ),
    *OUTSIDE,
]


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


class ProtocolModel(RuleBasedStateMachine):
    """Two coordinators with a ledger each, one table, one engine, one broker."""

    def __init__(self, ground: Ground, flaws: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.ground = ground
        self.flaws = flaws
        self.world = ground.world = World(ground.pipeline, flaws)
        for each in ground.ledgers:
            each.start_anew(self.world)
        self.runs: list[Run] = []
        self.programs: list[Program] = []
        self.run_of: dict[Program, Run] = {}
        self.others: list[Instant] = []
        self.held: dict[str, list[dict[TopicPartition, int]]] = {}
        """By transaction: the broker's first offsets at any time while it began."""
        self.told: list[TransactionStep] = []
        """What lineage heard."""
        self.published: set[str] = set()
        """Transactions that were completed at any time."""
        self.timeline = TimelineInMemory(self.world)
        self.log = DeadLetterLog(StorageInMemory(self.world))
        self.protocols = [
            TransactionProtocol(
                pipeline=ground.pipeline,
                resolve_schema=partial(declared_schema, ground.pipeline),
                table=PipelineTable(ground.pipeline, self.timeline),
                epoch=(NoFence if "no epoch" in flaws else TableEpoch)(StorageInMemory(self.world)),
                durability=DurabilityInMemory(self.world),
                ledger=ledger,
                instants=HudiInMemory(self.world),
                write_files=WriterInMemory(self.world),
                groups=GroupsInMemory(self.world),
                letters=DeadLetterLog(StorageInMemory(self.world)),
                find_losses=LossesInMemory(self.world),
                copy_letters=self.copy_letters,
                sync_catalog=lambda commits: None,
                tell_lineage=self.told.append,
            )
            for ledger in ground.ledgers
        ]

    def copy_letters(self, head: LettersHead | None) -> int:
        self.world.reach("letters_copied")
        stop("letters are copied", KafkaUnreachable)
        return head.waiting if head else 0

    @rule(action=st.sampled_from(ACTIONS), which=st.integers(0, 9), more=st.integers(0, 39))
    def act(self, action: str, which: int, more: int) -> None:
        """One rule for all, because hypothesis leaves whole rules out of an example, and these need one another."""
        coordinator, programs = more % COORDINATORS, bool(self.programs)
        if action == "produce":
            self.produce(which, ["row", "bad", "tombstone", "gap", "row"][: more % 5 + 1])
        elif action == "tick":
            self.tick(coordinator)
        elif action == "retry":
            self.retry(coordinator, which % 3 + 1, bool(more & 2))
        elif action in ("backfill", "replay"):
            self.ask_for_a_range(coordinator, TransactionKind(action), which, more)
        elif action == "a newer one begins":
            self.a_newer_one_begins(coordinator, bool(which & 1), which > 6, bool(more & 2))
        elif action == "recover":
            self.everything_recovers(bool(which & 1))
        elif action in OUTSIDE:
            self.the_world_turns(action, coordinator)
        elif action in ("begin", "write", "commit", "abort"):
            if self.waiting("write" if action == "abort" else action):
                steps: dict[str, Callable[[int], None]] = {
                    "begin": self.begin_again,
                    "write": partial(self.write, part=more % 5),
                    "commit": self.commit,
                    "abort": self.abort,
                }
                steps[action](which)
        elif action == "the run ends" and any(not each.finished for each in self.runs):
            self.the_run_ends(which)
        elif action == "fail" and any(each.errors for each in self.programs):
            self.fail(which, more)
        elif action == "go on" and programs:
            self.go_on(which, more + 1)
        elif action == "all go on" and programs:
            self.all_go_on(more + 1)
        elif action == "finish" and programs:
            self.finish(which)
        elif action == "take for dead" and programs:
            self.take_for_dead(which)
        elif action == "die" and programs:
            self.die(which)

    # What the outside world does.

    @initialize(partitions=st.integers(1, 2), records=st.integers(0, 5), history=st.integers(0, 7))
    def start(self, partitions: int, records: int, history: int = 0) -> None:
        for partition in range(partitions):
            source = TopicPartition("orders", partition)
            self.world.broker[source] = ["row"] * (history + records)
            self.world.hold_from({source: 0})
            self.world.began[source] = history

    def produce(self, number: int, kinds: list[str]) -> None:
        sources = sorted(self.world.broker)
        self.world.broker[sources[number % len(sources)]] += kinds

    def add_partition(self) -> None:
        source = TopicPartition("orders", len(self.world.broker))
        self.world.broker[source] = []
        self.world.hold_from({source: 0})

    def retention_takes_what_is_committed(self) -> None:
        checkpoint = self.checkpoint()
        self.world.hold_from(checkpoint.offsets if checkpoint else {})

    def records_are_lost(self, most: int) -> None:
        """Retention takes records that nobody has read yet; every plan gives them up."""
        checkpoint = self.checkpoint()
        for source, offset in checkpoint.offsets.items() if checkpoint else ():
            self.world.hold_from({source: min(offset + most, len(self.world.broker[source]))})

    def lost_records_come_back(self) -> None:
        """As after a look at a broker that was behind."""
        self.world.hold_from(dict.fromkeys(self.world.first, 0))

    def lose_a_leader(self, coordinator: int) -> None:
        """The last partition's; the others go on."""
        self.world.leaderless.add(max(self.world.broker))
        self.a_newer_one_begins(coordinator, dead=False, late=False, whole=True)

    def time_passes(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)

    def wipe_the_ledger(self, coordinator: int) -> None:
        self.ground.ledgers[coordinator].wipe()

    def delete_the_consumer_group(self) -> None:
        self.world.group = {}

    def end_the_engine(self) -> None:
        self.world.end_engine()

    def another_writer_begins(self, rewrites: bool) -> None:
        instant = self.world.new_instant()
        instant.state = "inflight"
        instant.rewrites = self.world.live()[0] if rewrites and self.world.live() and not self.others else ""
        self.world.heartbeats[instant.name] = self.world.now
        self.world.beating.add(instant.name)
        self.others.append(instant)

    def another_writer_commits(self) -> None:
        instant = self.others.pop(0)
        self.world.heartbeats.pop(instant.name, None)
        self.world.beating.discard(instant.name)
        if instant.name in self.world.active:
            instant.state, instant.completed_at = "completed", self.world.next_moment()
            instant.metadata = self.world.carried()
            if instant.rewrites:
                before = [path for path in self.world.live() if path != instant.rewrites]
                if len(before) == len(self.world.live()):
                    self.world.wrongs.append(f"P7: {instant.rewrites} was replaced while another writer changed it")
                path = f"{instant.rewrites}-{instant.name}"
                self.world.files[path] = self.world.files[instant.rewrites]
                instant.files, instant.replaced = (path,), (instant.rewrites,)

    def another_writer_cleans(self) -> None:
        self.spawn("another writer's cleaning", self.protocols[0].instants.roll_back_expired)

    def archive(self) -> None:
        pending = [each.name for each in self.world.active.values() if each.state != "completed"]
        completed = sorted(each.name for each in self.world.active.values() if each.state == "completed")
        for name in completed[:-3]:
            if name < min(pending, default="9"):
                self.world.archived[name] = self.world.active.pop(name)

    def the_world_turns(self, what: str, coordinator: int) -> None:
        if what.startswith("time "):
            self.time_passes(int(what.split()[1]))
        elif what == "wipe the ledger":
            self.wipe_the_ledger(coordinator)
        elif what == "a partition is added" and len(self.world.broker) < 4:
            self.add_partition()
        elif what == "another writer begins" and self.checkpoint() is not None and len(self.others) < 2:
            self.another_writer_begins(bool(coordinator))
        elif what == "another writer commits" and self.others and self.world.lock is None:
            self.another_writer_commits()
        elif what == "another writer cleans" and self.world.properties:
            self.another_writer_cleans()
        elif what == "archive":
            self.archive()
        elif what == "retention":
            self.retention_takes_what_is_committed()
        elif what == "records are lost":
            self.records_are_lost(coordinator + 1)
        elif what == "lost records come back":
            self.lost_records_come_back()
        elif what == "a leader is lost" and len(self.world.broker) > 1:
            self.lose_a_leader(coordinator)
        elif what == "leaders come back":
            self.world.leaderless.clear()
        elif what == "the consumer group is deleted":
            self.delete_the_consumer_group()
        elif what == "the engine dies":
            self.end_the_engine()

    # What the coordinators do.

    def tick(self, coordinator: int) -> None:
        plan = self.plan()
        if plan is not None and len(self.programs) < 6:
            self.world.reach("tick_planned")
            ident = f"run-{len(self.runs)}"
            run = Run(ident, coordinator, replace(plan, transaction_id=f"{plan.transaction_id[:-6]}{ident}"))
            self.runs.append(run)
            self.begin(run)

    def retry(self, coordinator: int, most: int, whole: bool) -> None:
        """Some of the dead letters are tried again; `whole`: to the end, if the others let it."""
        checkpoint = self.checkpoint()
        waiting = self.log.waiting(checkpoint.letters) if checkpoint else ()
        left = [(each, letters_left(self.world, each.file.path, each.without)) for each in waiting]
        taken = [(each, rows) for each, rows in left if rows][:most]
        if checkpoint is None or not taken or len(self.programs) >= 6:
            return
        ident = f"run-{len(self.runs)}"
        places = sorted(row for _, rows in taken for row in rows)
        slices = [
            Slice(source.topic, source.partition, min(offsets), max(offsets) + 1)
            for source, offsets in {s: [offset for at, offset in places if at == s] for s, _ in places}.items()
        ]
        plan = RetryPlan(
            self.world.pipeline.name,
            f"retry-{ident}",
            checkpoint.sequence + 1,
            tuple(slices),
            retry=Retry(tuple(RetriedFile(each.file.path, len(rows), each.without) for each, rows in taken)),
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
            left = to_read(known, kind, [asked], skip_covered=True)
        except (RangeRefused, LeaderMissing):
            return
        slices = next_ranges(left, MAX_RECORDS)
        if not slices:
            return
        plan = range_transaction(known, kind, slices, suffix="000000")
        if isinstance(plan, ReplayPlan):
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
        found = self.waiting("commit")
        self.publish(found[which % len(found)])

    def abort(self, which: int) -> None:
        run = self.waiting("write")[which % len(self.waiting("write"))]
        assert run.transaction is not None
        self.spawn(f"{run.ident} abort", partial(self.protocols[run.coordinator].abort, run.transaction, "asked for"))

    # Who goes on, who fails, who dies.

    def go_on(self, which: int, steps: int) -> None:
        program = self.programs[which % len(self.programs)]
        for _ in range(steps):
            self.step(program)

    def finish(self, which: int) -> None:
        self.run_to_its_end(self.programs[which % len(self.programs)])

    def fail(self, which: int, error: int) -> None:
        found = [each for each in self.programs if each.errors]
        program = found[which % len(found)]
        kind = program.errors[error % len(program.errors)]
        program.go_on(kind(f"injected at {program.point}"))
        self.notice_ends()

    def take_for_dead(self, which: int) -> None:
        """Its lock is free and its op may be tried again; it may go on all the same."""
        self.programs[which % len(self.programs)].crashed = True

    def die(self, which: int) -> None:
        program = self.programs.pop(which % len(self.programs))
        while self.world.lock is program:
            # A call that is in Hudi's lock runs in the engine, which has not died.
            program.go_on()
        program.crashed = True
        self.ground.dead.append(program)

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

    def everything_recovers(self, drain: bool) -> None:
        """P5: without a person, ticks alone bring the table to the broker's ends, and leave nothing open."""
        for run in self.runs:
            run.finished = True
        for program in list(self.programs):
            if drain:
                self.run_to_its_end(program)
            program.crashed = True
            while self.world.lock is program:
                program.go_on()
        while self.others:
            self.another_writer_commits()
        self.world.leaderless.clear()
        self.world.now += timedelta(seconds=1000)
        # A begin clears what is left over, so there must be one.
        self.produce(0, ["row"])
        last: BaseException | None = None
        for turn in range(60):
            plan = self.plan()
            if plan is None:
                break
            run = Run(f"run-{len(self.runs)}", turn % COORDINATORS, plan)
            run.plan = replace(plan, transaction_id=f"{plan.transaction_id[:-6]}{run.ident}")
            self.runs.append(run)
            self.begin(run)
            last = self.run_through(run) or last
            self.judge()
            run.finished = True
        else:
            raise AssertionError(f"P5: {plan} is not done after {turn} ticks; the last error was {last!r}")
        for number, kind in enumerate((TransactionKind.BACKFILL, TransactionKind.REPLAY, TransactionKind.REPLAY)):
            if not self.programs:
                self.ask_for_a_range(0, kind, 2 * number + 1, 5)
                self.judge()
        left = [each for each in self.world.active.values() if each.state != "completed"]
        assert not left, f"P5: everything is ingested, and open instants are left: {left}"
        assert all(set(each.files) <= set(self.world.files) for each in self.world.completed())

    def teardown(self) -> None:
        try:
            if self.world.broker:
                self.everything_recovers(drain=False)
                self.judge()
                # Who was paused all the time wakes up after all.
                for program in list(self.programs):
                    self.run_to_its_end(program)
                    self.judge()
                self.everything_recovers(drain=True)
                self.judge()
                self.retry(0, len(self.world.letters), whole=True)
                self.judge()
                assert not any(offset % 2 == 0 for offset in self.letters_that_wait()), "P5: a retry did not take all"
        finally:
            for program in [*self.programs, *self.ground.dead]:
                program.end()
            self.ground.dead.clear()
            self.ground.reached |= self.world.reached

    # How it is judged.

    @invariant()
    def judge(self) -> None:
        """P1–P4 after each step."""
        world = self.world
        assert not world.wrongs, world.wrongs
        ends: dict[TopicPartition, int] = {}
        covered: dict[TopicPartition, Ranges] = {}
        sequence = 0
        letters: dict[str, list[Row]] = {}
        waiting: list[Row] = []
        retried: set[Row] = set()
        for instant in world.completed():
            text = instant.metadata.get(world.pipeline.transaction_key)
            if text is None:
                continue
            published = json.loads(text)
            self.published.add(published["transaction"])
            assert instant.name not in world.rolled_back, f"P4: {instant.name} was rolled back and is completed"
            assert published["sequence"] == sequence + 1, f"P2: {published} follows number {sequence}"
            sequence += 1
            slices = [
                Slice(*(each[key] for key in ("topic", "partition", "start", "end"))) for each in published["slices"]
            ]
            plan = world.plans[published["transaction"]]
            assert sorted(plan.slices) == slices, f"P3: {instant.name} published {slices} of {plan.slices}"
            expected, bad = [], []
            retry = plan.retry if isinstance(plan, RetryPlan) else None
            if retry is not None:
                taken = sorted(row for file in retry.files for row in letters_left(world, file.path, file.without))
                expected = [row for row in taken if row[1] % 2 == 0]
                bad = [row for row in taken if row[1] % 2]
                for row in taken:
                    waiting.remove(row)
                retried |= {*expected}
            if plan.kind is TransactionKind.REPLAY:
                waiting = [row for row in waiting if not is_of(row, slices)]
                retried = {row for row in retried if not is_of(row, slices)}
            for each in slices if retry is None else ():
                before = covered.get(each.source, ())
                here = ranges([(each.start, each.end)])
                if plan.kind is TransactionKind.INGEST:
                    begin = ends.get(each.source, world.began.get(each.source, 0))
                    begin = self.given_up_to(plan).get(each.source, begin)
                    assert each.start == begin, f"P2: {each} does not follow {begin}"
                    ends[each.source] = each.end
                elif plan.kind is TransactionKind.BACKFILL:
                    assert not intersection(before, here), f"P2: {each} is backfilled, and {before} was there"
                else:
                    assert intersection(before, here) == here, f"P1: {each} is replayed, and {before} was there"
                covered[each.source] = union(before, here)
                log = world.broker[each.source]
                expected += [(each.source, offset) for offset in range(each.start, each.end) if log[offset] == "row"]
                bad += [(each.source, offset) for offset in range(each.start, each.end) if log[offset] == "bad"]
            letters[instant.name] = bad
            waiting += bad
            missing = [path for path in instant.files if path not in world.files]
            assert not missing, f"P1: files of completed instant {instant.name} are gone: {missing}"
            found = sorted(row for path in instant.files for row in world.files[path])
            kept = sum(each.kept for each in plan.replaces)
            self.ground.published.add((plan.kind, kept > 0))
            assert len(found) == len(expected) + kept, f"P1, P2, P3: {instant.name} has {found}, kept are {kept}"
            assert kept or found == expected, f"P1, P2, P3: {instant.name} has {found}, its ranges are {expected}"
        rows = sorted(row for path in world.live() for row in world.files[path])
        wanted = [
            (source, offset)
            for source in sorted(covered)
            for start, end in covered[source]
            for offset in range(start, end)
            if world.broker[source][offset] == "row" or (source, offset) in retried
        ]
        assert rows == wanted, f"P1, P2: the table has {rows}, covered are the rows {wanted}"
        checkpoint = self.checkpoint()
        seen = (checkpoint.sequence, dict(checkpoint.offsets)) if checkpoint else (0, {})
        assert seen == (sequence, ends), f"P7: the table says {seen}, committed is {(sequence, ends)}"
        assert (checkpoint.covered if checkpoint else {}) == covered, f"the table says it covers {checkpoint}"

        self.judge_letters(letters, sorted(waiting), checkpoint)
        self.judge_lineage()

    def judge_lineage(self) -> None:
        began = {step.transaction_id for step in self.told if step.progress is Progress.START}
        complete = {step.transaction_id for step in self.told if step.progress is Progress.COMPLETE}
        assert complete <= self.published, f"told as complete, but never published: {complete - self.published}"
        assert began <= self.world.plans.keys(), "told of a transaction that never began"

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

    def letters_that_wait(self) -> list[int]:
        """Their offsets."""
        checkpoint = self.checkpoint()
        waiting = self.log.waiting(checkpoint.letters) if checkpoint else ()
        return [offset for each in waiting for _, offset in letters_left(self.world, each.file.path, each.without)]

    def checkpoint(self) -> Checkpoint | None:
        return committed_state(
            self.timeline, self.ground.pipeline.checkpoint_key, self.ground.pipeline.transaction_key
        ).checkpoint

    # How programs are made.

    def plan(self) -> TransactionPlan | None:
        committed = committed_state(
            self.timeline, self.ground.pipeline.checkpoint_key, self.ground.pipeline.transaction_key
        )
        if "group is the truth" in self.flaws and committed.checkpoint is not None:
            committed = replace(committed, checkpoint=replace(committed.checkpoint, offsets=self.world.group))
        try:
            topic_ids, marks = held_offsets(BrokerInMemory(self.world), committed.checkpoint)
            plan = plan_next(
                self.ground.pipeline,
                Situation(committed, marks, self.world.began, topic_ids),
                now=self.world.now,
                at_once=True,
                accepts=lambda loss: True,
            )
        except (NothingToDo, LeaderMissing):
            return None
        self.ground.left_out |= bool(plan.leaderless)
        return plan

    def spawn(self, name: str, what: Callable[[], None], run: Run | None = None) -> Program:
        program = Program(name, what)
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
            for report in self.protocols[run.coordinator].write(transaction, slices):
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
        if program.over:
            return
        if program.point == "waits for Hudi's lock" and self.world.lock not in (None, program):
            # What holds it runs in the engine and goes on by itself.
            assert self.world.lock is not None
            self.world.lock.go_on()
        else:
            program.go_on()
        self.notice_ends()

    def notice_ends(self) -> None:
        for each in [each for each in self.programs if each.over]:
            self.programs.remove(each)
            if each.failure is not None and not isinstance(each.failure, (IngestError, InjectedFault)):
                raise each.failure
            self.orchestrate(each)

    def run_to_its_end(self, program: Program) -> BaseException | None:
        for _ in range(LONGEST_PROGRAM):
            self.step(program)
            if program.over:
                break
        else:
            raise AssertionError(f"{program.name} does not end; it stands at {program.point}")
        return program.failure


class NoFence(TableEpoch):
    """Lets everybody pass."""

    def require(self, epoch: Epoch, what: str) -> None:
        return


@dataclass
class Ground:
    """What the examples of one test share, because it is slow to make."""

    pipeline: Pipeline
    ledgers: list[LedgerInMemory]
    dead: list[Program] = field(default_factory=list)
    world: World | None = None
    reached: set[str] = field(default_factory=set)
    published: set[tuple[TransactionKind, bool]] = field(default_factory=set)
    """Kinds of transactions that were committed, and whether they copied rows of shared files."""
    given_up: bool = False
    """Whether a transaction was committed that gave offsets up."""
    left_out: bool = False
    """Whether one was planned without the partitions that had no leader."""


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    path = tmp_path / "orders.yaml"
    limits = {"max_records": MAX_RECORDS, "timeout_seconds": 300}
    path.write_text(yaml.safe_dump(document(transaction=limits, on_bad_record="dead_letter")))
    found = Ground(load_pipeline(path, {}), [LedgerInMemory() for _ in range(COORDINATORS)])

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            assert found.world is not None
            return found.world.now

    def reach(point: str) -> None:
        assert found.world is not None
        found.world.reach(point)

    def read_letters(storage: object, path: str, columns: object, without: Sequence[Slice]) -> pa.Table:
        assert found.world is not None
        return pa.table({"offset": [offset for _, offset in letters_left(found.world, path, without)]})

    with (
        mock.patch.object(protocol_module, "reach", reach),
        mock.patch.object(rollback_module, "reach", reach),
        mock.patch.object(letters_module, "reach", reach),
        mock.patch.object(letters_module, "read_letters", read_letters),
        mock.patch.object(protocol_module, "datetime", Clock),
        mock.patch.object(checks, "datetime", Clock),
        mock.patch.object(tables, "datetime", Clock),
    ):
        yield found
    for ledger in found.ledgers:
        ledger.dispose()


def settings_of(examples: int, **changes: Any) -> settings:
    """The same orders in each run of the suite; with HUDI_INGEST_MODEL_EXAMPLES as many new ones as that says."""
    asked = os.environ.get("HUDI_INGEST_MODEL_EXAMPLES")
    return settings(
        max_examples=int(asked or examples),
        stateful_step_count=40,
        deadline=None,
        print_blob=True,
        derandomize=asked is None,
        database=None,
        report_multiple_bugs=False,
        # Shrinking repeats an example hundreds of times; the failing order is printed as it was found.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        **changes,
    )


def run_model(model: Callable[[], ProtocolModel], chosen: settings) -> None:
    # Any callable that makes a machine will do, whatever the annotation says.
    run_state_machine_as_test(model, settings=chosen)  # type: ignore[arg-type]


def test_p1_p2_p3_p4_p5_p7_no_order_of_steps_breaks_a_promise(ground: Ground) -> None:
    run_model(partial(ProtocolModel, ground), settings_of(60))
    assert not POINTS.keys() - ground.reached, "the model never stands at these points of the product"
    kinds = {(TransactionKind.INGEST, False), (TransactionKind.BACKFILL, False)}
    kinds |= {(TransactionKind.REPLAY, False), (TransactionKind.REPLAY, True), (TransactionKind.RETRY, False)}
    assert ground.published == kinds, "the model never commits some kind of transaction"
    assert ground.given_up, "the model never gives up what the broker lost"
    assert ground.left_out, "the model never plans without a partition that has no leader"


def test_random_orders_find_a_broken_protocol(ground: Ground) -> None:
    model = partial(ProtocolModel, ground, frozenset({"group is the truth"}))
    with pytest.raises(AssertionError, match="P5: "):
        run_model(model, settings_of(200, verbosity=Verbosity.quiet))


def test_a_lease_that_never_ends_is_found(ground: Ground) -> None:
    model = ProtocolModel(ground, frozenset({"lease never expires"}))
    model.start(1, 3)
    model.tick(0)
    model.run_to_its_end(model.programs[0])
    model.wipe_the_ledger(0)
    with pytest.raises(AssertionError, match=r"P5: .* is not done after .*TransactionInFlight"):
        model.everything_recovers(drain=False)
    for program in model.programs:
        program.end()


ORDERS = {
    # flaws → where the older transaction's commit stands while the next one begins, and what must be found
    frozenset({"no epoch", "no open check"}): ("commit_leased", "P4: .* was rolled back, and then written"),
    frozenset({"rolls completed back"}): ("guard passed", "P4: .* was rolled back and is completed"),
    frozenset({"no barrier"}): ("guard passed", "P4: .* was rolled back and is completed"),
    frozenset({"no checkpoint check"}): ("", "P2: .* follows number 1"),
}


@pytest.mark.parametrize("flaws", ORDERS, ids=lambda flaws: ", ".join(sorted(flaws)))
def test_a_broken_protocol_is_found(ground: Ground, flaws: frozenset[str]) -> None:
    """The same order of steps is right with the protocol as it is, and is found wrong with the flaw."""
    _overtaken(ProtocolModel(ground), ORDERS[flaws][0])
    broken = ProtocolModel(ground, flaws)
    with contextlib.ExitStack() as unchecked, pytest.raises(AssertionError, match=ORDERS[flaws][1]):
        if "no checkpoint check" in flaws:
            for check in ("require_current", "require_sums"):
                unchecked.enter_context(mock.patch.object(protocol_module, check, lambda *anything: None))
        _overtaken(broken, ORDERS[flaws][0])
    for program in [*broken.programs, *ground.dead]:
        program.end()


def _overtaken(model: ProtocolModel, point: str) -> None:
    """A transaction whose commit is taken for dead at `point` while another one begins; both then go on. Without a point
    the other one was planned before the first commits, and begins after it."""
    model.start(1, 3)
    model.tick(0)
    model.tick(0)
    first, second = model.programs
    model.run_to_its_end(first)
    model.run_to_its_end(model.programs[-1])
    commit = model.programs[-1]
    while commit.point != point and not commit.over:
        model.step(commit)
    commit.crashed = model.runs[0].finished = True
    while model.programs:
        model.run_to_its_end(second if second in model.programs else model.programs[0])
        model.judge()
    model.teardown()


@pytest.mark.parametrize("asked", [True, False], ids=["as it is", "the broker is not asked again"])
def test_p1_p6_records_that_came_back_while_the_plan_waited_are_not_given_up(ground: Ground, asked: bool) -> None:
    model = ProtocolModel(ground)
    model.start(1, 3)
    model.tick(0)
    while model.programs:
        model.run_to_its_end(model.programs[0])
    model.produce(0, ["row"] * 3)
    model.records_are_lost(2)
    model.tick(0)
    assert model.runs[-1].plan.resets
    model.lost_records_come_back()
    with contextlib.ExitStack() as expected:
        if not asked:
            expected.enter_context(mock.patch.object(protocol_module, "require_lost", lambda *anything: None))
            expected.enter_context(pytest.raises(AssertionError, match=r"P1: .* is given up"))
        while model.programs:
            model.run_to_its_end(model.programs[0])
        model.judge()
        model.teardown()
    for program in [*model.programs, *ground.dead]:
        program.end()


@pytest.mark.parametrize("flaws", [frozenset(), frozenset({"no live check"})], ids=["as it is", "no live check"])
def test_p7_a_replay_of_a_file_that_another_writer_changes_meanwhile_is_refused(
    ground: Ground, flaws: frozenset[str]
) -> None:
    """The same order of steps is right with the guard as it is, and is found wrong without its look at the replaced files."""
    model = ProtocolModel(ground, flaws)
    model.start(1, 3)
    model.tick(0)
    while model.programs:
        model.run_to_its_end(model.programs[0])
    model.another_writer_begins(rewrites=True)
    model.ask_for_a_range(0, TransactionKind.REPLAY, 0, 9)
    replayed = model.runs[-1]
    while model.programs and not (replayed.transaction and replayed.reports):
        model.run_to_its_end(model.programs[0])
    with contextlib.ExitStack() as expected:
        if flaws:
            expected.enter_context(
                pytest.raises(AssertionError, match=r"P1, P2: the table has|P7: .* was replaced while")
            )
        model.another_writer_commits()
        while model.programs:
            model.run_to_its_end(model.programs[0])
        model.judge()
        assert replayed.finished
        assert (TransactionKind.REPLAY, False) not in ground.published
        model.teardown()
    for program in [*model.programs, *ground.dead]:
        program.end()
