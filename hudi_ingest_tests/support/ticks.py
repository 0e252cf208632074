"""Ticks of one pipeline, with the memory of this process."""

from __future__ import annotations

from datetime import datetime

from dagster import DagsterInstance, RunRequest, SkipReason

from hudi_ingest.ledger.requests import Requests
from hudi_ingest.orchestration.coordinator.look import look_at
from hudi_ingest.orchestration.coordinator.memory import Memory
from hudi_ingest.orchestration.coordinator.quiet_ticks import quiet_reasons
from hudi_ingest.orchestration.coordinator.sensor import report_look
from hudi_ingest.pipeline.pipeline import Pipeline

MEMORY = Memory()


def tick(pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
    """Look at the pipeline, report, and return the run to request, or why there is none. Raises an error that a person must act on."""
    memory = MEMORY.of(pipeline)
    look = look_at(memory, instance, now)
    report_look(look, memory, instance)
    if isinstance(look.answer, str):
        return SkipReason(look.answer)
    if isinstance(look.answer, RunRequest):
        return look.answer
    raise look.answer


def still_quiet(pipeline: Pipeline, instance: DagsterInstance, requests: Requests) -> str | None:
    """Say why the pipeline needs no look; None if it needs one."""
    return quiet_reasons([MEMORY.of(pipeline)], instance, requests.wishes).get(pipeline.name)
