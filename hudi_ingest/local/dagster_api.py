"""Asks a running Dagster webserver by its GraphQL API: is it ready, are the daemons well, sensors, ticks and runs."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from hudi_ingest.exceptions import EnvironmentProblem

LOCATION = "hudi_ingest"
_REPOSITORY = "__repository__"
_UNREACHABLE = "DagsterUserCodeUnreachableError"
_SECONDS = 10


def query(url: str, text: str, variables: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The `data` of a GraphQL answer, or None while no webserver answers at `url`."""
    body = json.dumps({"query": text, "variables": variables or {}}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return None
    return found.get("data")


def sensors(url: str) -> list[str] | None:
    """Names of the loaded sensors, or None while the code location is not loaded or its server does not answer.

    Raises EnvironmentProblem when the location cannot be loaded, with Dagster's reason.
    """
    found = query(
        url,
        "{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus locationOrLoadError { __typename "
        "... on PythonError { className message errorChain { error { message } } } ... on RepositoryLocation { repositories { sensors { name } } } } } } } }",
    )
    entries = (found or {}).get("workspaceOrError", {}).get("locationEntries") or []
    for entry in entries:
        location = entry["locationOrLoadError"]
        if entry["name"] != LOCATION or location is None:
            continue
        if location["__typename"] == "PythonError" and location["className"] == _UNREACHABLE:
            return None
        if location["__typename"] == "PythonError":
            causes = [location["message"], *(each["error"]["message"] for each in location["errorChain"])]
            raise EnvironmentProblem(f"Dagster cannot load the pipelines: {causes[-1].strip()}")
        return [each["name"] for repository in location["repositories"] for each in repository["sensors"]]
    return None


def daemons_are_healthy(url: str) -> bool:
    """Whether the daemon that evaluates sensors and the one that launches queued runs have reported."""
    found = query(url, "{ instance { daemonHealth { allDaemonStatuses { daemonType healthy } } } }")
    statuses = (found or {}).get("instance", {}).get("daemonHealth", {}).get("allDaemonStatuses") or []
    healthy = {each["daemonType"] for each in statuses if each["healthy"]}
    return {"SENSOR", "QUEUED_RUN_COORDINATOR"} <= healthy


def start_sensor(url: str, name: str) -> None:
    """Turns a sensor on. Raises EnvironmentProblem when Dagster refuses."""
    found = query(
        url,
        "mutation($selector: SensorSelector!) { startSensor(sensorSelector: $selector) { __typename "
        "... on PythonError { message } } }",
        {"selector": _selector(name)},
    )
    answer = (found or {}).get("startSensor") or {}
    if answer.get("__typename") != "Sensor":
        raise EnvironmentProblem(
            f"Dagster did not start sensor {name}: {answer.get('message') or answer.get('__typename') or 'no answer'}. "
            f"Start it in the UI at {url}/automation."
        )


def stop_sensor(url: str, name: str) -> None:
    """Turns a sensor off; a tick that is under way ends. Raises EnvironmentProblem when Dagster refuses."""
    found = query(
        url,
        "query($selector: SensorSelector!) { sensorOrError(sensorSelector: $selector) { ... on Sensor { id } } }",
        {"selector": _selector(name)},
    )
    identifier = ((found or {}).get("sensorOrError") or {}).get("id")
    stopped = query(
        url,
        "mutation($id: String!) { stopSensor(id: $id) { __typename ... on PythonError { message } } }",
        {"id": identifier},
    )
    answer = (stopped or {}).get("stopSensor") or {}
    if answer.get("__typename") != "StopSensorMutationResult":
        raise EnvironmentProblem(
            f"Dagster did not stop sensor {name}: {answer.get('message') or answer.get('__typename') or 'no answer'}. "
            f"Stop it in the UI at {url}/automation."
        )


@dataclass(frozen=True, slots=True)
class Tick:
    """One evaluation of a sensor; times in seconds since the epoch. `ended` is None while it runs."""

    began: float
    ended: float | None
    status: str
    run_ids: tuple[str, ...]
    reason: str


def ticks(url: str, name: str, limit: int) -> list[Tick]:
    """The sensor's newest ticks, at most `limit`, newest first; empty while no webserver answers."""
    found = query(
        url,
        "query($selector: SensorSelector!, $limit: Int) { sensorOrError(sensorSelector: $selector) { ... on Sensor { "
        "sensorState { ticks(limit: $limit) { timestamp endTimestamp status runIds skipReason error { message } } } } } }",
        {"selector": _selector(name), "limit": limit},
    )
    state = ((found or {}).get("sensorOrError") or {}).get("sensorState") or {}
    return [
        Tick(
            began=each["timestamp"],
            ended=each["endTimestamp"],
            status=each["status"],
            run_ids=tuple(each["runIds"]),
            reason=(each["error"] or {}).get("message") or each["skipReason"] or "",
        )
        for each in state.get("ticks") or []
    ]


@dataclass(frozen=True, slots=True)
class RunState:
    """Where a run is. `ended` is in seconds since the epoch, None while it has not."""

    status: str
    ended: float | None


def run_state(url: str, run_id: str) -> RunState | None:
    """The run's state; None while no webserver answers, or when it knows no such run."""
    found = query(
        url,
        "query($id: ID!) { runOrError(runId: $id) { ... on Run { status endTime } } }",
        {"id": run_id},
    )
    run = (found or {}).get("runOrError") or {}
    return RunState(run["status"], run["endTime"]) if "status" in run else None


def _selector(sensor: str) -> dict[str, str]:
    return {"repositoryName": _REPOSITORY, "repositoryLocationName": LOCATION, "sensorName": sensor}
