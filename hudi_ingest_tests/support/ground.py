"""What a test stands on: a pipeline file, a producer, the protocol over the real ports, and ways to look at the table."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from hudi import HudiTable
from pyspark.sql import SparkSession

from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE, Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.broker import create_topic
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.plan.planning import plan_now
from hudi_ingest.transaction.protocol import TransactionProtocol
from hudi_ingest.transaction.run import protocol_for, run_transaction
from hudi_ingest_tests.simulation.trace import judge
from hudi_ingest_tests.support.waiting import wait_for


@dataclass
class Ground:
    """One test's names and places. `produced` is what the broker acknowledged: (partition, offset) → id."""

    name: str
    bootstrap_servers: str
    home: Home
    produced: dict[tuple[int, int], str] = field(default_factory=dict)
    _ledgers: list[Ledger] = field(default_factory=list)

    @property
    def base_path(self) -> str:
        return str(self.home.root / "table")

    @cached_property
    def ledger(self) -> Ledger:
        found = Ledger.open(self.home.ledger_url)
        self._ledgers.append(found)
        return found

    @cached_property
    def producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5, "log_level": 0})

    def transactional_producer(self) -> Producer:
        """A producer that has begun no transaction. The broker aborts those that are open for ten minutes, however slow the machine."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 600_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(120)
        return producer

    def send(self, partition: int, values: Iterable[bytes | None], ids: Sequence[str] | None = None) -> None:
        """Produces raw values to one partition and waits until they are acknowledged."""
        for index, value in enumerate(values):
            identifier = ids[index] if ids else ""

            def delivered(error: object, message: Any, identifier: str = identifier) -> None:
                assert error is None, error
                if identifier:
                    self.produced[message.partition(), message.offset()] = identifier

            self.producer.produce(self.name, value, partition=partition, on_delivery=delivered)
            self.producer.poll(0)
        assert self.producer.flush(120) == 0

    def send_rows(self, partition: int, count: int, start: int = 0) -> None:
        """Produces `count` good records of the small pipeline, over three days."""
        numbers = range(start, start + count)
        ids = [f"{partition}-{number}" for number in numbers]
        self.send(
            partition,
            [
                json.dumps({"id": i, "n": n, "dt": f"2026-01-0{n % 3 + 1}"}).encode()
                for i, n in zip(ids, numbers, strict=True)
            ],
            ids,
        )

    def make_again(self, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Deletes the topic and makes another one of that name."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.delete_topics([self.name])[self.name].result(300)
        wait_for(lambda: self.name not in admin.list_topics(timeout=300).topics, "the topic is gone")
        create_topic(self.bootstrap_servers, self.name, partitions, config)
        # The old producer knows the old topic.
        del self.producer
        self.produced.clear()

    def plan(self, pipeline: Pipeline) -> TransactionPlan:
        return plan_now(pipeline)

    def protocol(self, pipeline: Pipeline) -> TransactionProtocol:
        return protocol_for(pipeline, self.ledger, current_session(self.home), self.home)

    def run(self, pipeline: Pipeline, plan: TransactionPlan | None = None) -> CommitReceipt:
        return run_transaction(pipeline, home=self.home, plan=plan)

    def rows(self) -> pa.Table:
        """All rows, read by hudi-rs."""
        return pa.Table.from_batches(HudiTable(self.base_path).read())

    def set_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make its home that of this process, and of those that it starts."""
        monkeypatch.setenv(HOME_VARIABLE, str(self.home.root))
        monkeypatch.setenv(PIPELINES_VARIABLE, str(self.home.pipelines))
        monkeypatch.setenv(LEDGER_VARIABLE, self.home.ledger_url)

    def data_files(self) -> list[Path]:
        return sorted(Path(self.base_path).rglob("*.parquet"), key=str) if Path(self.base_path).exists() else []

    def close(self) -> None:
        for ledger in self._ledgers:
            ledger.dispose()


def write_pipeline(ground: Ground, name: str | None = None, file: str | None = None, **changes: Any) -> Path:
    """A pipeline file of the ground's topic; `changes` replace whole keys of its blocks, as `table={"schema": …}`."""
    settings: dict[str, Any] = {
        "name": name or ground.name,
        "source": {
            "bootstrap_servers": ground.bootstrap_servers,
            "topics": [ground.name],
            "format": "json",
            # A broker on a busy machine is slow, and not away.
            "request_timeout_seconds": 20,
        },
        "table": {
            "base_path": ground.base_path,
            "schema": "id string, n long, dt string",
            "partition_by": ["dt"],
        },
        # The tests' transactions are small, and most of what they ask is how ops work together.
        "transaction": {"timeout_seconds": 120, "retry_delay_seconds": 1, "ops": "parallel"},
    }
    for block, change in changes.items():
        settings[block] = {**settings.get(block, {}), **change} if isinstance(change, Mapping) else change
    if "topics_pattern" in settings["source"]:
        del settings["source"]["topics"]
    path = ground.home.pipelines / (file or f"{settings['name']}.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(settings))
    return path


@contextmanager
def fresh_ground(bootstrap_servers: str, root: Path) -> Iterator[Ground]:
    """A ground that nobody shares, with its home in `root`; closed afterwards."""
    home = Home(root=root, pipelines=root / "pipelines", ledger_url=f"sqlite:///{root / 'ledger.db'}")
    ground = Ground(name=f"t{uuid.uuid4().hex[:10]}", bootstrap_servers=bootstrap_servers, home=home)
    yield ground
    ground.close()
    judge(home.transactions_log)


def contents(ground: Ground, spark: SparkSession) -> list[tuple[int, str]]:
    """(n, id) of all rows; hudi-rs, Spark, and Spark without the metadata table must agree."""
    by_rust = sorted((row["n"], row["id"]) for row in ground.rows().select(["n", "id"]).to_pylist())
    for metadata_table in ("true", "false"):
        reader = spark.read.format("hudi").option("hoodie.metadata.enable", metadata_table)
        rows = reader.load(ground.base_path).select("n", "id").collect()
        assert sorted((row.n, row.id) for row in rows) == by_rust
    return by_rust


def produced(ground: Ground) -> list[tuple[int, str]]:
    """What contents() is when nobody deleted or changed anything."""
    return sorted((int(each.split("-")[1]), each) for each in ground.produced.values())


def make_pipeline(ground: Ground, **changes: Any) -> Pipeline:
    return load_pipeline(write_pipeline(ground, **changes))
