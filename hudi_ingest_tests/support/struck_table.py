"""A table that faults strike one after another: its topic, its pipeline with dead letters, and records for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hudi_ingest.config import Pipeline
from hudi_ingest.embedded.broker import create_topic
from hudi_ingest.home import Home
from hudi_ingest_tests.support.ground import Ground, make_pipeline


@contextmanager
def struck_table(bootstrap_servers: str, root: Path) -> Iterator[Ground]:
    """Its ground, with a home of its own in `root`; the topic has two partitions."""
    home = Home(root=root, pipelines=root / "pipelines", ledger_url=f"sqlite:///{root / 'ledger.db'}")
    ground = Ground(name=f"t{uuid.uuid4().hex[:10]}", bootstrap_servers=bootstrap_servers, home=home)
    create_topic(bootstrap_servers, ground.name, 2)
    create_topic(bootstrap_servers, f"{ground.name}.dead", 1)
    yield ground
    ground.close()


def pipeline_of(ground: Ground, **changes: Any) -> Pipeline:
    return make_pipeline(ground, on_bad_record="dead_letter", dead_letters={"topic": f"{ground.name}.dead"}, **changes)


def send(ground: Ground, count: int) -> None:
    """More records, numbered on from those that were produced, and a bad one before them."""
    ground.send(0, [b"{bad"])
    ground.send_rows(0, count, len(ground.produced))
    ground.send_rows(1, count, len(ground.produced))
