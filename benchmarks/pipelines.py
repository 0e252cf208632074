"""The benchmark's pipeline files: one for each round, because each round needs a table of its own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml

from benchmarks.loads import Load
from hudi_ingest.hudi.files.read_amplification import read_amplification, why_due
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline

TIMEOUT_SECONDS = 3600


def write_pipeline(
    folder: Path,
    name: str,
    load: Load,
    bootstrap_servers: str,
    base_path: Path | str,
    storage: Mapping[str, str] | None = None,
) -> Path:
    """Write a pipeline that ingests the load's topic in a single transaction, with defaults for everything else."""
    settings = _settings(name, load, bootstrap_servers, base_path, {"topics": [load.topic]}, storage or {})
    return _write(folder, name, load, settings)


def write_template(folder: Path, name: str, load: Load, bootstrap_servers: str, tables: Path) -> Path:
    """Write a template, switched off, for all topics of loads like this one whose names begin with the template's."""
    topics = {"topics_pattern": rf"bench-{name}-.+"}
    settings = _settings("{topic}", load, bootstrap_servers, tables / "{topic}", topics, {})
    return _write(folder, name, load, {**settings, "enabled": False})


def _settings(
    name: str,
    load: Load,
    bootstrap_servers: str,
    base_path: Path | str,
    topics: Mapping[str, Any],
    storage: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"bootstrap_servers": bootstrap_servers, **topics, **load.shape.source},
        "table": {
            "base_path": str(base_path),
            **({"storage": dict(storage)} if storage else {}),
            "schema": load.shape.ddl,
            "partition_by": [load.shape.partition_by],
            **load.table,
        },
        "transaction": {
            "interval_seconds": 5,
            "max_records": load.records,
            "timeout_seconds": TIMEOUT_SECONDS,
            **load.transaction,
        },
    }


def _write(folder: Path, name: str, load: Load, settings: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in load.shape.files().items():
        (folder / file).write_bytes(content)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


def made_pipeline(folder: Path, name: str, load: Load, bootstrap_servers: str, base_path: Path) -> Pipeline:
    return load_pipeline(write_pipeline(folder, name, load, bootstrap_servers, base_path))


def compaction_is_due(pipeline: Pipeline) -> bool:
    """Whether the services' schedule would compact the keyed table now."""
    unmerged = read_amplification(PipelineTable(pipeline).timeline.completed())
    return bool(why_due(pipeline.table.compaction, unmerged, datetime.now(timezone.utc)))
