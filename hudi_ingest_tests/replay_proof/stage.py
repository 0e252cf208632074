"""What the proof stands on: a whole stack, a pipeline with a converter of its own, producers, and the reader's process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path, PurePosixPath

import sqlalchemy as sa
import yaml
from confluent_kafka import Producer

from benchmarks.sites import BUCKET, CLUSTER, Site, started_site
from hudi_ingest.home.folder import Home
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import free_port
from hudi_ingest.local.stack import Stack, StackSettings, bring_down, bring_up
from hudi_ingest_tests.chaos.oracle import TIMELINE, StoredTable
from hudi_ingest_tests.replay_proof import reader
from hudi_ingest_tests.replay_proof.judge import Transaction
from hudi_ingest_tests.replay_proof.poll import Poll
from hudi_ingest_tests.support.switching import turn
from hudi_ingest_tests.support.waiting import wait_for

NAME = "orders"
PARTITIONS = 4
HOURS = 3
"""The range's records are of so many whole hours, the last before this one."""
INTERVAL_SECONDS = 5.0
TIMEOUT_SECONDS = 300
LOG_EVERY_SECONDS = 0.25
_SIDES = ("north", "south")

CONVERTER = '''\
"""How orders become rows. Amounts are sent in cents."""

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.converter import Decoded
from hudi_ingest.records.convert.formats import converter_for

CENTS_AN_AMOUNT = {divisor}


class Orders:
    def __init__(self, schema, options):
        self._schema = schema
        self._sent = converter_for("json", pa.schema([each for each in schema if each.name != "amount"]))

    def decode(self, values):
        sent = self._sent.decode(values)
        amount = pc.divide(pc.cast(sent.rows["cents"], pa.float64()), CENTS_AN_AMOUNT)
        columns = [amount if name == "amount" else sent.rows[name] for name in self._schema.names]
        return Decoded(pa.RecordBatch.from_arrays(columns, schema=self._schema), sent.kept, sent.rejected)
'''


class Stage:
    """Start it with `with`; all that it started is stopped again. `on`: one of benchmarks' SITES."""

    def __init__(self, root: Path, on: str, most_records: int, say: Callable[[str], None]) -> None:
        self.home = Home(root, root / "pipelines", f"sqlite:///{root / 'ledger.db'}")
        self.polls_file = root / "polls.jsonl"
        now = datetime.now(timezone.utc)
        self.to_time = now.replace(minute=0, second=0, microsecond=0)
        self.from_time = self.to_time - timedelta(hours=HOURS)
        self._on = on
        self._most_records = most_records
        self._say = say
        self._code = root / "code"
        self._running = ExitStack()
        self._ended = threading.Event()
        self._reader: subprocess.Popen[str] | None = None
        self._live: threading.Thread | None = None
        self._dice = random.Random(1)
        self._next = [0] * PARTITIONS
        self.acknowledged: list[tuple[float, int]] = []
        """When how many records were acknowledged by the broker, from the beginning of the live load."""
        self.failed: list[str] = []

    def __enter__(self) -> Stage:
        self.home.pipelines.mkdir(parents=True)
        self._code.mkdir()
        self.convert_by(1)
        # Whatever runs the pipeline imports its converter from here.
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(self._code), before]))
        try:
            engine = {"driver_memory": "1g"} if self._on == CLUSTER else {}
            site = self._running.enter_context(started_site(self._on, engine, self.home, self._say))
            self.table = self._stored(site)
            self.home.engine_settings_file.write_text(yaml.safe_dump(dict(site.engine)))
            (self.home.pipelines / f"{NAME}.yaml").write_text(yaml.safe_dump(self._pipeline(site), sort_keys=False))
            self.stack: Stack = bring_up(self.home, StackSettings(free_port(), free_port()), self._say)
        except BaseException:
            self._stop()
            raise
        create_topic(self.stack.bootstrap_servers, NAME, PARTITIONS)
        self._producer = Producer(
            {
                "bootstrap.servers": self.stack.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "log_level": 0,
                "queue.buffering.max.messages": 500_000,
            }
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.join(60)
        if self._reader is not None and self._reader.poll() is None:
            self._reader.kill()
            self._reader.wait()
        self._stop()

    def _stop(self) -> None:
        bring_down(self.home, self._say)
        self._running.close()

    def _stored(self, site: Site) -> StoredTable:
        if site.store is not None:
            return StoredTable.in_store(site.store, f"{BUCKET}/{NAME}")
        return StoredTable.on_disk(self.home.tables / NAME)

    def _pipeline(self, site: Site) -> dict[str, object]:
        return {
            "name": NAME,
            "source": {
                "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
                "topics": [NAME],
                "format": "shop_orders:Orders",
            },
            "table": {
                # When a transaction ended is read from the timeline, so nothing of it may be archived meanwhile.
                "retain_commits": 500,
                "base_path": self.table.base_path,
                **({"storage": dict(site.storage)} if site.storage is not None else {}),
                "schema": "n long NOT NULL, cents long NOT NULL, amount double NOT NULL, side string NOT NULL",
                "partition_by": ["side"],
            },
            "transaction": {
                "interval_seconds": INTERVAL_SECONDS,
                "max_records": self._most_records,
                "timeout_seconds": TIMEOUT_SECONDS,
            },
        }

    # ---- The converter

    def convert_by(self, version: int) -> None:
        """Puts this version of the converter in place; who imports it sees one or the other."""
        partial = self._code / "shop_orders.partial"
        partial.write_text(CONVERTER.format(divisor=reader.CENTS_AN_AMOUNT[version - 1]))
        partial.rename(self._code / "shop_orders.py")

    # ---- Records

    def produce_range(self, count: int) -> dict[int, int]:
        """Produces `count` records, evenly over the hours, and returns partition → offset behind its last."""
        first = int(self.from_time.timestamp() * 1000)
        span = HOURS * 3_600_000
        for number in range(count):
            self._send(number % PARTITIONS, first + number * span // count)
        self._flush()
        return dict(enumerate(self._next))

    def begin_live(self, per_second: int) -> None:
        """From now on about `per_second` records a second are produced until `end_live`."""
        self._live = threading.Thread(target=self._keep_producing, args=(per_second,), name="producer", daemon=True)
        self._live.start()

    def end_live(self) -> None:
        """Returns when all is acknowledged."""
        self._ended.set()
        assert self._live is not None
        self._live.join(120)
        assert not self.failed, self.failed[0]

    @property
    def produced(self) -> int:
        return sum(self._next)

    def produced_to(self, partition: int) -> int:
        """The offset behind the partition's last record."""
        return self._next[partition]

    def _keep_producing(self, per_second: int) -> None:
        acknowledged = self.produced
        noted = 0.0

        def delivered(error: object, message: object) -> None:
            nonlocal acknowledged
            acknowledged += error is None
            if error is not None:
                self.failed.append(str(error))

        began, sent = time.monotonic(), 0
        while not self._ended.wait(0.05):
            due = int((time.monotonic() - began) * per_second)
            for number in range(sent, due):
                self._send(number % PARTITIONS, int(time.time() * 1000), delivered)
            sent = due
            if time.time() - noted > LOG_EVERY_SECONDS:
                noted = time.time()
                self.acknowledged.append((noted, acknowledged))
        self._flush()
        self.acknowledged.append((time.time(), acknowledged))

    def _send(self, partition: int, timestamp: int, delivered: Callable[[object, object], None] | None = None) -> None:
        number = self._next[partition]
        value = json.dumps({"n": number, "cents": self._dice.randrange(1, 100_000), "side": _SIDES[number % 2]})
        while True:
            try:
                self._producer.produce(
                    NAME, value.encode(), partition=partition, timestamp=timestamp, on_delivery=delivered or self._noted
                )
                break
            except BufferError:
                self._producer.poll(0.5)
        self._next[partition] = number + 1
        self._producer.poll(0)

    def _noted(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))

    def _flush(self) -> None:
        left = self._producer.flush(120)
        assert not left and not self.failed, f"{left} records are not acknowledged: {self.failed[:1]}"

    # ---- The reader

    def begin_reading(self) -> None:
        with self.polls_file.open("w") as polls:
            self._reader = subprocess.Popen(
                [sys.executable, str(Path(reader.__file__))],
                stdin=subprocess.PIPE,
                stdout=polls,
                text=True,
            )
        assert self._reader.stdin is not None
        self._reader.stdin.write(json.dumps([self.table.base_path, dict(self.table.options)]) + "\n")
        self._reader.stdin.flush()

    def end_reading(self) -> None:
        """Returns when the reader has polled once more and ended."""
        assert self._reader is not None
        self._reader.communicate(timeout=120)
        assert self._reader.returncode == 0, f"the reader ended with {self._reader.returncode}"

    def polls(self) -> list[Poll]:
        return [Poll.from_json(line) for line in self._lines()]

    def newest_poll(self) -> Poll | None:
        """The newest that could read the table."""
        assert self._reader is not None
        assert self._reader.poll() is None, "the reader has ended"
        return next((poll for line in reversed(self._lines()) if not (poll := Poll.from_json(line)).error), None)

    def _lines(self) -> list[str]:
        """Those that are whole."""
        return self.polls_file.read_text().split("\n")[:-1]

    def await_rows(self, ends: Mapping[int, int], seconds: float) -> None:
        """Returns when the reader has seen all partitions up to these offsets."""

        def there() -> bool:
            poll = self.newest_poll()
            return poll is not None and all(poll.ends.get(partition, 0) >= end for partition, end in ends.items())

        wait_for(there, f"the reader sees {sum(ends.values()):,} rows", seconds, pause_seconds=1.0)

    # ---- Transactions

    def transactions(self) -> list[Transaction]:
        """The committed ones, as the ledger and the names of the timeline's files tell them."""
        ended = {
            stem.split("_")[0]: stem.split("_")[1]
            for name in self.table.names(TIMELINE)
            if name.endswith("commit") and "_" in (stem := PurePosixPath(name).stem)
        }
        engine = sa.create_engine(self.home.ledger_url)
        with engine.connect() as connection:
            rows = connection.execute(
                sa.text(
                    "SELECT t.transaction_id, t.instant, s.partition, s.start_offset, s.end_offset"
                    " FROM ingest_transactions t JOIN ingest_slices s ON s.transaction_id = t.transaction_id"
                    " WHERE t.state = 'committed' ORDER BY t.instant"
                )
            ).all()
        engine.dispose()
        slices: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
        for name, instant, partition, start, end in rows:
            slices.setdefault((name, instant), {})[partition] = (start, end)
        return [
            Transaction(name, instant, _kind(name), _seconds(instant), _seconds(ended[instant]), found)
            for (name, instant), found in slices.items()
        ]

    # ---- Dagster

    def begin_ticks(self) -> None:
        turn(self.home, NAME, True)

    def end_ticks(self) -> None:
        turn(self.home, NAME, False)


def _kind(transaction_id: str) -> str:
    words = transaction_id.split("-")
    return words[2] if words[2] in ("replay", "backfill") else "ingest"


def _seconds(instant: str) -> float:
    """Seconds since the epoch of a Hudi instant, which is in UTC."""
    at = datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
    return at.timestamp() + int(instant[14:17] or 0) / 1000
