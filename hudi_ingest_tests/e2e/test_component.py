"""D1: the component as its users run it: a project of their own, Dagster's own commands, each op in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterEventType, DagsterInstance, DagsterRunStatus

from hudi_ingest.local.verification import verify
from hudi_ingest_tests.support.command_line import environment
from hudi_ingest_tests.support.dg_project import make_project
from hudi_ingest_tests.support.engine import running_engine
from hudi_ingest_tests.support.ground import Ground

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.e2e]

REPOSITORY = Path(__file__).parent.parent.parent


def test_d1_ops_in_processes_of_their_own_find_their_job_in_the_project(ground: Ground, topic: str) -> None:
    attributes: dict[str, Any] = {
        "name": ground.name,
        "source": {"bootstrap_servers": ground.bootstrap_servers, "topics": [topic]},
        "table": {"base_path": ground.base_path, "schema": "id string, n long, dt string"},
        "transaction": {"fan_out_from": 0},
    }
    project = make_project(ground.home.root / "project", orders=attributes)
    dagster_home = ground.home.root / "dagster"
    dagster_home.mkdir()
    (dagster_home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    path = os.pathsep.join([str(project / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    ground.send_rows(0, 30)
    ground.send_rows(1, 20)
    with running_engine(ground.home):
        done = subprocess.run(
            [sys.executable, "-m", "dagster", "job", "execute", "-m", "shop.definitions", "-j", f"{topic}_transaction"],
            cwd=ground.home.root,
            env=environment(ground.home, {"PYTHONPATH": path, "DAGSTER_HOME": str(dagster_home)}),
            capture_output=True,
            text=True,
            timeout=400,
        )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    with DagsterInstance.from_config(str(dagster_home)) as instance:
        (run,) = instance.get_runs()
        started = [
            entry.get_dagster_event()
            for entry in instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_WORKER_STARTED)
        ]
    assert run.status is DagsterRunStatus.SUCCESS
    steps = {event.step_key: event.engine_event_data.metadata["pid"].value for event in started}
    written = [f"{topic}.write[{topic}_{partition}]" for partition in (0, 1)]
    assert steps.keys() == {f"{topic}.begin", *written, f"{topic}.commit"}
    assert len(set(steps.values())) == len(steps), "each in a process of its own"
    assert verify(ground.base_path, ground.produced).exact
