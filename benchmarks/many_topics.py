"""What a template of many topics costs a code location: CPU to load it, memory, and what Dagster's processes fetch from it.

    python -m benchmarks.many_topics 50 200 500

Each count is measured in a process of its own. Asks no broker; ticks are those of single pipelines, in docs/measurements.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import psutil
import yaml

from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE, Home
from hudi_ingest.ledger import Ledger

_NAME = "{topic}"
_MEASURE = "--measure"
T = TypeVar("T")


def _template(topics: int, home: Home) -> None:
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
    names = [f"shop.{number:04d}" for number in range(topics)]
    with Ledger.open(home.ledger_url) as ledger:
        ledger.topics.remember(_NAME, names, datetime.now(timezone.utc))


def _timed(act: Callable[[], T]) -> tuple[T, float]:
    began = time.process_time()
    result = act()
    return result, time.process_time() - began


def _measure(topics: int) -> None:
    """Print the figures as JSON."""
    # What a code server imports before it loads anything is no cost of the pipelines.
    from dagster import AssetKey
    from dagster._core.remote_representation.external_data import RepositorySnap
    from dagster._serdes import serialize_value

    # Imported before anything is timed.
    from hudi_ingest.orchestration import (
        code_location,  # noqa: F401
        executor,  # noqa: F401
        run_launcher,  # noqa: F401
    )
    from hudi_ingest.pipeline.folder import load_folder
    from hudi_ingest.transaction.columns.decoding import format_problems

    home = Home.from_environment()
    _template(topics, home)
    load_folder(home.pipelines, {}, only="shop_0000")
    memory = psutil.Process().memory_info().rss
    folder, files = _timed(lambda: load_folder(home.pipelines, {}, check=format_problems))
    assert len(folder.pipelines) == topics
    # Loads the files again, as a code server does.
    loaded, defined = _timed(lambda: import_module("hudi_ingest.orchestration.definitions"))
    repository = loaded.defs.get_repository_def()
    assert repository.asset_graph.has(AssetKey("shop_0000"))
    # Dagster's processes fetch this one; the first time, it takes a description of each job as well, for the job's id.
    fetched, described = _timed(lambda: serialize_value(RepositorySnap.from_def(repository, defer_snapshots=True)))
    grown = psutil.Process().memory_info().rss - memory
    whole = serialize_value(RepositorySnap.from_def(repository))
    _, own = _timed(lambda: load_folder(home.pipelines, {}, only="shop_0000"))
    figures = {
        "topics": topics,
        "files_cpu_seconds": round(files, 2),
        "definitions_cpu_seconds": round(defined - files, 2),
        "snapshot_cpu_seconds": round(described, 2),
        "memory_mb": round(grown / 2**20, 1),
        "snapshot_mb": round(len(fetched) / 2**20, 2),
        "snapshot_with_jobs_mb": round(len(whole) / 2**20, 2),
        "own_file_cpu_seconds": round(own, 3),
    }
    sys.stdout.write(json.dumps(figures))


def measured(topics: int) -> dict[str, float]:
    """Measure a template of so many topics, in a process of its own. CPU and memory of what is imported before are not counted."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        environment = {
            HOME_VARIABLE: str(root / "home"),
            PIPELINES_VARIABLE: str(root / "pipelines"),
            LEDGER_VARIABLE: f"sqlite:///{root / 'ledger.db'}",
        }
        command = [sys.executable, "-m", "benchmarks.many_topics", _MEASURE, str(topics)]
        done = subprocess.run(command, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main(counts: Sequence[int]) -> None:
    for count in counts:
        figures = measured(count)
        if count == counts[0]:
            sys.stdout.write(f"| {' | '.join(figures)} |\n|{'---|' * len(figures)}\n")
        sys.stdout.write(f"| {' | '.join(map(str, figures.values()))} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if _MEASURE in sys.argv:
        _measure(int(sys.argv[-1]))
    else:
        main([int(text) for text in sys.argv[1:]] or [50, 200, 500])
