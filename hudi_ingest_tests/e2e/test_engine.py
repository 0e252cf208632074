"""X7: the warm engine, and that work goes on without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hudi_ingest.exceptions import EngineLost
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.local.verification import verify
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import EngineConnection, attached_session
from hudi_ingest_tests.support.command_line import COMMAND, environment, hudi_ingest
from hudi_ingest_tests.support.engine import running_engine
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.rest_api import running_rest_api
from hudi_ingest_tests.support.waiting import suspend, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.e2e]


@pytest.mark.tier(3)
def test_an_engine_killed_while_an_op_runs_fails_it_clearly_and_the_retry_works(
    ground: Ground, topic: str, fault: Fault
) -> None:
    pipeline = make_pipeline(ground, table={"ttl": {"days": 30}})
    ground.send_rows(0, 5)
    with running_engine(ground.home) as engine:
        assert ground.home.engine_file.stat().st_mode & 0o777 == 0o600, "the file holds the engine's secret"
        first = hudi_ingest(ground.home, "run", pipeline.name)
        assert first.returncode == 0, first.stderr
        assert "Setting default log level" not in first.stderr, "it attached, and started no Spark of its own"
        second = hudi_ingest(ground.home, "engine")
        assert second.returncode == 1
        assert "already serves" in second.stderr
        require_table_routes(ground, pipeline)
        ground.send_rows(0, 30_000, 5)
        # Spark's worker stands still in mid-file, so the engine dies while the op runs.
        fault.arm("rows_written", "stop")
        running = subprocess.Popen(
            [*COMMAND, "run", pipeline.name], env=environment(ground.home), stderr=subprocess.PIPE, text=True
        )
        worker = fault.await_reached("rows_written", 300)
        os.kill(engine.pid, signal.SIGKILL)
        os.kill(worker, signal.SIGKILL)
        _, told = running.communicate(timeout=300)
        assert running.returncode == 1
        assert "the Spark driver went away" in told
        assert "Traceback" not in told
    ground.run(pipeline)
    found = verify(ground.base_path, ground.produced)
    assert found.exact, found
    assert found.rows == 30_005


def require_table_routes(ground: Ground, pipeline: Pipeline) -> None:
    """What of REST needs Spark is done in the engine."""
    path = f"/pipelines/{pipeline.name}"
    with running_rest_api(ground.home) as api:
        made = api.ask("POST", f"{path}/savepoints", {"comment": "before a deploy"})
        assert made.status == 201, made.text
        assert (made.body["instant"], made.body["comment"]) == (newest_instant(pipeline), "before a deploy")
        assert api.ask("GET", f"{path}/savepoints").body == [made.body]
        assert api.ask("DELETE", f"{path}/savepoints/{made.body['instant']}").status == 204
        plan = api.ask("GET", f"{path}/ttl/plan").body
    assert (plan["days"], plan["kept"], plan["unknown"]) == (30, 0, [])
    assert [expired["partition"] for expired in plan["expired"]] == [f"dt=2026-01-0{day}" for day in (1, 2, 3)]
    assert plan["bytes"] == sum(expired["bytes"] for expired in plan["expired"]) > 0


def newest_instant(pipeline: Pipeline) -> str:
    return PipelineTable(pipeline).commits()[0].instant


def test_a_jvm_that_hangs_is_not_waited_for_and_is_killed(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hudi_ingest.spark.session._ANSWER_SECONDS", 2.0)
    code = (
        "import hudi_ingest.spark.engine as engine; from hudi_ingest.home.folder import Home; engine.HANG_SECONDS = 10.0;"
        "from hudi_ingest.pipeline.engine import EngineSettings;"
        "engine.run_engine(Home.from_environment(), EngineSettings(master='local[1]', driver_memory='1g'), print)"
    )
    with running_engine(ground.home, (sys.executable, "-c", code)) as engine:
        (jvm,) = (each for each in psutil.Process(engine.pid).children(recursive=True) if "java" in each.name())
        suspend(jvm)
        connection = EngineConnection.read(ground.home.engine_file)
        assert connection is not None
        with pytest.raises(EngineLost, match="did not answer"):
            attached_session(connection)
        wait_for(lambda: not jvm.is_running() or jvm.status() == psutil.STATUS_ZOMBIE, "the JVM is killed")
        wait_for(lambda: not ground.home.engine_file.exists(), "the engine is not offered any more")
        reason = "did not answer for 10 s and was killed"
        wait_for(lambda: reason in Path(engine.log).read_text(), "the engine's log says why")
