"""The pipelines that share a sensor, and its ticks: which of them are looked at, in which order, and what the tick answers.

A pipeline with a file of its own is alone in its fleet; those of a template are in one. Each look is independent: one that fails or hangs
neither delays nor hides another.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from operator import itemgetter

from dagster import DagsterInstance, RunRequest, SkipReason

from hudi_ingest.exceptions import IngestError, LedgerUnreachable
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.requests import TICK_NOTED_SECONDS, Wishes
from hudi_ingest.orchestration.coordinator.quiet_ticks import moved, quiet_reasons
from hudi_ingest.orchestration.looks import AT_ONCE, Looks
from hudi_ingest.orchestration.reports.checks import BLIND_SECONDS, report_trouble
from hudi_ingest.pipeline.pipeline import Pipeline

_LOG = logging.getLogger(__name__)
DEADLINE_SECONDS = 20.0
"""Dagster gives a tick 60 s, and does not stop one that takes longer."""
_LEAST_SECONDS = 2.0
MOST_REQUESTS = 40
"""So many runs one tick requests at most; the other pipelines have their turn in the next ones."""
_FIRST_FOR_ONE = 3
_SHOWN = 10
OVERLAPS = "the tick before this one is still looking, so this one leaves the pipelines to it"
FAILING, LATE, QUEUED, OFF, WAITING = "failing", "not answering", "whose turn comes next", "off", "waiting"
Look = Callable[[Pipeline, DagsterInstance, datetime], RunRequest | SkipReason]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of a tick: runs to request, errors by pipeline, and in words why the others begin none."""

    requests: tuple[RunRequest, ...] = ()
    errors: Mapping[str, BaseException] = field(default_factory=dict)
    text: str = ""


class Fleet:
    """`look` decides what to do for one pipeline. What is remembered here between ticks is lost with the process: then each pipeline
    gets a full look, in the order of the files."""

    def __init__(self, pipelines: Sequence[Pipeline], look: Look) -> None:
        self.pipelines = tuple(pipelines)
        self._look = look
        self._lock = threading.Lock()
        self._looks = Looks[RunRequest | SkipReason](pipelines[0].coordinator)
        self._waiting: dict[str, float] = {}
        """Since when each has waited for its turn, those first that have waited longest."""
        self._said: dict[str, tuple[str, str]] = {}
        """By pipeline, its state after the last tick, and why."""
        self._switches: Mapping[str, bool] | None = None
        self._opened: tuple[str, Ledger] | None = None
        self._noted_at = 0.0

    def evaluate(
        self, instance: DagsterInstance, now: datetime, require_valid: Callable[[Pipeline, RunRequest], None]
    ) -> Evaluation:
        """Look at the pipelines that are due. `require_valid` raises if Dagster would refuse the request, and with it those of other
        pipelines. Raises a pipeline's error if all pipelines that are on fail."""
        if not self._lock.acquire(blocking=False):
            return Evaluation(text=OVERLAPS)
        try:
            return self._evaluate(instance, now, require_valid)
        finally:
            self._lock.release()

    def _evaluate(
        self, instance: DagsterInstance, now: datetime, require_valid: Callable[[Pipeline, RunRequest], None]
    ) -> Evaluation:
        began = time.monotonic()
        # Read at most once in a tick.
        wishes = cache(lambda: self._ledger().requests.wishes())
        knows_switches = self._read_switches(wishes)
        switches = self._switches or {}
        on = {each.name: each for each in self.pipelines if switches.get(each.name, each.enabled) or not each.template}
        quiet = quiet_reasons([*on.values()], instance, wishes)
        said = {name: (OFF, "it is off") for name in (each.name for each in self.pipelines) if name not in on}
        said |= {name: (WAITING, reason) for name, reason in quiet.items()}
        self._note_quiet(quiet, now)

        self._waiting = queue(self._waiting, [name for name in on if name not in quiet], time.monotonic())
        looks = self._looks.take(
            [on[name] for name in self._turns(on)],
            lambda pipeline: self._looked(pipeline, instance, now),
            # A ledger or broker that is silent has used it up; the looks that begin all the same say so in a later tick.
            max(_LEAST_SECONDS, began + DEADLINE_SECONDS - time.monotonic()),
            most=MOST_REQUESTS,
            counts=lambda found: isinstance(found, RunRequest),
        )
        self._waiting = {name: since for name, since in self._waiting.items() if name not in looks}
        failed = {name: self._said[name] for name in self._waiting if self._said.get(name, ("",))[0] == FAILING}
        said |= {name: failed.get(name, (QUEUED, "it waits for its turn")) for name in self._waiting}

        requests, errors = list[RunRequest](), dict[str, BaseException]()
        for name in [each for each in looks if each in on and looks[each].done()]:
            error = looks[name].exception()
            if error is not None:
                errors[name] = error
                continue
            found = looks[name].result()
            if isinstance(found, SkipReason):
                said[name] = WAITING, str(found.skip_message)
            elif not knows_switches:
                said[name] = WAITING, "the ledger, which knows whether it is paused, could not be read"
            else:
                try:
                    require_valid(on[name], found)
                    requests.append(found)
                    said[name] = WAITING, f"run {found.run_key} is requested"
                except Exception as invalid:  # noqa: BLE001 - Dagster has many ways to refuse a request
                    report_trouble(on[name], instance, invalid, now)
                    errors[name] = invalid
        late = {name: seconds for name, seconds in self._looks.late().items() if name in on}
        for name, seconds in late.items():
            said[name] = LATE, late_text(seconds, len(late) - 1, os.getloadavg()[0], os.cpu_count() or 1)
            if seconds >= BLIND_SECONDS:
                report_trouble(on[name], instance, TimeoutError(said[name][1]), now)
        said |= {name: (FAILING, f"{type(error).__name__}: {error}") for name, error in errors.items()}
        before, self._said = self._said, said
        if errors and all(said[name][0] == FAILING for name in on):
            raise next(iter(errors.values()))
        return Evaluation(tuple(requests), errors, text_of(said, before))

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
        return in_turn([*self._waiting], moved([on[name] for name in self._waiting]))

    def _looked(self, pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
        try:
            return self._look(pipeline, instance, now)
        except IngestError:
            # Its checks say so.
            raise
        except Exception as error:
            report_trouble(pipeline, instance, error, now)
            raise

    def _read_switches(self, wishes: Callable[[], Wishes]) -> bool:
        """Read which pipelines of a template were paused or resumed; return whether it is known."""
        if not self.pipelines[0].template:
            return True
        try:
            self._switches = wishes().switches
        except LedgerUnreachable as error:
            _LOG.warning("%s: it is unknown which pipelines are paused: %s", self.pipelines[0].coordinator, error)
        return self._switches is not None

    def _note_quiet(self, quiet: Collection[str], now: datetime) -> None:
        """Note the ticks of pipelines that need no full look, which would note its own."""
        if not quiet or time.monotonic() - self._noted_at < TICK_NOTED_SECONDS:
            return
        try:
            self._ledger().requests.note_ticks(quiet, now)
            self._noted_at = time.monotonic()
        except LedgerUnreachable as error:
            _LOG.warning("%s: the ledger could not note its tick: %s", self.pipelines[0].coordinator, error)

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
