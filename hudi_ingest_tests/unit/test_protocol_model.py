"""P1–P5, P7: the protocol's own code over a table in memory, with every order of steps, failures and deaths tried at random.

Each program (a begin, a write, a commit, an abort) stops between any two of its calls; a rule decides who goes on. A program
that was taken for dead may go on later, with its lock lost.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from hudi_ingest import transaction as protocol_module
from hudi_ingest.config import Pipeline
from hudi_ingest.coordinator import Situation, plan_next
from hudi_ingest.exceptions import IngestError, Terminal
from hudi_ingest.faults import POINTS, InjectedFault
from hudi_ingest.hudi.epoch import Epoch, TableEpoch
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model import Checkpoint, OpenTransaction, Slice, SliceReport, TopicPartition, TransactionPlan
from hudi_ingest.pipeline_file import load_pipeline
from hudi_ingest.transaction import TransactionProtocol
from hudi_ingest_tests.support.pipeline_files import document
from hudi_ingest_tests.support.steps import Program
from hudi_ingest_tests.support.table_in_memory import (
    GroupsInMemory,
    HudiInMemory,
    Instant,
    LedgerInMemory,
    StorageInMemory,
    TimelineInMemory,
    World,
    WriterInMemory,
    declared_schema,
    watermarks,
)

MAX_RECORDS = 6
OUTSIDE = [
    *("time 1", "time 200", "time 301", "wipe the ledger", "a partition is added", "the engine dies", "archive"),
    *("another writer begins", "another writer commits", "another writer cleans"),
    *("retention", "the consumer group is deleted"),
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
        self.timeline = TimelineInMemory(self.world)
        self.protocols = [
            TransactionProtocol(
                pipeline=ground.pipeline,
                resolve_schema=partial(declared_schema, ground.pipeline),
                timeline=self.timeline,
                epoch=(NoFence if "no epoch" in flaws else TableEpoch)(StorageInMemory(self.world)),
                ledger=ledger,
                instants=HudiInMemory(self.world),
                write_files=WriterInMemory(self.world),
                groups=GroupsInMemory(self.world),
            )
            for ledger in ground.ledgers
        ]

    @rule(action=st.sampled_from(ACTIONS), which=st.integers(0, 9), more=st.integers(0, 39))
    def act(self, action: str, which: int, more: int) -> None:
        """One rule for all, because hypothesis leaves whole rules out of an example, and these need one another."""
        coordinator, programs = more % COORDINATORS, bool(self.programs)
        if action == "produce":
            self.produce(which, ["row", "tombstone", "gap", "row"][: more % 4 + 1])
        elif action == "tick":
            self.tick(coordinator)
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

    @initialize(partitions=st.integers(1, 2), records=st.integers(0, 5))
    def start(self, partitions: int, records: int) -> None:
        for partition in range(partitions):
            self.world.broker[TopicPartition("orders", partition)] = ["row"] * records
            self.world.first[TopicPartition("orders", partition)] = 0

    def produce(self, number: int, kinds: list[str]) -> None:
        sources = sorted(self.world.broker)
        self.world.broker[sources[number % len(sources)]] += kinds

    def add_partition(self) -> None:
        source = TopicPartition("orders", len(self.world.broker))
        self.world.broker[source] = []
        self.world.first[source] = 0

    def retention_takes_what_is_committed(self) -> None:
        checkpoint = self.checkpoint()
        for source, offset in checkpoint.offsets.items() if checkpoint else ():
            self.world.first[source] = offset

    def time_passes(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)

    def wipe_the_ledger(self, coordinator: int) -> None:
        self.ground.ledgers[coordinator].wipe()

    def delete_the_consumer_group(self) -> None:
        self.world.group = {}

    def end_the_engine(self) -> None:
        self.world.end_engine()

    def another_writer_begins(self) -> None:
        instant = self.world.new_instant()
        instant.state = "inflight"
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
            self.another_writer_begins()
        elif what == "another writer commits" and self.others and self.world.lock is None:
            self.another_writer_commits()
        elif what == "another writer cleans" and self.world.properties:
            self.another_writer_cleans()
        elif what == "archive":
            self.archive()
        elif what == "retention":
            self.retention_takes_what_is_committed()
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
            while mine := [each for each in self.programs if self.run_of.get(each) is run]:
                last = self.run_to_its_end(mine[0]) or last
            self.judge()
            run.finished = True
        else:
            raise AssertionError(f"P5: {plan} is not done after {turn} ticks; the last error was {last!r}")
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
        sequence = 0
        for instant in world.completed():
            text = instant.metadata.get(world.pipeline.transaction_key)
            if text is None:
                continue
            published = json.loads(text)
            assert instant.name not in world.rolled_back, f"P4: {instant.name} was rolled back and is completed"
            assert published["sequence"] == sequence + 1, f"P2: {published} follows number {sequence}"
            sequence += 1
            slices = [
                Slice(*(each[key] for key in ("topic", "partition", "start", "end"))) for each in published["slices"]
            ]
            planned = world.plans[published["transaction"]].slices
            assert sorted(planned) == slices, f"P3: {instant.name} published {slices} of {planned}"
            expected = []
            for each in slices:
                assert each.start == ends.get(each.source, 0), f"P2: {each} does not follow {ends.get(each.source, 0)}"
                ends[each.source] = each.end
                log = world.broker[each.source]
                expected += [(each.source, offset) for offset in range(each.start, each.end) if log[offset] == "row"]
            missing = [path for path in instant.files if path not in world.files]
            assert not missing, f"P1: files of completed instant {instant.name} are gone: {missing}"
            found = sorted(row for path in instant.files for row in world.files[path])
            assert found == expected, f"P1, P2, P3: {instant.name} has {found}, its ranges are {expected}"
        checkpoint = self.checkpoint()
        seen = (checkpoint.sequence, dict(checkpoint.offsets)) if checkpoint else (0, {})
        assert seen == (sequence, ends), f"P7: the table says {seen}, committed is {(sequence, ends)}"

    def checkpoint(self) -> Checkpoint | None:
        return self.timeline.committed(
            self.ground.pipeline.checkpoint_key, self.ground.pipeline.transaction_key
        ).checkpoint

    # How programs are made.

    def plan(self) -> TransactionPlan | None:
        committed = self.timeline.committed(self.ground.pipeline.checkpoint_key, self.ground.pipeline.transaction_key)
        if "group is the truth" in self.flaws and committed.checkpoint is not None:
            committed = replace(committed, checkpoint=replace(committed.checkpoint, offsets=self.world.group))
        situation = Situation(committed, watermarks(self.world), {}, {})
        found = plan_next(self.ground.pipeline, situation, now=self.world.now, at_once=True)
        return found if isinstance(found, TransactionPlan) else None

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
            opened = self.protocols[run.coordinator].begin(run.plan, Owner.dagster_run(run.ident), run_is_finished)
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


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(document(transaction={"max_records": MAX_RECORDS, "timeout_seconds": 300})))
    found = Ground(load_pipeline(path, {}), [LedgerInMemory() for _ in range(COORDINATORS)])

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            assert found.world is not None
            return found.world.now

    def reach(point: str) -> None:
        assert found.world is not None
        found.world.reach(point)

    with mock.patch.object(protocol_module, "reach", reach), mock.patch.object(protocol_module, "datetime", Clock):
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
