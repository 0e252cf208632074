"""What a template of many topics costs Dagster's code server: to load, in memory, and to load again when a topic appears.

    python -m benchmarks.many_topics 50 200 500

Real processes; no broker, Spark or daemon, because none of them is asked. Ticks are those of single pipelines, which
docs/measurements.md has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import psutil
import yaml
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient

from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE, Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.topic_discovery import announce
from hudi_ingest.pipeline.folder import load_folder

_NAME = "{topic}"
_DEADLINE_SECONDS = 600.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one code server."""

    topics: int
    start_seconds: float
    cpu_seconds: float
    """Until it serves."""
    memory_mb: float
    reload_seconds: float
    """From a topic's appearance until its pipeline is served."""
    run_seconds: float
    """To load one of the pipelines, as the process of a run does."""


def measured(topics: int, root: Path) -> Cost:
    home = _template(topics, root)
    run_began = time.perf_counter()
    load_folder(home.pipelines, {}, only="shop_0000")
    run_seconds = time.perf_counter() - run_began
    began = time.monotonic()
    with _server(root) as (server, client):
        first = _until(lambda: _server_id(client))
        started = time.monotonic() - began
        family = [server, *server.children(recursive=True)]
        cpu = sum(sum(process.cpu_times()[:2]) for process in family)
        memory = sum(process.memory_info().rss for process in family) / 2**20
        _remember(home, [f"shop.{topics:04d}"])
        appeared = time.monotonic()
        announce(home, datetime.now(timezone.utc))
        _until(lambda: _server_id(client) not in ("", first))
        return Cost(topics, started, cpu, memory, time.monotonic() - appeared, run_seconds)


def _template(topics: int, root: Path) -> Home:
    os.environ.update(_environment(root))
    home = Home.from_environment()
    home.pipelines.mkdir(parents=True)
    settings = {
        "name": _NAME,
        "source": {"bootstrap_servers": "127.0.0.1:9", "topics_pattern": r"shop\..+"},
        "table": {
            "base_path": "/lake/{topic}",
            "schema": "id string, n long, amount decimal(10,2), at timestamp, day date",
            "partition_by": ["day"],
        },
    }
    (home.pipelines / "shop.yaml").write_text(yaml.safe_dump(settings))
    _remember(home, [f"shop.{number:04d}" for number in range(topics)])
    return home


def _environment(root: Path) -> dict[str, str]:
    return {
        HOME_VARIABLE: str(root / "home"),
        PIPELINES_VARIABLE: str(root / "pipelines"),
        LEDGER_VARIABLE: f"sqlite:///{root / 'ledger.db'}",
    }


def _remember(home: Home, topics: Sequence[str]) -> None:
    with Ledger.open(home.ledger_url) as ledger:
        ledger.remember_topics(_NAME, topics, datetime.now(timezone.utc))


@contextmanager
def _server(root: Path) -> Iterator[tuple[psutil.Process, DagsterGrpcClient]]:
    socket = root / "code-server.sock"
    with (root / "code-server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "hudi_ingest.orchestration.code_server", str(socket)],
            env={**os.environ, **_environment(root)},
            stdout=log,
            stderr=log,
        )
    try:
        yield psutil.Process(process.pid), DagsterGrpcClient(socket=str(socket))
    finally:
        process.terminate()
        process.wait(60)


def _server_id(client: DagsterGrpcClient) -> str:
    """Of the process that has loaded the pipelines; "" while there is none."""
    try:
        client.list_repositories()
        return str(client.get_server_id())
    except DagsterUserCodeUnreachableError:
        return ""


def _until(condition: Callable[[], str | bool]) -> str | bool:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the code server did not answer within {_DEADLINE_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS)
    return found


def main(counts: Sequence[int]) -> None:
    sys.stdout.write(
        "| topics | served after, s | CPU, s | memory, MB | a topic appears, s | a run loads its own, s |\n"
    )
    sys.stdout.write("|---|---|---|---|---|---|\n")
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            cost = measured(count, Path(folder))
        sys.stdout.write(
            f"| {cost.topics} | {cost.start_seconds:.0f} | {cost.cpu_seconds:.0f} | {cost.memory_mb:.0f} | "
            f"{cost.reload_seconds:.0f} | {cost.run_seconds:.2f} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [50, 200, 500])
