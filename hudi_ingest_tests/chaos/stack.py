"""A whole stack that faults strike: its processes are stopped at a point or killed, and started again as a supervisor would."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

import psutil
import sqlalchemy as sa
import yaml

from hudi_ingest.home.folder import Home
from hudi_ingest.local.processes import free_port, is_alive, is_marked
from hudi_ingest.local.stack import CODE_SERVER, DAEMON, Stack, StackSettings, bring_down, bring_up, run_processes
from hudi_ingest_tests.chaos import oracle
from hudi_ingest_tests.chaos.cases import Blow
from hudi_ingest_tests.chaos.oracle import StoredTable
from hudi_ingest_tests.chaos.platform import Platform
from hudi_ingest_tests.support.command_line import hudi_ingest
from hudi_ingest_tests.support.waiting import NotInTime, wait_for

REACH_SECONDS = 150


class StruckStack:
    """Start it with `with`, which writes `files`, the pipeline files by name, first."""

    def __init__(self, platform: Platform, files: Mapping[str, object]) -> None:
        self.home = Home(platform.root, platform.root / "pipelines", platform.ledger_url)
        self.orders = platform.orders
        self._platform = platform
        self._files = files

    def __enter__(self) -> StruckStack:
        self.orders.mkdir(parents=True)
        self.home.pipelines.mkdir()
        for name, settings in self._files.items():
            self.write_file(name, settings)
        self._settings = StackSettings(free_port(), free_port())
        try:
            self.restore()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        bring_down(self.home, lambda line: None)

    def write_file(self, name: str, settings: object) -> None:
        """Replace a pipeline file at once, so that no process reads a half of it."""
        partial = self.home.pipelines / f"{name}.partial"
        partial.write_text(yaml.safe_dump(settings))
        partial.rename(self.home.pipelines / f"{name}.yaml")

    def restore(self) -> None:
        """Start what has died."""
        self._platform.restore()
        self.running = bring_up(self.home, self._settings, lambda line: None, self._platform.dagster_yaml)

    def dead(self) -> list[str]:
        """The names of the processes that have ended by themselves."""
        return [record.name for record in self.running.processes if not is_alive(record)]

    # ---- Points

    def forget_orders(self) -> None:
        for old in self.orders.iterdir():
            old.unlink()

    def arm(self, blow: Blow) -> None:
        partial = self.orders / "order.partial"
        partial.write_text(_action(blow))
        partial.rename(self.orders / f"{blow.point}.armed")

    def await_blow(self, blow: Blow) -> psutil.Process | None:
        """Wait for the first process that comes to the point of an armed blow, and return it where it stands still there.

        Raises NotInTime when none comes; the blow is disarmed then.
        """
        reached = self.orders / f"{blow.point}.reached"
        try:
            wait_for(reached.exists, f"a process comes to {blow.point}", REACH_SECONDS)
        except NotInTime:
            (self.orders / f"{blow.point}.armed").unlink(missing_ok=True)
            raise
        if _action(blow) != "stop":
            return None
        process = psutil.Process(int(reached.read_text()))
        wait_for(lambda: process.status() == psutil.STATUS_STOPPED, f"{process.pid} has stopped", 30)
        return process

    # ---- Processes

    def processes(self) -> list[psutil.Process]:
        """All that belong to the stack, also those whose parent is dead."""
        marks = {record.mark for record in self._read().processes}
        return [process for process in psutil.process_iter() if is_marked(process, marks)]

    def kill(self, name: str) -> None:
        leader = self._leader(name)
        _kill([leader] if name == DAEMON else [leader, *leader.children(recursive=True)])

    def kill_code_child(self) -> None:
        """The code server's own process lives on."""
        _kill(self._leader(CODE_SERVER).children())

    def kill_run_workers(self) -> None:
        for each in run_processes(self._read()):
            with suppress(psutil.NoSuchProcess):
                each.kill()

    # ---- Tables

    def stale(self, name: str, stored: StoredTable, ends: Mapping[int, int]) -> Counter[str]:
        """Where the pipeline's consumer group and the ledger do not say what the table says; `ends`: of each Kafka partition."""
        found: Counter[str] = Counter()
        told = oracle.group_offsets(self.running.bootstrap_servers, f"hudi-ingest.{name}", name, len(ends))
        found["stale-group"] += told != ends
        engine = sa.create_engine(self.home.ledger_url, poolclass=sa.NullPool)
        with engine.connect() as connection:
            transactions = connection.execute(
                sa.text("SELECT state, instant FROM ingest_transactions WHERE pipeline = :name"), {"name": name}
            ).all()
        committed = {instant for state, instant in transactions if state == "committed"}
        open_ones = sum(1 for state, _ in transactions if state == "open")
        found["stale-ledger"] += bool(open_ones) or committed != oracle.own_instants(stored)
        return +found

    def sweep(self, name: str, stored: StoredTable, seconds: int) -> str:
        """Sweep the table, whose files that nobody reads are older than `seconds` then. Returns the error, or ""."""
        # Also those that must be left alone.
        left = [*oracle.orphans(stored), *oracle.left_overs(stored), *stored.files(oracle.DEAD_LETTERS)]
        self._platform.let_age(name, left, seconds)
        swept = hudi_ingest(self.home, "sweep", name, "--older-than", str(seconds / 3600), "--delete", "--json")
        return swept.stderr if swept.returncode else ""

    def _leader(self, name: str) -> psutil.Process:
        return psutil.Process(next(each.pid for each in self._read().processes if each.name == name))

    def _read(self) -> Stack:
        stack = Stack.read(self.home)
        assert stack is not None
        return stack


def go_on(process: psutil.Process) -> None:
    """Let a process that stands still go on."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)


def _kill(victims: Iterable[psutil.Process]) -> None:
    victims = list(victims)
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.kill()
    psutil.wait_procs(victims, timeout=30)


def _action(blow: Blow) -> str:
    return blow.fault if blow.fault in ("raise", "full", "kill") else "stop"
