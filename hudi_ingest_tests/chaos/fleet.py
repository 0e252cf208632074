"""`make chaos-fleet CASES=40`: a template of 20 topics, one of them broken, under faults of what all its pipelines share.

Meanwhile topics appear and disappear. Each fault must leave every other table exact; the broken one stays named and empty.
Ends on one line and exits 1 on any anomaly, and when no process came to the point of a case.
"""

from __future__ import annotations

import argparse
import itertools
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.stack import CODE_SERVER, DAEMON, ENGINE, run_processes
from hudi_ingest_tests.chaos import oracle
from hudi_ingest_tests.chaos.cases import Blow, never_reached
from hudi_ingest_tests.chaos.oracle import StoredTable
from hudi_ingest_tests.chaos.platform import LocalPlatform, variables
from hudi_ingest_tests.chaos.records import PARTITIONS, Records
from hudi_ingest_tests.chaos.stack import StruckStack, go_on
from hudi_ingest_tests.simulation import trace
from hudi_ingest_tests.support.command_line import hudi_ingest
from hudi_ingest_tests.support.waiting import NotInTime, wait_for

TOPICS = 20
MOVED = 6
"""Topics that get records in a case."""
ROWS = 30
RECOVER_SECONDS = 300
TIMEOUT_SECONDS = 60
TEMPLATE = "fleet"
BROKEN = "fleet_broken"
"""Its table cannot be made, because a file lies where its folder belongs."""

FAULTS = {
    "kill": ("tick_planned",),
    "raise": ("tick_planned",),
    "kill_daemon": ("tick_planned", "instant_recorded", "rows_written", "commit_landed"),
    "kill_code_server": ("tick_planned", "instant_recorded", "commit_landed"),
    "kill_code_child": ("instant_recorded", "commit_landed"),
    "kill_engine": ("rows_written", "commit_leased"),
    "kill_worker": ("instant_begun", "commit_landed"),
}
"""`kill` and `raise` hit the process in which the template's sensor is evaluated."""
TOPIC_CHANGES = ("", "a topic appears", "a topic disappears")


@dataclass(frozen=True, slots=True)
class FleetCase:
    number: int
    blow: Blow
    change: str

    def __str__(self) -> str:
        return f"case {self.number}: {self.blow}" + f" while {self.change}" * bool(self.change)


def choose_fleet(count: int, seed: int) -> tuple[FleetCase, ...]:
    """`count` cases, so that few of them, too, have every fault and every change."""
    dice = random.Random(seed)
    blows = [Blow(point, fault) for fault, points in FAULTS.items() for point in points]
    dice.shuffle(blows)
    turns = itertools.zip_longest(*([blow for blow in blows if blow.fault == fault] for fault in FAULTS))
    in_turn = itertools.cycle([blow for turn in turns for blow in turn if blow is not None])
    return tuple(
        FleetCase(number, blow, TOPIC_CHANGES[(number + number // len(blows)) % len(TOPIC_CHANGES)])
        for number, blow in zip(range(1, count + 1), in_turn, strict=False)
    )


class Fleet:
    """The template's topics and tables. Start it with `with`."""

    def __init__(self, platform: LocalPlatform, seed: int) -> None:
        self._platform = platform
        self.stack = StruckStack(platform, {TEMPLATE: _template()})
        self._dice = random.Random(seed)
        self._records: dict[str, Records] = {}
        """Of each topic that there is, without the broken one."""
        self._gone: dict[str, Records] = {}
        """Of each topic that was deleted: its table stays as it was."""
        self._next = itertools.count(1)

    def __enter__(self) -> Fleet:
        tables = self._platform.root / "tables"
        tables.mkdir(exist_ok=True)
        (tables / BROKEN).write_text("no folder")
        self.stack.__enter__()
        servers = self.stack.running.bootstrap_servers
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0})
        create_topic(servers, BROKEN, PARTITIONS)
        for _ in range(TOPICS - 1):
            self._add_topic()
        self._broken = Records(BROKEN, self._producer)
        self._broken.produce(ROWS)
        for records in self._records.values():
            records.produce(ROWS)
        self._await_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.__exit__()

    def run(self, case: FleetCase) -> bool:
        """Strike, and return when all records are in their tables; False when no process came to the point. Raises NotInTime."""
        gone = self._delete_topic() if case.change == "a topic disappears" else None
        self.stack.forget_orders()
        self.stack.arm(case.blow)
        if case.change == "a topic appears":
            self._add_topic().produce(ROWS)
        for topic in self._dice.sample(sorted(self._records), MOVED):
            self._records[topic].produce(ROWS)
        self._broken.produce(1)
        try:
            process = self.stack.await_blow(case.blow)
        except NotInTime:
            return False
        if process is not None:
            self._hit(case.blow.fault)
            go_on(process)
        self.stack.restore()
        self._await_all()
        if gone is not None:
            forgotten = hudi_ingest(self.stack.home, "topics", TEMPLATE, "--forget", gone)
            assert not forgotten.returncode, forgotten.stderr
        return True

    def anomalies(self) -> Counter[str]:
        """Of all tables as they are now."""
        found: Counter[str] = Counter()
        for topic, records in (self._records | self._gone).items():
            found += records.compare(self._stored(topic))
        for topic, records in self._records.items():
            found += self._settled(topic, records)
        shown = hudi_ingest(self.stack.home, "status", BROKEN)
        found["unnamed"] += BROKEN not in shown.stderr or shown.returncode != 1
        return +found

    def finish(self) -> Counter[str]:
        """Anomalies that stay after the sweep, when no run is under way."""
        found = self.anomalies()
        wait_for(lambda: not run_processes(self.stack.running), "the runs have ended", RECOVER_SECONDS)
        for topic in self._records:
            stored = self._stored(topic)
            found["stale-instant"] += len(oracle.pending_instants(stored))
            found["sweep"] += bool(self.stack.sweep(topic, stored, 2 * TIMEOUT_SECONDS))
            found["orphan"] += len(oracle.orphans(stored))
            found["left-over"] += len(oracle.left_overs(stored))
        if broken := trace.violation(trace.read(self.stack.home.transactions_log)):
            _say(broken)
            found["out-of-order"] += 1
        return +found

    def _settled(self, topic: str, records: Records) -> Counter[str]:
        found = self.stack.stale(topic, self._stored(topic), records.ends())
        if found:
            try:
                wait_for(lambda: not self.stack.stale(topic, self._stored(topic), records.ends()), "all agree", 120)
            except NotInTime:
                return found
        return Counter()

    def _await_all(self) -> None:
        missing = dict(self._records)

        def none_is_missing() -> bool:
            for topic in [topic for topic, records in missing.items() if records.all_in(self._stored(topic))]:
                del missing[topic]
            return not missing

        wait_for(none_is_missing, f"all records of {TEMPLATE} are in their tables", RECOVER_SECONDS, pause_seconds=0.5)

    def _add_topic(self) -> Records:
        topic = f"fleet_{next(self._next):02d}"
        create_topic(self.stack.running.bootstrap_servers, topic, PARTITIONS)
        self._records[topic] = records = Records(topic, self._producer)
        return records

    def _delete_topic(self) -> str:
        """Delete a topic whose records are all in its table."""
        topic = self._dice.choice(sorted(self._records))
        self._gone[topic] = self._records.pop(topic)
        admin = AdminClient({"bootstrap.servers": self.stack.running.bootstrap_servers})
        admin.delete_topics([topic])[topic].result(60)
        return topic

    def _hit(self, fault: str) -> None:
        if fault == "kill_code_child":
            self.stack.kill_code_child()
        elif fault == "kill_worker":
            self.stack.kill_run_workers()
        else:
            self.stack.kill({"kill_daemon": DAEMON, "kill_code_server": CODE_SERVER, "kill_engine": ENGINE}[fault])

    def _stored(self, topic: str) -> StoredTable:
        return self._platform.stored(topic)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos-fleet")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    options = parser.parse_args()
    _say(f"seed={options.seed} cases={options.cases} topics={TOPICS}")
    root = Path(tempfile.mkdtemp(prefix="hudi-ingest-chaos-fleet-"))
    anomalies: Counter[str] = Counter()
    tried: list[tuple[str, bool]] = []
    began = time.monotonic()
    with variables(root / "faults"), Fleet(LocalPlatform(root, None, None), options.seed) as fleet:
        _say(f"all topics are in their tables after {time.monotonic() - began:.0f} s")
        for case in choose_fleet(options.cases, options.seed):
            reached, found = _run(fleet, case)
            tried.append((str(case), reached))
            anomalies += found
        anomalies += fleet.finish()
    missed = never_reached(tried)
    if anomalies:
        _say(f"everything is kept in {root}")
    else:
        shutil.rmtree(root, ignore_errors=True)
    _say(f"{(time.monotonic() - began) / 60:.1f} minutes; by name: {dict(anomalies) or 'none'}")
    _say(f"cases={len(tried) - len(missed)} anomalies={anomalies.total()} not_reached={len(missed)}")
    return 1 if anomalies or missed else 0


def _run(fleet: Fleet, case: FleetCase) -> tuple[bool, Counter[str]]:
    began = time.monotonic()
    reached, found, detail = True, Counter[str](), ""
    try:
        reached = fleet.run(case)
        found = fleet.anomalies()
    except NotInTime as error:
        found["stuck"] += 1
        detail = f" {error}"
    shown = ", ".join(f"{name}={times}" for name, times in found.items()) or "exact"
    missed = "" if reached else " NOT REACHED"
    _say(f"{case}: {shown} in {time.monotonic() - began:.0f} s{missed}{detail}")
    return reached, found


def _template() -> dict[str, object]:
    return {
        "name": "{topic}",
        "enabled": True,
        "source": {
            "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
            "topics_pattern": "fleet_.+",
        },
        "table": {
            "base_path": "${HUDI_INGEST_TABLES}/{topic}",
            "schema": "id string, n long, dt string",
            "partition_by": ["dt"],
        },
        "on_bad_record": "dead_letter",
        "transaction": {
            "interval_seconds": 5,
            "timeout_seconds": TIMEOUT_SECONDS,
            "retries": 1,
            "retry_delay_seconds": 0.2,
        },
    }


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
