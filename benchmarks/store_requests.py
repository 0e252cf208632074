"""Count a transaction's requests to an object store, and time it with a store that takes a while for each.

    python -m benchmarks.store_requests [--milliseconds 30] [--commits 9] [--details]

Two Kafka partitions, three table partitions, 40 records and six new files a transaction, all in one process; the store is
versitygw where it is installed, else moto, behind a proxy that counts and delays. The first commit creates the table, and every
twentieth cleans; the table shows the medians of the others.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.broker import BrokerSettings, create_topic, start_broker
from hudi_ingest.local.processes import free_port, stop
from hudi_ingest_tests.lab.object_store import find_versitygw, start_object_store
from hudi_ingest_tests.support.ground import Ground, fresh_ground, make_pipeline
from hudi_ingest_tests.support.s3_proxy import Request, S3Proxy, s3_proxy

BUCKET = "lake"
ROWS = 20
"""Records of each Kafka partition in a transaction."""
STEPS = ("plan", "begin", "write", "commit")
_CLIENTS = {"Hadoop": "JVM", "object_store": "hudi-rs"}


@dataclass(frozen=True)
class Step:
    seconds: float
    requests: Sequence[Request]

    @property
    def rounds(self) -> int:
        """The longest chain of requests of which each began after the one before was answered: what a slow store makes slow."""
        rounds, until = 0, float("-inf")
        for request in sorted(self.requests, key=lambda request: request.until):
            if request.at >= until:
                rounds, until = rounds + 1, request.until
        return rounds


def client_of(request: Request) -> str:
    return next((client for text, client in _CLIENTS.items() if text in request.client), "Python")


def subject_of(request: Request) -> str:
    """The kind of object that is asked for, without instants and other names of its own."""
    key = re.sub(r"^.*?/t[0-9a-f]{10}/?", "", request.key)
    key = re.sub(r"\d{17}(_\d{17})?", "<instant>", key)
    key = re.sub(r"dt=[^/]+", "dt=…", key)
    return re.sub(r"[^/]*\.parquet", "*.parquet", re.sub(r"\.files-0000[^/]*", "<log file>", key)) or "."


@contextmanager
def noted(proxy: S3Proxy, steps: dict[str, Step], name: str) -> Iterator[None]:
    first, began = len(proxy.requests), time.monotonic()
    yield
    steps[name] = Step(time.monotonic() - began, proxy.requests[first:])


def transaction(ground: Ground, proxy: S3Proxy, pipeline_settings: dict[str, object], number: int) -> dict[str, Step]:
    pipeline = make_pipeline(ground, table=pipeline_settings, transaction={"timeout_seconds": 900})
    for partition in (0, 1):
        ground.send_rows(partition, ROWS, number * ROWS)
    steps: dict[str, Step] = {}
    with noted(proxy, steps, "plan"):
        plan = ground.plan(pipeline)
    protocol = ground.protocol(pipeline)
    with noted(proxy, steps, "begin"):
        opened = protocol.begin(plan, Owner.this_process(), lambda run_id: None)
    with noted(proxy, steps, "write"):
        reports = protocol.write(opened, opened.plan.slices)
    with noted(proxy, steps, "commit"):
        protocol.commit(opened, reports)
    return steps


def show(transactions: Sequence[dict[str, Step]], details: bool, milliseconds: float) -> None:
    for name in STEPS:
        found = [steps[name] for steps in transactions]
        clients = Counter(client_of(request) for step in found for request in step.requests)
        shares = ", ".join(f"{client} {count / len(found):.1f}" for client, count in clients.most_common())
        say(
            f"{name:7} {median(len(step.requests) for step in found):6.0f} requests, {median(step.rounds for step in found):4.0f} in turn, "
            f"{median(step.seconds for step in found):6.2f} s   ({shares})"
        )
        if details:
            kinds = Counter(
                (client_of(request), request.kind, subject_of(request)) for step in found for request in step.requests
            )
            for (client, kind, subject), count in kinds.most_common():
                say(f"    {count / len(found):6.1f}  {client:6} {kind:11} {subject}")
    written = [[step for name, step in steps.items() if name != "plan"] for steps in transactions]
    totals = [sum(len(step.requests) for step in steps) for steps in written]
    rounds = median(sum(step.rounds for step in steps) for steps in written)
    seconds = median(sum(step.seconds for step in steps) for steps in written)
    say(
        f"begin, write and commit: {median(totals):.0f} requests ({min(totals)} to {max(totals)}), of which {rounds:.0f} in turn, "
        f"{seconds:.2f} s, of which {rounds * milliseconds / 1000 / seconds:.0%} the store's delay"
    )


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--milliseconds", type=float, default=30.0, help="how long the proxy delays each request")
    parser.add_argument("--commits", type=int, default=9)
    parser.add_argument("--delayed", type=int, default=3, help="how many of the last commits are delayed")
    parser.add_argument("--details", action="store_true", help="what each client asked for")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        broker = BrokerSettings(root / "kafka", free_port(), free_port())
        processes = [start_broker(broker, say)]
        try:
            store = start_object_store(
                root / "store", free_port(), say, program=find_versitygw(root / "store", os.environ)
            )
            processes.append(store.record)
            store.make_bucket(BUCKET)
            with s3_proxy(store.port) as proxy, fresh_ground(broker.bootstrap, root / "home") as ground:
                create_topic(broker.bootstrap, ground.name, 2)
                table: dict[str, object] = {
                    "base_path": f"s3a://{BUCKET}/shop/{ground.name}",
                    "storage": store.settings(proxy.endpoint),
                }
                measured = []
                for number in range(options.commits):
                    slow = number >= options.commits - options.delayed
                    with proxy.slow(options.milliseconds / 1000 if slow else 0.0):
                        measured.append(transaction(ground, proxy, table, number))
                    counts = {name: len(step.requests) for name, step in measured[-1].items()}
                    took = sum(step.seconds for name, step in measured[-1].items() if name != "plan")
                    say(f"commit {number + 1}: {counts}, {took:.2f} s{' delayed' if slow else ''}")
                show(measured[-options.delayed :], options.details, options.milliseconds)
        finally:
            stop(processes)


if __name__ == "__main__":
    main()
