"""A fleet of pipelines as the collector sees it, without brokers and tables: a few in each state, the others well."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

from hudi_ingest.exceptions import IngestError, KafkaUnreachable
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger, Overview
from hudi_ingest.ledger.tables import TRANSACTIONS
from hudi_ingest.metrics.families import Scene
from hudi_ingest.model.finding import answer
from hudi_ingest.operations.health.judgement import (
    DEAD_LETTERS,
    LAG_BELOW_LIMIT,
    OFFSETS_HONOURED,
    RUNS_SUCCEED,
    UP_TO_DATE,
)
from hudi_ingest.operations.looks import Timeout
from hudi_ingest.operations.state import PartitionState, PipelineState
from hudi_ingest_tests.support.observations import open_row
from hudi_ingest_tests.support.pipeline_files import pipeline_named

RUN = "793acfd8-4a4e-4c1c-9a58-0d7c53f64a11"
HOSTILE = "1 record of orders:2 cannot become a row. Its field <script>alert('note')</script> & \"more\" is no number: correct the schema."

NAMES = ("orders", "payments", "returns", "stock", "visits", "clicks", "carts", "refunds", "invoices", "shipments")


def scene(count: int, now: datetime) -> Scene:
    """`count` pipelines, ten at least: the first six are not well, each in a way of its own."""
    records = [_record(number, now) for number in range(count)]
    opened = open_row(records[7].name, now - timedelta(seconds=12))
    ledger = Overview(open={opened.table: opened}, requests={(records[8].name, "replay"): 1})
    return Scene(now, 0.1, tuple(records), ("shop.yaml",), ledger, dagster_up=True, versions=("0.1.0", "3.11"))


def name_of(number: int) -> str:
    return f"{NAMES[number % len(NAMES)]}_{number:03d}" if number >= len(NAMES) else NAMES[number]


def _record(number: int, now: datetime) -> PipelineState:
    name = name_of(number)
    lags = [0, 0, 0, 0] if number % 4 else [120, 35, 0, 210]
    findings = [answer(name, UP_TO_DATE, True, "No records are waiting."), answer(name, LAG_BELOW_LIMIT, True, "0.")]
    error: IngestError | None = None
    activity, on, stopped = "on", True, False
    if number == 0:
        figures = {"newest failed run": RUN}
        findings.append(answer(name, RUNS_SUCCEED, False, f"The last 3 runs of {name} failed: {HOSTILE}", figures))
        lags = [48_210, 51_877, 47_002, 49_655]
    elif number == 1:
        text = f"- {name}:0: the next offset to read is 221, but the broker's first is 231: up to 10 records were deleted by retention. Run `hudi-ingest accept-loss {name}`."
        findings.append(answer(name, OFFSETS_HONOURED, False, text))
        stopped = True
    elif number == 2:
        error = KafkaUnreachable("broker kafka-3.example.com:9092 did not answer within 10 s. Start it.")
    elif number == 3:
        text = "12 dead letters pending: `hudi-ingest dead-letters list stock` says why."
        findings.append(answer(name, DEAD_LETTERS, False, text, warns=True))
    elif number == 4:
        error = Timeout("Its table has not answered within 8 s.")
    elif number == 5:
        activity, on = f"paused: `hudi-ingest resume {name}` turns it on", False
    partitions = tuple(
        PartitionState(
            name, partition, 9_000 + number, 9_000 + number + lag, lag, None, None, stopped and not partition, lag / 40
        )
        for partition, lag in enumerate(lags)
        if not error
    )
    return PipelineState(
        pipeline_named(name, transaction__interval_seconds=10),
        sequence=None if isinstance(error, Timeout) else 1_204 + number,
        partitions=partitions,
        last_committed_at=None if isinstance(error, Timeout) else now - timedelta(seconds=7 + number % 50),
        lag_seconds=None if error else max(lags) / 40,
        error=error,
        on=on,
        activity=activity,
        findings=() if error else tuple(findings),
    )


def fill_ledger(home: Home, shown: Scene, every_minutes: int = 5) -> None:
    """Give each pipeline but the fifth three hours of commits, and the first an aborted transaction after them."""
    chance = random.Random(7)
    rows = [
        _transaction(record, sequence, shown.at - timedelta(minutes=180 - sequence * every_minutes), chance)
        for number, record in enumerate(shown.pipelines)
        if number != 4
        for sequence in range(180 // every_minutes)
    ]
    first = shown.pipelines[0]
    aborted = {"state": "aborted", "rows": None, "files": None, "size_bytes": None, "instant": None, "reason": HOSTILE}
    rows.append({**_transaction(first, 1_000, shown.at - timedelta(seconds=40), chance), **aborted})
    with Ledger.open(home.ledger_url) as ledger, ledger.database.writing() as connection:
        connection.execute(TRANSACTIONS.insert(), rows)


def _transaction(record: PipelineState, sequence: int, ended: datetime, chance: random.Random) -> dict[str, Any]:
    pace = 40 + len(record.name) % 7 * 350
    rows = chance.randrange(pace, pace * 4)
    return {
        "transaction_id": f"{record.name}-{sequence}",
        "pipeline": record.name,
        "base_path": record.pipeline.table.base_path,
        "sequence": sequence,
        "epoch": sequence + 1,
        "state": "committed",
        "owner": f"dagster:{RUN}",
        "instant": f"{ended:%Y%m%d%H%M%S}000",
        "began_at": ended - timedelta(seconds=4),
        "deadline": ended,
        "ended_at": ended,
        "rows": rows,
        "files": 4,
        "size_bytes": rows * 61,
        "reason": None,
    }
