"""One lane: a whole stack of its own on which cases run one after another, and the verdict on each."""

from __future__ import annotations

import itertools
import json
import random
import sqlite3
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import sqlalchemy as sa
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.stack import (
    BROKER,
    DAEMON,
    ENGINE,
    run_processes,
)
from hudi_ingest_tests.chaos import oracle
from hudi_ingest_tests.chaos.cases import BIG_FILES, MERGING, NEEDS_A_DEAD_TRANSACTION, Blow, Case
from hudi_ingest_tests.chaos.keyed import KEYED_TABLE, MIRRORED_TABLE, KeyedRecords, MirrorRecords
from hudi_ingest_tests.chaos.platform import Platform
from hudi_ingest_tests.chaos.records import Records
from hudi_ingest_tests.chaos.stack import REACH_SECONDS, StruckStack, go_on
from hudi_ingest_tests.chaos.work import Work
from hudi_ingest_tests.simulation import trace
from hudi_ingest_tests.support.command_line import environment, hudi_ingest
from hudi_ingest_tests.support.switching import turn
from hudi_ingest_tests.support.waiting import NotInTime, wait_for

ROWS_A_BLOW = 120
REPAIRABLE = 3
BACKFILL_ROWS = 40
REPLAY_ROWS = 150
LOST_ROWS = 50
LOSING = 1
"""The Kafka partition that loses records; the other one's are backfilled and replayed."""
HISTORY_ROWS = 12 * BACKFILL_ROWS
"""In each Kafka partition, from before the table's start."""
LONG_TIMELINE = 27
"""Commits before the first case of every other table: Hudi archives from the 31st on, so that cases cross it."""
CASES_A_TABLE = 12
TIMEOUT_SECONDS = 60
RECOVER_SECONDS = 300
ZOMBIE_SECONDS = 120

TAKES_TEXTS = {
    "table": {"schema": "id string, n string, dt string"},
    "transforms": [{"cast": {"n": "long"}}],
}
"""Of a pipeline file that makes rows of records whose `n` is a text."""


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
    """Start it with `with`. `blocks` numbers the tables that its cases are spread over, as a table's kind depends on its number,
    and has one of the cases of each."""

    def __init__(
        self, platform: Platform, blocks: Mapping[int, Case], seed: int, say: Callable[[str], None], number: int = 0
    ) -> None:
        self.platform = platform
        self.root = platform.root
        self._say = say
        self._dice = random.Random(seed)
        self._blocks = blocks
        self._block = min(blocks) - 1
        self._number = number
        files = {f"chaos{block}": self._settings_of(block) for block in blocks}
        self.stack = StruckStack(platform, files)
        self.home = self.stack.home
        self._broken = ""

    def __enter__(self) -> Lane:
        self.stack.__enter__()
        servers = self.stack.running.bootstrap_servers
        # A retry must not come after what was sent later.
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0, "max.in.flight": 1})
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.__exit__()

    # ---- Tables

    @property
    def name(self) -> str:
        return f"chaos{self._block}"

    @property
    def _is_keyed(self) -> bool:
        return self._blocks[self._block].keyed

    def next_table(self) -> None:
        """From now on the cases' records go into a new topic and a new table."""
        if self._block >= min(self._blocks):
            turn(self.home, self.name, False)
        self._block += 1
        self.stored = self.platform.stored(self.name)
        if self._is_keyed:
            kind = MirrorRecords if self._blocks[self._block].mirrors else KeyedRecords
            self.records: Records = kind(self.name, self._producer, self._dice)
        else:
            self.records = Records(self.name, self._producer)
        self._resets: set[tuple[int, int, int]] = set()
        create_topic(self.stack.running.bootstrap_servers, self.name, self.records.partitions)
        create_topic(self.stack.running.bootstrap_servers, f"{self.name}.dead", 1)
        if not self._is_keyed:
            self.records.produce_history(HISTORY_ROWS)
        # Of both kinds of pipeline, and the first table of every other lane.
        self._commit(LONG_TIMELINE if (self._block + 2 * self._number) % 4 in (0, 3) else 1)
        turn(self.home, self.name, True)

    def _commit(self, times: int) -> None:
        """So many transactions, one after another. The first one only says where an append table starts: after its history."""
        variables = {**environment(self.home), **self.stack.running.environment}
        command = [sys.executable, "-m", "hudi_ingest_tests.chaos.history", str(self._file)]
        with subprocess.Popen(
            command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            for number in range(times):
                if number or self._is_keyed:
                    self.records.produce(1)
                process.stdin.write("\n")
                process.stdin.flush()
                assert process.stdout.readline().strip(), f"a transaction of {self.name} failed before the first case"
            process.stdin.close()

    @property
    def _file(self) -> Path:
        return self.home.pipelines / f"{self.name}.yaml"

    def _write_file(self, **changes: object) -> None:
        self.stack.write_file(self.name, _changed(self._settings_of(self._block), changes))

    def finish_table(self) -> Counter[str]:
        """A last transaction without faults, then the sweep: nothing of all the faults may be left."""
        anomalies: Counter[str] = Counter()
        self.produce(ROWS_A_BLOW)
        try:
            self.await_all_committed()
            # What a begin left that died before it had said whose it is goes when its lease has run out.
            self._let_age(oracle.HEARTBEATS, TIMEOUT_SECONDS)
            self.produce(ROWS_A_BLOW)
            self.await_all_committed()
            left = oracle.left_pending(self.stored, lambda: run_processes(self.stack.running), RECOVER_SECONDS)
            anomalies["stale-instant"] += len(left)
        except NotInTime as error:
            self._say(f"{self.name}: {error}")
            anomalies["stuck"] += 1
        if failed := self.stack.sweep(self.name, self.stored, 2 * TIMEOUT_SECONDS):
            self._say(f"{self.name}: sweep failed: {failed}")
        anomalies["orphan"] += len(oracle.orphans(self.stored))
        anomalies["left-over"] += len(oracle.left_overs(self.stored))
        anomalies["open-upload"] += self.platform.open_uploads(self.name)
        anomalies["dead-letters"] += oracle.compare_letters(self.stored, self._waiting_letters(), self.records.bad)
        anomalies += self.records.compare(self.stored)
        anomalies += self._broken_rules()
        if self.platform.reads_by_spark:
            anomalies += self._seen_by_spark()
        archived = len(oracle.archived(self.stored))
        self._say(f"{self.name}: {len(oracle.completed(self.stored))} commits, {archived} of them archived")
        return +anomalies

    def _seen_by_spark(self) -> Counter[str]:
        """Anomalies of the rows that Spark reads, and files that hudi-ingest's own view of the table has otherwise."""
        rows = self.root / "seen.parquet"
        command = [sys.executable, "-m", "hudi_ingest_tests.chaos.seen", str(self._file), str(rows)]
        variables = {**environment(self.home), **self.stack.running.environment}
        seen = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=RECOVER_SECONDS)
        if seen.returncode:
            self._say(f"{self.name}: Spark cannot read it: {seen.stderr}")
            return Counter(unreadable=1)
        anomalies = self.records.compare_rows(pq.read_table(rows))
        anomalies["orphan"] += len(set(json.loads(seen.stdout)) ^ oracle.listed_files(self.stored))
        return anomalies

    def _waiting_letters(self) -> list[dict[str, Any]]:
        most = str(2 * len(self.records.bad) + 1)
        shown = hudi_ingest(self.home, "dead-letters", "show", self.name, "--limit", most, "--json")
        if shown.returncode:
            self._say(f"{self.name}: dead-letters show failed: {shown.stderr}")
            return []
        letters: list[dict[str, Any]] = json.loads(shown.stdout)
        return letters

    # ---- Cases

    def run(self, case: Case) -> Verdict:
        """Strikes the case's blows while records are produced, lets the ticks recover, and looks."""
        began = time.monotonic()
        verdict = Verdict(case)
        stopped: list[psutil.Process] = []
        with self.records.reader(self.stored) as reader:
            self._reader = reader
            try:
                with self._work(case.work) as work:
                    self._strike_and_recover(case, verdict, stopped, work)
                self._await_settled()
                verdict.anomalies += self._wrong_accounts()
                verdict.anomalies += self.records.compare(self.stored)
                verdict.anomalies += self._stale()
                verdict.anomalies += self._broken_rules()
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

    def _strike_and_recover(
        self, case: Case, verdict: Verdict, stopped: list[psutil.Process], work: Work | None
    ) -> None:
        """Returns when all records are in the table. Raises NotInTime."""
        before = oracle.commit_times(self.stored) if case.work == "replay" else {}
        for blow, following in itertools.zip_longest(case.blows, case.blows[1:]):
            if not self.strike(blow, stopped, following, work):
                verdict.not_reached.append(str(blow))
        struck = time.monotonic()
        if work is not None:
            work.finish()
        self.await_all_committed()
        if case.work == "replay":
            # The command may have left it to the coordinator.
            wait_for(lambda: not self._not_replayed(before), "the range is written anew", RECOVER_SECONDS, 0.5)
        verdict.recovery_seconds = time.monotonic() - struck
        self._let_zombies_go_on(stopped)

    def strike(
        self, blow: Blow, stopped: list[psutil.Process], following: Blow | None = None, work: Work | None = None
    ) -> bool:
        """Lets the fault fall on the first process that comes to the point; False when none came. A zombie is put into
        `stopped`. `work` is begun when the order for the blow is given."""
        if blow.point == MERGING:
            assert work is not None
            return self._strike_merge(blow, work)
        if blow.point not in NEEDS_A_DEAD_TRANSACTION:
            self.stack.forget_orders()
            if following is not None and following.point in NEEDS_A_DEAD_TRANSACTION:
                # It comes so soon after the death that there would be no time to arm it then.
                self.stack.arm(following)
            self.stack.arm(blow)
            if work is not None:
                work.start()
            if work is None or work.beside_live:
                self.produce(ROWS_A_BLOW)
        try:
            process = self.stack.await_blow(blow)
        except NotInTime:
            return False
        if process is not None and blow.fault == "zombie":
            self.stack.kill_run_workers()
            stopped.append(process)
        elif process is not None:
            self._hit(blow.fault, work, process)
            go_on(process)
            self.stack.restore()
        elif blow.fault == "kill":
            self.stack.restore()
        return True

    def _strike_merge(self, blow: Blow, work: Work) -> bool:
        """False when services found nothing to merge."""
        self.produce(ROWS_A_BLOW)
        self.await_all_committed()
        before = oracle.pending_merges(self.stored)
        work.start()
        try:
            wait_for(
                lambda: oracle.pending_merges(self.stored) - before,
                f"services merge files of {self.name}",
                REACH_SECONDS,
            )
        except NotInTime:
            return False
        self._hit(blow.fault, work)
        self.stack.restore()
        return True

    def _hit(self, fault: str, work: Work | None, process: psutil.Process | None = None) -> None:
        """`process` stands still at the point. It goes on while a fault lasts, else only after it."""
        if fault == "kill_worker":
            self.stack.kill_run_workers()
        elif fault in (found := {"kill_engine": ENGINE, "kill_daemon": DAEMON, "kill_broker": BROKER}):
            self.stack.kill(found[fault])
        elif fault == "kill_code_child":
            self.stack.kill_code_child()
        elif fault == "kill_command" and work is not None:
            work.kill()
        elif fault == "cut_ledger":
            self._cut_ledger()
        elif fault == "cut_properties":
            # The engine dies between two steps of Hudi's update: copy to the backup, delete the file, write it, delete the backup.
            self.stack.kill_run_workers()
            self.stack.kill(ENGINE)
            self.platform.cut_properties(self.name)
        elif fault == "cut_power":
            self._cut_power(work)
        elif fault == "disk_full" and process is not None:
            self._fill_disk_while(process)
        else:
            with self.platform.fault(fault, process, self._dice):
                if process is not None:
                    go_on(process)

    def _fill_disk_while(self, process: psutil.Process) -> None:
        """Leaves the tables' disk without a byte until the process has met it and the run has ended or moved on."""
        assert self.platform.disk is not None
        filler = self.platform.disk.fill()
        go_on(process)
        with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
            process.wait(15)
        filler.unlink()

    def _cut_power(self, work: Work | None) -> None:
        """Of the machine that has the stack, and on a local platform the tables: the broker is another one, and so is a
        PostgreSQL."""
        victims = [process for process in self.stack.processes() if not _is_broker(process)]
        if work is not None:
            work.kill()
        for process in victims:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(victims, timeout=30)
        if self.platform.cut_power():
            trace.add(self.home.transactions_log, trace.POWER_CUT)
            # Rows that were on no disk may be gone, and must come again.
            self._reader.forget()

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
            go_on(process)
        for process in stopped:
            # A worker of Spark's pool lives on after its task; an op's process ends.
            with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
                process.wait(ZOMBIE_SECONDS if "pyspark" not in " ".join(process.cmdline()) else 3)
        stopped.clear()

    # ---- Work beside transactions

    @contextmanager
    def _work(self, kind: str) -> Iterator[Work | None]:
        """The command of that kind, not begun yet, and all that it needs."""
        if kind == "services":
            yield Work(self.home, "services", self.name, beside_live=True)
        elif kind == "backfill":
            start, end = self.records.expect_history(0, BACKFILL_ROWS)
            # Left out is what an earlier try has added.
            yield Work(self.home, "backfill", self.name, *self._range(start, end), "--skip-covered")
        elif kind == "replay":
            # Not older ones: of a record that became a row by a retry under another pipeline file, a replay under this one
            # makes a dead letter again.
            start = self.records.ends()[0]
            self.produce(REPLAY_ROWS)
            self.await_all_committed()
            self._replayed = (start, start + REPLAY_ROWS)
            # A keyed table is replayed to its committed end.
            asked = self._range(*self._replayed)[: 4 if self._is_keyed else None]
            yield Work(self.home, "replay", self.name, *asked)
        elif kind == "accept_loss":
            self._lose_records()
            yield Work(self.home, "accept-loss", self.name, *self._losing(), done="is not stopped, so there is no loss")
        elif kind == "retry":
            self.records.produce_repairable(REPAIRABLE)
            wait_for(lambda: "stale-group" not in self._stale(), "bad records are read", RECOVER_SECONDS, 0.5)
            self._write_file(**TAKES_TEXTS)
            self.records.expect_repaired()
            try:
                yield Work(self.home, "dead-letters", "retry", self.name)
            finally:
                self._write_file()
        elif kind == BIG_FILES:
            self.records.with_big_ones = True
            try:
                yield None
            finally:
                self.records.with_big_ones = False
        else:
            yield None

    def _losing(self) -> tuple[str, str]:
        return "--partition", f"{self.name}:{LOSING}"

    def _lose_records(self) -> None:
        """Returns when the partition is stopped, because the broker has deleted records that nobody had read, and the other one
        has gone on."""
        self.await_all_committed()
        self._await_settled()
        # A run that read meanwhile would decide what is lost.
        self.stack.kill(DAEMON)
        committed = self.records.ends()[LOSING]
        self.produce(2 * LOST_ROWS)
        lost = self._dice.randint(1, LOST_ROWS)
        admin = AdminClient({"bootstrap.servers": self.stack.running.bootstrap_servers})
        before = TopicPartition(self.name, LOSING, committed + lost)
        for answer in admin.delete_records([before]).values():
            answer.result(60)
        self.records.expect_lost(LOSING, committed, committed + lost)
        self._resets.add((LOSING, committed, committed + lost))
        self.stack.restore()
        wait_for(
            lambda: self.records.all_of_partition_in(self.stored, 1 - LOSING),
            "the other partition has gone on",
            RECOVER_SECONDS,
            pause_seconds=0.5,
        )
        shown = hudi_ingest(self.home, "accept-loss", self.name, *self._losing(), "--dry-run")
        if shown.returncode:
            raise NotInTime(f"{self.name}:{LOSING} is not stopped: {shown.stdout}{shown.stderr}")

    def _wrong_accounts(self) -> Counter[str]:
        """Losses that were accepted and are not in a commit's accounting, or are there and were not; commits that sort before an
        earlier one."""
        order = oracle.order_of_commits(self.stored, self.name)
        return Counter(
            {
                "wrong-loss": len(self._resets ^ oracle.resets(self.stored, self.name)),
                "misordered": sum(1 for one, next_ in itertools.pairwise(order) if next_ <= one),
            }
        )

    def _broken_rules(self) -> Counter[str]:
        """The steps of all transactions so far against the rules of simulated ones; what is broken already counts once."""
        lines = trace.read(self.home.transactions_log)
        broken = trace.violation(lines)
        if broken and broken != self._broken:
            self._say(f"{self.name}: {self.home.transactions_log}: {broken}")
        found = Counter({"untraced": not lines, "out-of-order": bool(broken) and broken != self._broken})
        self._broken = broken
        return +found

    def _range(self, start: int, end: int) -> tuple[str, ...]:
        return "--partition", f"{self.name}:0", "--start", str(start), "--end", str(end)

    def _not_replayed(self, before: Mapping[tuple[int, int], str]) -> int:
        """Rows of the range that are of the commit that they were of before."""
        start, end = self._replayed
        after = oracle.commit_times(self.stored)
        return sum(
            1
            for (partition, offset), instant in before.items()
            if partition == 0 and start <= offset < end and after.get((partition, offset)) == instant
        )

    # ---- Records

    @property
    def produced_count(self) -> int:
        return len(self.records.expected)

    def produce(self, count: int) -> None:
        """Produces `count` records to each partition and waits until they are acknowledged. Threads may do so at once."""
        self.records.produce(count)

    def await_all_committed(self) -> None:
        wait_for(
            self._all_committed,
            f"all {len(self.records.expected)} records are in {self.stored.base_path}",
            RECOVER_SECONDS,
            pause_seconds=0.5,
        )

    def _all_committed(self) -> bool:
        if self.platform.supervised and (dead := self.stack.dead()):
            self._say(f"{', '.join(dead)} ended by itself, and is started again")
            self.stack.restore()
        return self.records.all_in(self.stored)

    def _await_settled(self) -> None:
        """The consumer group and the ledger say what the table says, a few ticks later at most."""
        with suppress(NotInTime):
            wait_for(lambda: not self._stale(), "the ledger and the group agree", 120, pause_seconds=1.0)

    def _stale(self) -> Counter[str]:
        return self.stack.stale(self.name, self.stored, self.records.ends())

    def _let_age(self, folder: str, seconds: float) -> None:
        self.platform.let_age(self.name, self.stored.files(folder), seconds)

    def _settings_of(self, block: int) -> dict[str, Any]:
        settings = _pipeline(block, self.platform.place(f"chaos{block}"))
        if not self._blocks[block].keyed:
            return settings
        source = {"starting_offsets": "earliest"}
        if not self._blocks[block].mirrors:
            return _changed(settings, {"table": KEYED_TABLE, "source": source})
        source |= {"envelope": "debezium", "before_image": "row"}
        return _changed(settings, {"table": MIRRORED_TABLE, "source": source})


def _pipeline(block: int, place: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": f"chaos{block}",
        "source": {
            "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
            "topics": [f"chaos{block}"],
            "starting_offsets": "latest",
        },
        "table": {
            **place,
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
            # The ops of every second table's runs share the run's process.
            "ops": "parallel" if block % 2 == 0 else "one",
        },
    }


def _changed(settings: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return settings | {
        block: {**settings[block], **change} if isinstance(change, Mapping) else change
        for block, change in changes.items()
    }


def _is_broker(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any("kafka.Kafka" in word for word in process.cmdline())
    return False
