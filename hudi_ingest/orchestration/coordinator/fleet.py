"""The pipelines of a code location in the ticks of their sensor: which of them are looked at, in which order, and the tick's answer.

Each look is independent: one that fails or hangs neither delays nor hides another.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from operator import itemgetter

from dagster import DagsterInstance, RunRequest

from hudi_ingest.exceptions import IngestError, LedgerUnreachable
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.requests import TICK_NOTED_SECONDS, Wishes
from hudi_ingest.operations.looks import AT_ONCE, Looks
from hudi_ingest.orchestration.coordinator.look import PASSES, Look
from hudi_ingest.orchestration.coordinator.memory import Memory, PipelineMemory
from hudi_ingest.orchestration.coordinator.quiet_ticks import moved, next_tick, quiet_reasons
from hudi_ingest.orchestration.coordinator.topics import Found
from hudi_ingest.orchestration.embedded.next_tick import NextTick
from hudi_ingest.orchestration.reports.checks import BLIND_SECONDS
from hudi_ingest.orchestration.switch import Switches, how_to_resume
from hudi_ingest.pipeline.pipeline import COORDINATOR, Pipeline

_LOG = logging.getLogger(__name__)
DEADLINE_SECONDS = 20.0
"""Dagster gives a tick 60 s, and does not stop one that takes longer."""
_LEAST_SECONDS = 2.0
_BESIDE_SECONDS = 0.2
"""For which a tick waits for a cluster that lists its topics; a later tick takes an answer that comes later."""
MOST_REQUESTS = 40
"""So many runs one tick requests at most; the other pipelines have their turn in the next ones."""
_FIRST_FOR_ONE = 3
_SHOWN = 10
OVERLAPS = "the tick before this one is still looking, so this one leaves the pipelines to it"
FAILING, LATE, QUEUED, OFF, WAITING = "failing", "not answering", "whose turn comes next", "off", "waiting"
LookAt = Callable[[PipelineMemory, DagsterInstance, datetime], Look]
Report = Callable[[Look, PipelineMemory, DagsterInstance], None]
Beside = Callable[[DagsterInstance, float], Sequence[Found]]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of a tick: runs to request, errors by pipeline, and in words why the others begin none."""

    requests: tuple[RunRequest, ...] = ()
    errors: Mapping[str, BaseException] = field(default_factory=dict)
    text: str = ""
    found: Sequence[Found] = ()
    """The topics of templates, where they have changed."""


@dataclass(slots=True)
class _Answers:
    """The answers of one tick as they come. `said`: by pipeline, its state and why."""

    said: dict[str, tuple[str, str]]
    requests: list[RunRequest] = field(default_factory=list)
    errors: dict[str, BaseException] = field(default_factory=dict)

    def fail(self, name: str, error: BaseException) -> None:
        self.errors[name] = error
        self.said[name] = FAILING, f"{type(error).__name__}: {error}"


class Fleet:
    """`look` decides for one pipeline, `report` reports a look to Dagster; `beside` is the rest of a tick: it waits at most so many seconds,
    and returns the topics that it found. The memory is lost with the process: then each pipeline gets a full look, in the order of the
    files."""

    def __init__(
        self, pipelines: Sequence[Pipeline], look: LookAt, report: Report, beside: Beside = lambda instance, seconds: ()
    ) -> None:
        self.pipelines = tuple(pipelines)
        self.memory = Memory()
        self._look = look
        self._report = report
        self._beside = beside
        self._lock = threading.Lock()
        self._looks = Looks[Look](COORDINATOR)
        self._reports = Looks[None](f"{COORDINATOR}_reports")
        self._unreported: dict[str, Look] = {}
        """The newest look at each that is not reported yet, those first that have waited longest."""
        self._waiting: dict[str, float] = {}
        """Since when each has waited for its turn, those first that have waited longest."""
        self._said: dict[str, tuple[str, str]] = {}
        """By pipeline, its state after the last tick, and why."""
        self._switches: Switches | None = None
        self._opened: tuple[str, Ledger] | None = None
        self._noted_at = 0.0

    def evaluate(
        self, instance: DagsterInstance, now: datetime, require_valid: Callable[[Pipeline, RunRequest], None]
    ) -> Evaluation:
        """Look at the pipelines that are due, and then report the looks. `require_valid` raises if Dagster would refuse the request,
        and with it those of other pipelines. Raises a pipeline's error if all pipelines that are on fail."""
        if not self._lock.acquire(blocking=False):
            return Evaluation(text=OVERLAPS)
        try:
            # A new topic must be found although all pipelines fail.
            found = self._beside(instance, _BESIDE_SECONDS)
            return replace(self._evaluate(instance, now, require_valid), found=found)
        finally:
            self._lock.release()

    def next_tick(self) -> NextTick:
        """Return when the pipelines need a tick next."""
        return next_tick(self.memory.of_each(self.pipelines))

    def _evaluate(
        self, instance: DagsterInstance, now: datetime, require_valid: Callable[[Pipeline, RunRequest], None]
    ) -> Evaluation:
        deadline = time.monotonic() + DEADLINE_SECONDS
        # Read at most once in a tick.
        wishes = cache(lambda: self._ledger().requests.wishes())
        unknown = self._read_switches(wishes)
        switches = self._switches or Switches()
        on = {each.name: each for each in self.pipelines if switches.own_is_on(each)}
        quiet = quiet_reasons(self.memory.of_each([*on.values()]), instance, wishes)
        self._note_quiet(quiet, now)
        looks = self._taken(on, [name for name in on if name not in quiet], instance, now, deadline)

        answers = _Answers(self._without_a_look(on, quiet, now, unknown))
        for name in [each for each in looks if each in on and looks[each].done()]:
            self._answer(on[name], looks[name], now, answers, require_valid, unknown)
        self._note_late(on, now, answers)
        self._report_looks(on, instance, deadline, answers)
        before, self._said = self._said, answers.said
        errors = answers.errors
        if errors and all(answers.said[name][0] == FAILING for name in on):
            raise next(iter(errors.values()))
        return Evaluation(tuple(answers.requests), errors, text_of(answers.said, before))

    def _taken(
        self,
        on: Mapping[str, Pipeline],
        due: Collection[str],
        instance: DagsterInstance,
        now: datetime,
        deadline: float,
    ) -> Mapping[str, Future[Look]]:
        """Look at those whose turn it is, until the deadline, and return the looks that have begun."""
        self._waiting = queue(self._waiting, due, time.monotonic())
        looks = self._looks.take(
            [on[name] for name in self._turns(on)],
            lambda pipeline: self._look(self.memory.of(pipeline), instance, now),
            # A ledger or broker that is silent has used it up; the looks that begin all the same say so in a later tick.
            max(_LEAST_SECONDS, deadline - time.monotonic()),
            most=MOST_REQUESTS,
            counts=lambda look: isinstance(look.answer, RunRequest),
        )
        self._waiting = {name: since for name, since in self._waiting.items() if name not in looks}
        return looks

    def _without_a_look(
        self, on: Mapping[str, Pipeline], quiet: Mapping[str, str], now: datetime, unknown: str
    ) -> dict[str, tuple[str, str]]:
        """Say of those that had no look why, and leave those that were turned off to be reported. `unknown`: see `_read_switches`."""
        off = [each for each in self.pipelines if each.name not in on]
        for each in off:
            if not unknown and self._said.get(each.name, ("",))[0] != OFF:
                self._leave(Look(each, now, None, how_to_resume(each), on=False))
        said = {each.name: (WAITING, unknown) if unknown else (OFF, "it is off") for each in off}
        said |= {name: (WAITING, reason) for name, reason in quiet.items()}
        failed = {name: self._said[name] for name in self._waiting if self._said.get(name, ("",))[0] == FAILING}
        return said | {name: failed.get(name, (QUEUED, "it waits for its turn")) for name in self._waiting}

    def _answer(
        self,
        pipeline: Pipeline,
        ended: Future[Look],
        now: datetime,
        answers: _Answers,
        require_valid: Callable[[Pipeline, RunRequest], None],
        unknown: str,
    ) -> None:
        """Take the answer of a look that has ended, and leave it to be reported. `unknown`: see `_read_switches`."""
        name, error = pipeline.name, ended.exception()
        look = Look(pipeline, now, error) if error is not None else ended.result()
        answer = look.answer
        if error is not None:
            answers.fail(name, error)
        elif isinstance(answer, str):
            answers.said[name] = WAITING, answer
        elif isinstance(answer, IngestError):
            answers.fail(name, answer)
        elif unknown:
            answers.said[name] = WAITING, unknown
        else:
            try:
                require_valid(pipeline, answer)
                answers.requests.append(answer)
                answers.said[name] = WAITING, f"run {answer.run_key} is requested"
            except Exception as invalid:  # noqa: BLE001 - Dagster has many ways to refuse a request
                answers.fail(name, invalid)
                look = replace(look, observed=invalid)
        self._leave(look)

    def _leave(self, look: Look) -> None:
        """Leave a look to be reported, with the repairs of one before it that is not."""
        before = self._unreported.get(look.pipeline.name)
        self._unreported[look.pipeline.name] = (
            replace(look, repairs=[*before.repairs, *look.repairs]) if before else look
        )

    def _note_late(self, on: Mapping[str, Pipeline], now: datetime, answers: _Answers) -> None:
        late = {name: seconds for name, seconds in self._looks.late().items() if name in on}
        for name, seconds in late.items():
            text = late_text(seconds, len(late) - 1, os.getloadavg()[0], os.cpu_count() or 1)
            answers.said[name] = LATE, text
            if seconds >= BLIND_SECONDS:
                self._leave(Look(on[name], now, TimeoutError(text)))

    def _report_looks(
        self, on: Mapping[str, Pipeline], instance: DagsterInstance, deadline: float, answers: _Answers
    ) -> None:
        """Report looks within the rest of the tick's time, a moment if runs wait to be requested; the others come first in the next tick."""
        # Nothing more is reported of one that was turned off but that.
        looks = {name: look for name, look in self._unreported.items() if look.on == (name in on)}
        begun = set[str]()

        def report_one(pipeline: Pipeline) -> None:
            begun.add(pipeline.name)
            self._report(looks[pipeline.name], self.memory.of(pipeline), instance)

        left = _LEAST_SECONDS if answers.requests else max(_LEAST_SECONDS, deadline - time.monotonic())
        reports = self._reports.take([look.pipeline for look in looks.values()], report_one, left)
        self._unreported = {name: look for name, look in looks.items() if name not in begun}
        for name, report in reports.items():
            if name in on and report.done() and (error := report.exception()) is not None:
                if isinstance(error, PASSES):
                    state, text = answers.said.get(name, (WAITING, ""))
                    answers.said[name] = state, f"{text}; its checks could not be reported: {error}"
                else:
                    answers.fail(name, error)

    def _turns(self, on: Mapping[str, Pipeline]) -> Collection[str]:
        """Return whose turns the waiting ones are, in order. First of all only those that no process has looked at: when a topic appears,
        the code is loaded again, and its pipeline's run must not wait until each of hundreds has had the full look that comes first. Then
        those whose topics have new records, before those of which a look would find nothing."""
        if len(self._waiting) == 1:
            return self._waiting
        if not self._said:
            try:
                known = self._ledger().requests.ticked()
                if new := [name for name in self._waiting if name not in known]:
                    return new
            except LedgerUnreachable:
                return self._waiting
        if len(self._waiting) <= AT_ONCE:
            return self._waiting
        return in_turn([*self._waiting], moved(self.memory.of_each([on[name] for name in self._waiting])))

    def _read_switches(self, wishes: Callable[[], Wishes]) -> str:
        """Read which pipelines were paused or resumed; return why that is unknown, "" if this process knows it from now or earlier."""
        try:
            self._switches = Switches(wishes().switches)
        except LedgerUnreachable as error:
            _LOG.warning("%s: it is unknown which pipelines are paused: %s", COORDINATOR, error)
            return "" if self._switches is not None else f"whether it is paused is unknown: {error}"
        return ""

    def _note_quiet(self, quiet: Collection[str], now: datetime) -> None:
        """Note the ticks of pipelines that need no full look, which would note its own."""
        if not quiet or time.monotonic() - self._noted_at < TICK_NOTED_SECONDS:
            return
        try:
            self._ledger().requests.note_ticks(quiet, now)
            self._noted_at = time.monotonic()
        except LedgerUnreachable as error:
            _LOG.warning("%s: the ledger could not note its tick: %s", COORDINATOR, error)

    def _ledger(self) -> Ledger:
        url = Home.from_environment().ledger_url
        if self._opened is None or self._opened[0] != url:
            self._opened = url, Ledger.open(url)
        return self._opened[1]


def queue(waiting: Mapping[str, float], due: Collection[str], now: float) -> dict[str, float]:
    """Return since when each of those `due` has waited for its turn, in the order of their turns: longest first."""
    return dict(sorted(((name, waiting.get(name, now)) for name in due), key=itemgetter(1)))


def in_turn(waiting: Sequence[str], first: Collection[str]) -> list[str]:
    """Return the waiting ones, those in `first` before the others, but after three of them one of the others: each has its turn, however many
    come first."""
    front, rest = [name for name in waiting if name in first], [name for name in waiting if name not in first]
    turns = list[str]()
    while front or rest:
        turns += front[:_FIRST_FOR_ONE] + rest[:1]
        front, rest = front[_FIRST_FOR_ONE:], rest[1:]
    return turns


def late_text(seconds: float, others: int, load: float, cores: int) -> str:
    """Say of a look that it has not ended for so many seconds, while `others` have not either. Table and broker are blamed only where the
    machine has CPU to ask them; `load`: its load average."""
    beside = f", and neither have those of {counted(others, 'other pipeline')}" if others else ""
    if load > cores:
        return (
            f"its look has not ended for {seconds:.0f} s{beside}; this machine is overloaded (load {load:.0f}, {counted(cores, 'core')}), so "
            "give the code server more CPU; the look goes on"
        )
    return f"its table or broker has not answered for {seconds:.0f} s{beside}; the look goes on"


def text_of(said: Mapping[str, tuple[str, str]], before: Mapping[str, tuple[str, str]]) -> str:
    """Say why no run begins. Of many pipelines, count their states and name ten at most: those that fail, then those that changed."""
    if not said:
        return "no pipelines"
    if len(said) == 1:
        ((_, reason),) = said.values()
        return reason
    states = [state for state, _ in said.values()]
    counts = ", ".join(
        f"{states.count(state):,} {state}" for state in (FAILING, LATE, QUEUED, OFF, WAITING) if state in states
    )
    changed = [name for name in said if _without_numbers(said[name]) != _without_numbers(before.get(name))]
    named = [*dict.fromkeys([*(name for name in said if said[name][0] == FAILING), *changed])]
    more = [f"and {len(named) - _SHOWN:,} more"] if len(named) > _SHOWN else []
    return "\n".join(
        [f"{counted(len(said), 'pipeline')}: {counts}", *(f"{name}: {said[name][1]}" for name in named[:_SHOWN]), *more]
    )


def _without_numbers(said: tuple[str, str] | None) -> tuple[str, str] | None:
    """Seconds and records count up and down without anything having changed."""
    return said and (said[0], re.sub(r"\d[\d.,:]*", "0", said[1]))
