"""Whether disk use stays flat over a month of tiny transactions, with housekeeping each day.

Real transactions of a stack give the records: `python -m benchmarks.month SAMPLE WORK` takes a copy of the home of a stack that has run
some, and repeats them, with new ids and at the times of a month, in Dagster's SQLite storage and in the ledger: runs, tags, events,
databases of runs, step logs, results, ticks and their logs, evaluations of checks, observations, transactions, slices and attempts.
The clock that housekeeping sees goes on day by day.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from dagster import DagsterInstance

from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.orchestration.housekeeping import Housekeeping, HousekeepingReport
from hudi_ingest.orchestration.pipeline_definitions import OwnDefinitions
from hudi_ingest.pipeline.code_location import HousekeepingSettings

DAYS = 30
TRANSACTIONS = 10_000
_ENDED = "SUCCESS"


@dataclass(frozen=True, slots=True)
class Day:
    """What is on the disk at the end of a day, before and after housekeeping."""

    number: int
    transactions: int
    bytes_added: int
    bytes_before: int
    bytes_after: int
    seconds: float
    report: HousekeepingReport | None


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield connection


def tree_bytes(*roots: Path) -> int:
    files = [file for root in roots for file in ([root] if root.is_file() else root.rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file())


class Repeater:
    """Adds copies of the sample's transactions to a Dagster folder and a ledger."""

    def __init__(self, sample: Path, work: Path) -> None:
        """`sample`: a copy of the sample's home that stays as it is, because housekeeping deletes its runs from `work`, too."""
        self._sample, self._dagster, self._ledger = sample / "dagster", work / "dagster", work / "ledger.db"
        self._runs_folder = self._dagster / "history" / "runs"
        dagster = self._sample
        with database(dagster / "history" / "runs.db") as runs:
            query = "SELECT run_id FROM runs WHERE status = ? AND pipeline_name = '__ASSET_JOB' ORDER BY id"
            self.samples = [run_id for (run_id,) in runs.execute(query, (_ENDED,))]
            self._transaction_of = dict(
                runs.execute("SELECT run_id, value FROM run_tags WHERE key = 'hudi_ingest/transaction'").fetchall()
            )
        for run_id in self.samples:
            with database(dagster / "history" / "runs" / f"{run_id}.db") as events:
                events.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def repeat(self, times: Sequence[datetime], first: int) -> None:
        """Add a transaction at each of the times, which ascend; `first`: the number of the first."""
        copies = [
            (self.samples[number % len(self.samples)], str(uuid.uuid4()), time, first + number)
            for number, time in enumerate(times)
        ]
        with database(self._dagster / "history" / "runs.db") as runs:
            _attach(runs, self._sample / "history" / "runs.db")
            for sample, run_id, time, number in copies:
                replaced = {sample: run_id, self._transaction_of[sample]: self._new_transaction(sample, number)}
                _copy(runs, "runs", "run_id", sample, replaced, time, {"start_time": time, "end_time": time})
                _copy(runs, "run_tags", "run_id", sample, replaced, time)
        with database(self._runs_folder / "index.db") as index:
            _attach(index, self._sample / "history" / "runs" / "index.db")
            for sample, run_id, time, number in copies:
                replaced = {sample: run_id, self._transaction_of[sample]: self._new_transaction(sample, number)}
                _copy(index, "event_logs", "run_id", sample, replaced, time)
                _copy(index, "asset_check_executions", "run_id", sample, replaced, time)
        with database(self._ledger) as ledger:
            _attach(ledger, self._sample.parent / "ledger.db")
            for sample, _, time, number in copies:
                old, new = self._transaction_of[sample], self._new_transaction(sample, number)
                for table in ("ingest_transactions", "ingest_slices", "ingest_attempts"):
                    _copy(ledger, table, "transaction_id", old, {old: new}, time, {"epoch": 1_000_000 + number})
        for sample, run_id, _time, _ in copies:
            shutil.copyfile(self._sample / "history" / "runs" / f"{sample}.db", self._runs_folder / f"{run_id}.db")
            if (folder := self._sample / "storage" / sample).exists():
                shutil.copytree(folder, self._dagster / "storage" / run_id)
        self._repeat_ticks(times)
        self._repeat_reports(times)

    def _new_transaction(self, sample: str, number: int) -> str:
        return f"{self._transaction_of[sample].rpartition('-')[0].rpartition('-')[0]}-{number:06d}-{number:06x}"

    def _repeat_ticks(self, times: Sequence[datetime]) -> None:
        """One tick that launched a run, with its log, and one that skipped, for each transaction."""
        storage = self._sample / "storage"
        with database(self._dagster / "schedules" / "schedules.db") as schedules:
            _attach(schedules, self._sample / "schedules" / "schedules.db")
            launched = _ids(
                schedules, "SELECT id FROM sample.job_ticks WHERE status = 'SUCCESS' AND type = 'SENSOR' LIMIT 40"
            )
            skipped = _ids(
                schedules, "SELECT id FROM sample.job_ticks WHERE status = 'SKIPPED' AND type = 'SENSOR' LIMIT 40"
            )
            for number, time in enumerate(times):
                for kinds in (launched, skipped):
                    sample = kinds[number % len(kinds)]
                    new = _copy(schedules, "job_ticks", "id", sample, {}, time)
                    (body,) = schedules.execute("SELECT tick_body FROM job_ticks WHERE id = ?", (new,)).fetchone()
                    logs = [*storage.glob(f"__repository__/*/{sample}.*")]
                    for log in logs:
                        shutil.copyfile(
                            log, self._dagster / log.relative_to(self._sample).with_name(f"{new}{log.suffix}")
                        )
                    schedules.execute(
                        "UPDATE job_ticks SET tick_body = ? WHERE id = ?",
                        (body.replace(f'"{sample}"', f'"{new}"'), new),
                    )

    def _repeat_reports(self, times: Sequence[datetime]) -> None:
        """One event that a tick reported without a run for each transaction, in both of SQLite's databases."""
        with database(self._runs_folder / "index.db") as index, database(self._runs_folder / ".db") as runless:
            _attach(index, self._sample / "history" / "runs" / "index.db")
            samples = _ids(index, "SELECT id FROM sample.event_logs WHERE run_id = '' LIMIT 50")
            evaluated = dict(
                index.execute(
                    "SELECT evaluation_event_storage_id, id FROM sample.asset_check_executions WHERE run_id = ''"
                )
            )
            for number, time in enumerate(times):
                sample = samples[number % len(samples)]
                new = _copy(index, "event_logs", "id", sample, {}, time)
                row = index.execute(f"SELECT {_EVENT} FROM event_logs WHERE id = ?", (new,)).fetchone()
                runless.execute(f"INSERT INTO event_logs ({_EVENT}) VALUES ({_marks(row)})", row)
                if sample in evaluated:
                    of_event = {"evaluation_event_storage_id": new}
                    _copy(index, "asset_check_executions", "id", evaluated[sample], {}, time, of_event)


_EVENT = "run_id, event, dagster_event_type, timestamp, step_key, asset_key, partition"
_TIMES = {
    "create_timestamp",
    "update_timestamp",
    "timestamp",
    "evaluation_event_timestamp",
    "began_at",
    "deadline",
    "ended_at",
    "started_at",
}


def _attach(connection: sqlite3.Connection, sample: Path) -> None:
    connection.execute("ATTACH ? AS sample", (str(sample),))


def _ids(connection: sqlite3.Connection, query: str) -> list[int]:
    return [number for (number,) in connection.execute(query)]


def _marks(row: Sequence[object]) -> str:
    return ", ".join("?" * len(row))


def _copy(
    connection: sqlite3.Connection,
    table: str,
    key: str,
    value: object,
    replaced: Mapping[str, str],
    time: datetime,
    more: Mapping[str, object] | None = None,
) -> int:
    """Copy the sample's rows whose key has the value, with texts replaced, times set and some columns as `more` says; return the last id."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] != "id"]
    rows = connection.execute(f"SELECT {', '.join(columns)} FROM sample.{table} WHERE {key} = ?", (value,)).fetchall()
    last = 0
    for row in rows:
        values = dict(zip(columns, row, strict=True))
        for column, text in values.items():
            if isinstance(text, str):
                for old, new in replaced.items():
                    values[column] = values[column].replace(old, new)
            if column in _TIMES and text is not None:
                values[column] = f"{time.replace(tzinfo=None):%Y-%m-%d %H:%M:%S.%f}"
        for column, changed in (more or {}).items():
            if column in values:
                values[column] = changed.timestamp() if isinstance(changed, datetime) else changed
        inserted = connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({_marks(row)})", [*values.values()]
        )
        last = inserted.lastrowid or 0
    return last


def run_month(sample: Home, work: Path, transactions: int, settings: HousekeepingSettings) -> Iterator[Day]:
    """Yield each day of the month. `work` is made empty first."""
    shutil.rmtree(work, ignore_errors=True)
    for folder in (work / "sample", work):
        shutil.copytree(sample.dagster, folder / "dagster")
        for path in sample.root.glob("ledger.db*"):
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
    os.environ["DAGSTER_HOME"] = str(work / "dagster")
    from hudi_ingest.orchestration.definitions import defs

    own = OwnDefinitions.of(defs.get_repository_def())
    repeater = Repeater(work / "sample", work)
    began = datetime.now(timezone.utc)
    done, places = 0, (work / "dagster", work / "ledger.db", work / "ledger.db-wal")
    with DagsterInstance.get() as instance:
        housekeeping = Housekeeping(settings, own, Ledger.open(f"sqlite:///{work / 'ledger.db'}"), instance)
        size = tree_bytes(*(place for place in places if place.exists()))
        for number in range(1, DAYS + 1):
            count = transactions * number // DAYS - done
            start = began + timedelta(days=number - 1)
            repeater.repeat([start + timedelta(days=place / count) for place in range(count)], done + 1)
            done += count
            before = tree_bytes(*(place for place in places if place.exists()))
            clock = datetime.now()
            report = housekeeping.run(start + timedelta(days=1), lambda line: None)
            seconds = (datetime.now() - clock).total_seconds()
            after = tree_bytes(*(place for place in places if place.exists()))
            yield Day(number, done, before - size, before, after, seconds, report)
            size = after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sample", type=Path, help="home of a stack that is down and has run some transactions")
    parser.add_argument("work", type=Path, help="folder to work in, emptied first")
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS)
    arguments = parser.parse_args()
    home = Home(arguments.sample, arguments.sample / "pipelines", "")
    sys.stdout.write(
        "| day | transactions | MB with housekeeping | MB without | runs deleted | seconds |\n|---|---|---|---|---|---|\n"
    )
    without = 0
    for day in run_month(home, arguments.work, arguments.transactions, HousekeepingSettings()):
        without = without + day.bytes_added if day.number > 1 else day.bytes_before
        runs = day.report.runs if day.report else 0
        sys.stdout.write(
            f"| {day.number} | {day.transactions} | {day.bytes_after / 1e6:.0f} | {without / 1e6:.0f} | {runs} | {day.seconds:.1f} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
