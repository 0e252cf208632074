"""What metrics take from Dagster's instance: the check that only runs can answer, of all pipelines at once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import yaml
from dagster import DagsterInstance

from hudi_ingest.home.folder import Home
from hudi_ingest.operations.health.judgement import RUNS_SUCCEED, runs_succeed
from hudi_ingest.orchestration.reports import instance_view
from hudi_ingest.orchestration.reports.checks import evaluation
from hudi_ingest.orchestration.reports.instance_view import InstanceView
from hudi_ingest_tests.support.pipeline_files import load_pipelines


def test_failed_runs_of_each_pipeline_are_found_and_no_dagster_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    home = Home.from_environment({"HUDI_INGEST_HOME": str(tmp_path), "HUDI_INGEST_PIPELINES": str(tmp_path)})
    for name in ("orders", "users", "new"):
        settings = {
            "name": name,
            "source": {"bootstrap_servers": "127.0.0.1:9", "topics": [name]},
            "table": {"base_path": f"/data/{name}", "schema": "id string"},
        }
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    pipelines = load_pipelines(tmp_path)
    with DagsterInstance.local_temp(str(tmp_path)) as instance, closing(InstanceView(home)) as view:
        assert not view.look(pipelines).is_there
        home.dagster.mkdir(exist_ok=True)
        (home.dagster / "dagster.yaml").touch()
        monkeypatch.setattr(instance_view, "open_instance", lambda folder: instance)
        for pipeline in pipelines:
            if pipeline.name != "new":
                finding = runs_succeed(pipeline, 2 if pipeline.name == "orders" else 0, "run", "no")
                instance.report_runless_asset_event(evaluation(pipeline, finding))
        seen = view.look(pipelines)
    assert seen.is_there
    assert seen.running == {}, "nobody has switched a sensor"
    assert {name: [(f.check, f.passed, f.warning) for f in found] for name, found in seen.findings.items()} == {
        "orders": [(RUNS_SUCCEED, False, False)],
        "users": [(RUNS_SUCCEED, True, False)],
    }
