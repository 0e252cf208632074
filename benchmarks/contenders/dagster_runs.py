"""Asks a running Dagster webserver for a sensor's ticks, and for the state of runs."""

from __future__ import annotations

from dataclasses import dataclass

from hudi_ingest.local.dagster_api import query, selector
from hudi_ingest.orchestration import tags


@dataclass(frozen=True, slots=True)
class Tick:
    """One evaluation of a sensor; times in seconds since the epoch. `ended` is None while it runs."""

    began: float
    ended: float | None
    status: str
    run_ids: tuple[str, ...]
    reason: str


def ticks(url: str, name: str, limit: int) -> list[Tick]:
    """Return the sensor's newest ticks, at most `limit`, newest first; empty while no webserver answers."""
    data = query(
        url,
        "query($selector: SensorSelector!, $limit: Int) { sensorOrError(sensorSelector: $selector) { ... on Sensor { "
        "sensorState { ticks(limit: $limit) { timestamp endTimestamp status runIds skipReason error { message } } } } } }",
        {"selector": selector(name), "limit": limit},
    )
    state = ((data or {}).get("sensorOrError") or {}).get("sensorState") or {}
    return [
        Tick(
            began=tick["timestamp"],
            ended=tick["endTimestamp"],
            status=tick["status"],
            run_ids=tuple(tick["runIds"]),
            reason=(tick["error"] or {}).get("message") or tick["skipReason"] or "",
        )
        for tick in state.get("ticks") or []
    ]


def runs_of(url: str, pipeline: str) -> frozenset[str]:
    """Return the ids of the pipeline's runs; empty while no webserver answers."""
    data = query(
        url,
        "query($tags: [ExecutionTag!]) { runsOrError(filter: {tags: $tags}) { ... on Runs { results { id } } } }",
        {"tags": [{"key": tags.PIPELINE, "value": pipeline}]},
    )
    return frozenset(run["id"] for run in ((data or {}).get("runsOrError") or {}).get("results") or [])


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run. `ended` is in seconds since the epoch, None while it has not ended."""

    status: str
    ended: float | None


def run_state(url: str, run_id: str) -> RunState | None:
    """Return the run's state; None while no webserver answers, or if it knows no such run."""
    data = query(
        url,
        "query($id: ID!) { runOrError(runId: $id) { ... on Run { status endTime } } }",
        {"id": run_id},
    )
    run = (data or {}).get("runOrError") or {}
    return RunState(run["status"], run["endTime"]) if "status" in run else None
