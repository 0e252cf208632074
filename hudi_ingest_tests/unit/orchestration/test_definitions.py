"""The code location builds what its process needs: every pipeline, or in a run's process the run's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dagster import AssetKey, DagsterRun

from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.run_launcher import pipeline_of

PIPELINE = """
name: {name}
source: {{bootstrap_servers: "127.0.0.1:9", topics: [shared]}}
table: {{base_path: {folder}/{name}, schema: "id string"}}
"""
LISTED = """
import importlib, os
from dagster import AssetKey
from hudi_ingest.orchestration import definitions

for run in ("", "orders", "gone"):
    os.environ["HUDI_INGEST_RUN_PIPELINE"] = run
    repository = importlib.reload(definitions).defs.get_repository_def()
    print(*sorted(sensor.name for sensor in repository.sensor_defs if sensor.name.endswith("_coordinator")))
    job = repository.get_job("__ASSET_JOB").get_subset(asset_selection={AssetKey(["orders"])})
    print(*sorted(key.to_user_string() for key in job.asset_layer.executable_asset_keys))
"""
FORKED = """
import importlib.util, sys, threading
from hudi_ingest.orchestration.embedded.run_launcher import IMPORTED_BY_RUNS
for module in IMPORTED_BY_RUNS:
    if importlib.util.find_spec(module.partition(".")[0]):
        importlib.import_module(module)
print(threading.active_count(), "upath" in sys.modules)
before = {*sys.modules}
import hudi_ingest.orchestration.definitions
print(*(module for module in sys.modules.keys() - before if module.startswith(("dagster.", "hudi_ingest."))))
"""


def test_a_run_builds_its_own_pipeline_only(tmp_path: Path) -> None:
    for name in ("clicks", "orders"):
        (tmp_path / f"{name}.yaml").write_text(PIPELINE.format(name=name, folder=tmp_path))
    done = _python(LISTED, tmp_path, "")
    every, own = "clicks_coordinator orders_coordinator", "orders_coordinator"
    assert done.stdout.splitlines() == [every, "orders", own, "orders", every, "orders"], done.stdout + done.stderr


def test_what_a_run_needs_is_imported_and_rehearsed_before_its_process_is_forked(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(PIPELINE.format(name="orders", folder=tmp_path))
    done = _python(FORKED, tmp_path, "orders")
    threads, imported = done.stdout.splitlines() or ("", "")
    assert threads == "1 True", (
        "a process with threads cannot be forked; ops keep their results with upath" + done.stderr
    )
    assert imported == "hudi_ingest.orchestration.definitions", "each run would import the others again"
    assert "The rehearsal of a run failed" not in done.stderr
    assert not [*tmp_path.joinpath("temporary").iterdir()]


def test_the_launcher_knows_the_only_pipeline_of_a_run() -> None:
    tagged = {tags.PIPELINE: "orders"}
    one, both, topic = (
        {AssetKey(key) for key in keys} for keys in (["orders"], ["orders", "clicks"], [["kafka", "t"]])
    )
    assert pipeline_of(DagsterRun("__ASSET_JOB", asset_selection=one)) == "orders", "from the asset's page"
    assert pipeline_of(DagsterRun("__ASSET_JOB", asset_selection=both, tags=tagged)) == "", "begin has set the tag"
    assert pipeline_of(DagsterRun("__ASSET_JOB", asset_selection=topic)) == ""
    assert pipeline_of(DagsterRun("hudi_ingest_sweep", tags=tagged)) == "orders"
    assert pipeline_of(DagsterRun("hudi_ingest_housekeeping")) == ""


def _python(code: str, folder: Path, run: str) -> subprocess.CompletedProcess[str]:
    temporary = folder / "temporary"
    temporary.mkdir()
    return subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "HUDI_INGEST_PIPELINES": str(folder),
            "HUDI_INGEST_RUN_PIPELINE": run,
            "TMPDIR": str(temporary),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
