"""Launches jobs as the webserver's pages do, by its GraphQL API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.contenders.dagster_runs import run_state
from hudi_ingest.local import dagster_api as webserver
from hudi_ingest_tests.support.waiting import wait_for

ENDED = {"SUCCESS", "FAILURE", "CANCELED"}
_LAUNCH = """
mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename
  ... on LaunchRunSuccess { run { runId } }
  ... on RunConfigValidationInvalid { errors { message } }
  ... on PythonError { message }
} }"""

_TERMINATE = """
mutation($id: String!) { terminateRun(runId: $id) {
  __typename
  ... on TerminateRunFailure { message }
  ... on PythonError { message }
} }"""


def launch(url: str, job: str, config: Mapping[str, Any], partition: str = "") -> str:
    """What *Launch Run* in the job's Launchpad does with this config, for a partition if the job has some. Returns the run's id."""
    selector = {"repositoryName": "__repository__", "repositoryLocationName": webserver.LOCATION, "jobName": job}
    run_tags = [{"key": "dagster/partition", "value": partition}] if partition else []
    params = {
        "selector": selector,
        "runConfigData": config,
        "mode": "default",
        "executionMetadata": {"tags": run_tags},
    }
    found = webserver.query(url, _LAUNCH, {"params": params})
    answer = (found or {}).get("launchRun") or {}
    assert answer.get("__typename") == "LaunchRunSuccess", answer
    return str(answer["run"]["runId"])


def terminate(url: str, run_id: str) -> None:
    """What *Terminate* on the run's page does."""
    found = webserver.query(url, _TERMINATE, {"id": run_id})
    answer = (found or {}).get("terminateRun") or {}
    assert answer.get("__typename") == "TerminateRunSuccess", answer


def await_end(url: str, run_id: str, seconds: float) -> str:
    """The status that the run ended with. Raises NotInTime."""

    def ended() -> bool:
        state = run_state(url, run_id)
        return state is not None and state.status in ENDED

    wait_for(ended, f"run {run_id} ends", seconds, pause_seconds=1.0)
    state = run_state(url, run_id)
    assert state is not None
    return state.status
