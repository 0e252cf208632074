"""One lane: a whole stack of its own on which cases run one after another, and the verdict on each."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import sqlalchemy as sa
import yaml
from confluent_kafka import Producer

from hudi_ingest.embedded import webserver
from hudi_ingest.embedded.broker import create_topic
from hudi_ingest.embedded.processes import free_port
from hudi_ingest.embedded.stack import BROKER, DAEMON, ENGINE, Stack, StackSettings, bring_down, bring_up
from hudi_ingest.faults import VARIABLE
from hudi_ingest.home import Home
from hudi_ingest_tests.chaos import oracle
from hudi_ingest_tests.chaos.cases import NEEDS_A_DEAD_TRANSACTION, Blow, Case
from hudi_ingest_tests.support.command_line import hudi_ingest
from hudi_ingest_tests.support.waiting import NotInTime, wait_for

PARTITIONS = 2
ROWS_A_BLOW = 120
CASES_A_TABLE = 12
TIMEOUT_SECONDS = 60
REACH_SECONDS = 150
RECOVER_SECONDS = 300
ZOMBIE_SECONDS = 120


@dataclass
class Verdict:
    """What became of one case. `not_reached`: blows whose point no process came to."""

    case: Case
    anomalies: Counter[str] = field(default_factory=Counter)
    not_reached: list[str] = field(default_factory=list)
    recovery_seconds: float = 0.0
    seconds: float = 0.0
    detail: str = ""


class Lane:
    """Start it with `with`. `blocks` is how many tables its cases are spread over."""

    def __init__(self, root: Path, blocks: int, seed: int, say: Callable[[str], None], ledger_url: str = "") -> None:
        self.root = root
        self.home = Home(root, root / "pipelines", ledger_url or f"sqlite:///{root / 'ledger.db'}")
        self.orders = root / "faults"
        self._say = say
        self._dice = random.Random(seed)
        self._blocks = blocks
        self._block = -1
        self._produced: dict[tuple[int, int], str] = {}
        self._bad: set[tuple[int, int]] = set()
        self._number = 0
        self._producing = threading.Lock()

    def __enter__(self) -> Lane:
        self.orders.mkdir(parents=True)
        self.home.pipelines.mkdir()
        for block in range(self._blocks):
            (self.home.pipelines / f"chaos{block}.yaml").write_text(yaml.safe_dump(_pipeline(block)))
        os.environ[VARIABLE] = str(self.orders)
        # JVMs are killed before a better compiler pays.
        os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1"
        self._settings = StackSettings(free_port(), free_port())
        self._stack = self._restore()
        self._producer = Producer({"bootstrap.servers": self._stack.bootstrap_servers, "linger.ms": 5, "log_level": 0})
        return self

    def __exit__(self, *_: object) -> None:
        for name in (VARIABLE, "JAVA_TOOL_OPTIONS"):
            os.environ.pop(name, None)
        bring_down(self.home, lambda line: None)

    # ---- Tables

    @property
    def name(self) -> str:
        return f"chaos{self._block}"

    @property
    def base_path(self) -> str:
        return str(self.home.tables / self.name)

    def next_table(self) -> None:
        """From now on the cases' records go into a new topic and a new table."""
        if self._block >= 0:
            webserver.stop_sensor(self._stack.url, f"{self.name}_coordinator")
        self._block += 1
        self._produced, self._bad = {}, set()
        create_topic(self._stack.bootstrap_servers, self.name, PARTITIONS)
        create_topic(self._stack.bootstrap_servers, f"{self.name}.dead", 1)
        webserver.start_sensor(self._stack.url, f"{self.name}_coordinator")

    def finish_table(self) -> Counter[str]:
        """A last transaction without faults, then the sweep: nothing of all the faults may be left."""
        anomalies: Counter[str] = Counter()
        self.produce(ROWS_A_BLOW)
        try:
            self.await_all_committed()
            # What a begin left that died before it had said whose it is goes when its lease has run out.
            self._make_old(".hoodie/.heartbeat")
            self.produce(ROWS_A_BLOW)
            self.await_all_committed()
        except NotInTime as error:
            self._say(f"{self.name}: {error}")
            anomalies["stuck"] += 1
        anomalies["stale-instant"] += len(oracle.pending_instants(self.base_path))
        for file in oracle.unlisted_files(self.base_path):
            os.utime(Path(self.base_path, file), (0, 0))
        for path in Path(self.base_path, oracle.DEAD_LETTERS).rglob("*.*"):
            os.utime(path, (0, 0))
        swept = hudi_ingest(self.home, "sweep", self.name, "--delete", "--json")
        if swept.returncode:
            self._say(f"{self.name}: sweep failed: {swept.stderr}")
        anomalies["orphan"] += len(oracle.unlisted_files(self.base_path))
        anomalies["dead-letters"] += oracle.compare_letters(self.base_path, self._bad)
        anomalies += oracle.compare(self.base_path, self._produced)
        return +anomalies

    # ---- Cases

    def run(self, case: Case) -> Verdict:
        """Strikes the case's blows while records are produced, lets the ticks recover, and looks."""
        began = time.monotonic()
        verdict = Verdict(case)
        stopped: list[psutil.Process] = []
        with oracle.Reader(self.base_path) as reader:
            try:
                for blow, following in itertools.zip_longest(case.blows, case.blows[1:]):
                    if not self.strike(blow, stopped, following):
                        verdict.not_reached.append(str(blow))
                struck = time.monotonic()
                self.await_all_committed()
                verdict.recovery_seconds = time.monotonic() - struck
                self._let_zombies_go_on(stopped)
                self._await_settled()
                verdict.anomalies += oracle.compare(self.base_path, self._produced)
                verdict.anomalies += self._stale()
            except NotInTime as error:
                verdict.anomalies["stuck"] += 1
                verdict.detail = str(error)
            except Exception:  # noqa: BLE001 - whatever it was, it is counted
                verdict.anomalies["broken-off"] += 1
                verdict.detail = traceback.format_exc()
            finally:
                self._let_zombies_go_on(stopped)
        verdict.anomalies += reader.anomalies
        if not reader.polls:
            verdict.detail += " no reader ever read the table"
            verdict.anomalies["unreadable"] += 1
        verdict.seconds = time.monotonic() - began
        return verdict

    def strike(self, blow: Blow, stopped: list[psutil.Process], following: Blow | None = None) -> bool:
        """Lets the fault fall on the first process that comes to the point; False when none came. A zombie is put into
        `stopped`."""
        action = _action(blow)
        reached = self.orders / f"{blow.point}.reached"
        if blow.point not in NEEDS_A_DEAD_TRANSACTION:
            for left in self.orders.iterdir():
                left.unlink()
            if following is not None and following.point in NEEDS_A_DEAD_TRANSACTION:
                # It comes so soon after the death that there would be no time to arm it then.
                self._arm(following)
            self._arm(blow)
            self.produce(ROWS_A_BLOW)
        try:
            wait_for(reached.exists, f"a process comes to {blow.point}", REACH_SECONDS)
        except NotInTime:
            (self.orders / f"{blow.point}.armed").unlink(missing_ok=True)
            return False
        if action == "stop":
            process = psutil.Process(int(reached.read_text()))
            wait_for(lambda: process.status() == psutil.STATUS_STOPPED, f"{process.pid} has stopped", 30)
            self._hit(blow.fault, process, stopped)
        elif blow.fault == "kill":
            self._restore()
        return True

    def _arm(self, blow: Blow) -> None:
        partial = self.orders / "order.partial"
        partial.write_text(_action(blow))
        partial.rename(self.orders / f"{blow.point}.armed")

    def _hit(self, fault: str, process: psutil.Process, stopped: list[psutil.Process]) -> None:
        if fault == "zombie":
            self._kill_run_workers()
            stopped.append(process)
            return
        if fault == "kill_worker":
            self._kill_run_workers()
        elif fault == "kill_engine":
            self._kill(ENGINE)
        elif fault == "kill_daemon":
            self._kill(DAEMON)
        elif fault == "kill_broker":
            self._kill(BROKER)
        elif fault == "cut_ledger":
            self._cut_ledger()
        elif fault == "disk_full":
            self._fill_disk_while(process)
        else:
            raise ValueError(f"no such fault: {fault}")
        _continue(process)
        self._restore()

    def _fill_disk_while(self, process: psutil.Process) -> None:
        """Leaves the tables' disk without a byte until the process has met it and the run has ended or moved on."""
        tables = self.home.tables
        filler = tables / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"0")
        _continue(process)
        with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
            process.wait(15)
        filler.unlink()

    def _cut_ledger(self) -> None:
        """Ends every connection to PostgreSQL; a SQLite ledger is held by another writer for a while."""
        if self.home.ledger_url.startswith("postgresql"):
            engine = sa.create_engine(self.home.ledger_url)
            with engine.connect() as connection:
                connection.execute(
                    sa.text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                    )
                )
            engine.dispose()
            return
        writer = sqlite3.connect(self.root / "ledger.db", isolation_level=None, timeout=30)
        writer.execute("BEGIN IMMEDIATE")
        time.sleep(self._dice.uniform(0.5, 3.0))  # how long it is held is the fault, nothing waits for it
        writer.execute("ROLLBACK")
        writer.close()

    def _let_zombies_go_on(self, stopped: list[psutil.Process]) -> None:
        for process in stopped:
            _continue(process)
        for process in stopped:
            # A worker of Spark's pool lives on after its task; an op's process ends.
            with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
                process.wait(ZOMBIE_SECONDS if "pyspark" not in " ".join(process.cmdline()) else 3)
        stopped.clear()

    # ---- Processes

    def _restore(self) -> Stack:
        """What a supervisor does: starts what has died."""
        return bring_up(self.home, self._settings, lambda line: None)

    def _kill(self, name: str) -> None:
        stack = Stack.read(self.home)
        assert stack is not None
        record = next(each for each in stack.processes if each.name == name)
        leader = psutil.Process(record.pid)
        family = [leader] if name == DAEMON else [leader, *leader.children(recursive=True)]
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, timeout=30)

    def _kill_run_workers(self) -> None:
        for each in self._run_workers():
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def _run_workers(self) -> list[psutil.Process]:
        """Processes that execute a run: what the launcher's fork server beside the daemon has forked."""
        stack = Stack.read(self.home)
        assert stack is not None
        daemon = next(each for each in stack.processes if each.name == DAEMON)
        found = []
        with suppress(psutil.NoSuchProcess):
            for server in psutil.Process(daemon.pid).children():
                if "multiprocessing.forkserver" in " ".join(server.cmdline()):
                    found += server.children()
        return found

    # ---- Records

    @property
    def produced_count(self) -> int:
        return len(self._produced)

    def produce(self, count: int) -> None:
        """Produces `count` records to each partition and waits until they are acknowledged. Threads may do so at once."""
        with self._producing:
            self._produce(count)

    def _produce(self, count: int) -> None:
        failed: list[str] = []

        def bad_delivered(error: object, message: object) -> None:
            if error is not None:
                failed.append(str(error))
            else:
                self._bad.add((message.partition(), message.offset()))  # type: ignore[attr-defined]

        def delivered(error: object, message: object, identifier: str) -> None:
            if error is not None:
                failed.append(str(error))
            else:
                self._produced[message.partition(), message.offset()] = identifier  # type: ignore[attr-defined]

        self._producer.produce(self.name, b"not JSON", partition=0, on_delivery=bad_delivered)
        for number in range(self._number, self._number + count):
            for partition in range(PARTITIONS):
                identifier = f"{partition}-{number}"
                value = json.dumps({"id": identifier, "n": number, "dt": f"d{number % 2}"}).encode()
                self._producer.produce(
                    self.name,
                    value,
                    partition=partition,
                    on_delivery=lambda error, message, identifier=identifier: delivered(error, message, identifier),
                )
            self._producer.poll(0)
        self._number += count
        left = self._producer.flush(60)
        assert not left and not failed, f"{left} records are not acknowledged: {failed[:1]}"

    def await_all_committed(self) -> None:
        wait_for(
            lambda: oracle.count(self.base_path) >= len(self._produced),
            f"all {len(self._produced)} records are in {self.base_path}",
            RECOVER_SECONDS,
            pause_seconds=0.5,
        )

    def _await_settled(self) -> None:
        """The consumer group and the ledger say what the table says, a few ticks later at most."""
        with suppress(NotInTime):
            wait_for(lambda: not self._stale(), "the ledger and the group agree", 45, pause_seconds=1.0)

    def _stale(self) -> Counter[str]:
        found: Counter[str] = Counter()
        ends = {
            number: 1
            + max((offset for partition, offset in {*self._produced, *self._bad} if partition == number), default=-1)
            for number in range(PARTITIONS)
        }
        told = oracle.group_offsets(self._stack.bootstrap_servers, f"hudi-ingest.{self.name}", self.name, PARTITIONS)
        found["stale-group"] += told != ends
        engine = sa.create_engine(self.home.ledger_url)
        with engine.connect() as connection:
            transactions = connection.execute(
                sa.text("SELECT state, instant FROM ingest_transactions WHERE pipeline = :name"), {"name": self.name}
            ).all()
        engine.dispose()
        committed = {instant for state, instant in transactions if state == "committed"}
        open_ones = sum(1 for state, _ in transactions if state == "open")
        found["stale-ledger"] += bool(open_ones) or committed != oracle.completed_instants(self.base_path)
        return +found

    def _make_old(self, folder: str) -> None:
        for each in Path(self.base_path, folder).iterdir():
            os.utime(each, (0, 0))


def _pipeline(block: int) -> dict[str, object]:
    return {
        "name": f"chaos{block}",
        "source": {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": [f"chaos{block}"]},
        "table": {
            "base_path": f"${{HUDI_INGEST_TABLES}}/chaos{block}",
            "schema": "id string, n long, dt string",
            "partition_by": ["dt"],
        },
        "on_bad_record": "dead_letter",
        "dead_letters": {"topic": f"chaos{block}.dead"},
        "transaction": {
            "interval_seconds": 5,
            "timeout_seconds": TIMEOUT_SECONDS,
            "retries": 1,
            "retry_delay_seconds": 0.2,
            "max_tasks": 2,
            # The ops of every second table's runs share the run's process.
            "fan_out_from": 0 if block % 2 == 0 else 1_000_000,
        },
    }


def _action(blow: Blow) -> str:
    return blow.fault if blow.fault in ("raise", "full", "kill") else "stop"


def _continue(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)


def small_disk(folder: Path, megabytes: int) -> bool:
    """Mounts a file system of that size in memory at `folder`; False where this user may not."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    return shutil.which("mount") is not None and subprocess.run(command, capture_output=True).returncode == 0


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
