"""Queries a running Dagster webserver through its GraphQL API: readiness, daemon health and sensors; and whether a code server answers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from hudi_ingest.exceptions import EnvironmentProblem

LOCATION = "hudi_ingest"
_REPOSITORY = "__repository__"
_UNREACHABLE = "DagsterUserCodeUnreachableError"
_SECONDS = 10
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens addresses of this machine, which no proxy of a company could reach, whatever `http_proxy` and `no_proxy` say."""


def query(
    url: str, text: str, variables: dict[str, Any] | None = None, seconds: float = _SECONDS
) -> dict[str, Any] | None:
    """Return the `data` of a GraphQL response, or None while no webserver answers at `url`."""
    body = json.dumps({"query": text, "variables": variables or {}}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    try:
        with DIRECT.open(request, timeout=seconds) as answer:
            response: dict[str, Any] = json.load(answer)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return None
    return response.get("data")


def sensors(url: str) -> list[str] | None:
    """Return the names of the loaded sensors, or None while the code location is not loaded or its server does not answer.

    Raises EnvironmentProblem when the location cannot be loaded, with Dagster's reason.
    """
    data = query(
        url,
        "{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus locationOrLoadError { __typename "
        "... on PythonError { className message errorChain { error { message } } } ... on RepositoryLocation { repositories { sensors { name } } } } } } } }",
    )
    entries = (data or {}).get("workspaceOrError", {}).get("locationEntries") or []
    for entry in entries:
        location = entry["locationOrLoadError"]
        if entry["name"] != LOCATION or location is None:
            continue
        if location["__typename"] == "PythonError" and location["className"] == _UNREACHABLE:
            return None
        if location["__typename"] == "PythonError":
            causes = [location["message"], *(link["error"]["message"] for link in location["errorChain"])]
            raise EnvironmentProblem(f"Dagster cannot load the pipelines: {causes[-1].strip()}")
        return [sensor["name"] for repository in location["repositories"] for sensor in repository["sensors"]]
    return None


def daemons_are_healthy(url: str) -> bool:
    """Whether the daemon that evaluates sensors and the one that launches queued runs have reported."""
    data = query(url, "{ instance { daemonHealth { allDaemonStatuses { daemonType healthy } } } }")
    statuses = (data or {}).get("instance", {}).get("daemonHealth", {}).get("allDaemonStatuses") or []
    healthy = {daemon["daemonType"] for daemon in statuses if daemon["healthy"]}
    return {"SENSOR", "QUEUED_RUN_COORDINATOR"} <= healthy


def newest_heartbeat(url: str) -> float | None:
    """When the daemon sent its newest heartbeat, in seconds since 1970; None if it never has, or no webserver answers."""
    data = query(url, "{ instance { daemonHealth { allDaemonStatuses { lastHeartbeatTime } } } }")
    statuses = (data or {}).get("instance", {}).get("daemonHealth", {}).get("allDaemonStatuses") or []
    return max((float(each["lastHeartbeatTime"]) for each in statuses if each["lastHeartbeatTime"]), default=None)


def code_server_answers(socket: Path, seconds: float) -> bool:
    """Whether the code server at the socket, and its child that has loaded the pipelines, answer within so many seconds."""
    # Imported here because --help must not wait for it.
    import grpc

    with grpc.insecure_channel(f"unix:{socket}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            # An empty message is a valid question; connections to a process that stands still are accepted.
            channel.unary_unary("/api.DagsterApi/Ping")(b"", timeout=seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
    return True


def selector(sensor: str) -> dict[str, str]:
    """The sensor's selector in GraphQL."""
    return {"repositoryName": _REPOSITORY, "repositoryLocationName": LOCATION, "sensorName": sensor}
