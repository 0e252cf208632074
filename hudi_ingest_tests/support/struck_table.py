"""Of the table that faults strike one after another (`shared` in conftest.py): its pipeline with dead letters, and its records."""

from __future__ import annotations

from typing import Any

from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.ground import Ground, make_pipeline


def pipeline_of(ground: Ground, **changes: Any) -> Pipeline:
    return make_pipeline(ground, on_bad_record="dead_letter", dead_letters={"topic": f"{ground.name}.dead"}, **changes)


def send(ground: Ground, count: int) -> None:
    """More records, numbered on from those that were produced, and a bad one before them."""
    ground.send(0, [b"{bad"])
    ground.send_rows(0, count, len(ground.produced))
    ground.send_rows(1, count, len(ground.produced))
