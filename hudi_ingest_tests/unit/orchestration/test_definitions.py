"""The code location builds what its process needs: every pipeline, or in a run's process the run's own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from dagster import AssetKey, DagsterRun

from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.run_processes import pipeline_of

PIPELINE = """
name: {name}
source: {{bootstrap_servers: "127.0.0.1:9", topics: [shared]}}
table: {{base_path: {folder}/{name}, schema: "id string"}}
"""
FORKED = """
import importlib, importlib.util, os, sys, threading
from pathlib import Path
from hudi_ingest.orchestration.run_processes import IMPORTED_BY_RUNS

for module in IMPORTED_BY_RUNS:
    if importlib.util.find_spec(module.partition(".")[0]):
        importlib.import_module(module)
print(threading.active_count(), "upath" in sys.modules)
before = {*sys.modules}
from hudi_ingest.orchestration import definitions
print(*(module for module in sys.modules.keys() - before if module.startswith(("dagster.", "hudi_ingest."))))
print(*Path(os.environ["TMPDIR"]).iterdir())
"""
LISTED = """
from dagster import AssetKey

for run in ("", "orders", "gone"):
    os.environ["HUDI_INGEST_RUN_PIPELINE"] = run
    repository = importlib.reload(definitions).defs.get_repository_def()
    print(*sorted(sensor.name for sensor in repository.sensor_defs if sensor.name.endswith("_coordinator")))
    job = repository.get_job("__ASSET_JOB").get_subset(asset_selection={AssetKey(["orders"])})
    print(*sorted(key.to_user_string() for key in job.asset_layer.executable_asset_keys))
os.environ["HUDI_INGEST_RUN_PIPELINE"] = "orders"
for assets in ("yes", ""):
    os.environ["HUDI_INGEST_RUN_ASSETS"] = assets
    print(importlib.reload(definitions).defs.get_repository_def().has_job("hudi_ingest_sweep"))
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A process that does what FORKED says, for a run of one of two pipelines, and then what LISTED says."""
    folder = tmp_path_factory.mktemp("pipelines")
    for name in ("clicks", "orders"):
        (folder / f"{name}.yaml").write_text(PIPELINE.format(name=name, folder=folder))
    temporary = folder / "temporary"
    temporary.mkdir()
    own = {"HUDI_INGEST_PIPELINES": str(folder), "HUDI_INGEST_RUN_PIPELINE": "orders", "TMPDIR": str(temporary)}
    return subprocess.run(
        [sys.executable, "-c", FORKED + LISTED], env={**os.environ, **own}, capture_output=True, text=True, timeout=300
    )


def test_what_a_run_needs_is_imported_and_rehearsed_before_its_process_is_forked(
    done: subprocess.CompletedProcess[str],
) -> None:
    threads, imported, temporary = done.stdout.splitlines()[:3] or ("", "", "")
    assert threads == "1 True", (
        "a process with threads cannot be forked; ops keep their results with upath" + done.stderr
    )
    assert imported == "hudi_ingest.orchestration.definitions", "each run would import the others again"
    assert "The rehearsal of a run failed" not in done.stderr
    assert temporary == ""


def test_a_run_builds_its_own_pipeline_only(done: subprocess.CompletedProcess[str]) -> None:
    every, own = "hudi_ingest_coordinator", ""
    listed = done.stdout.splitlines()[3:9]
    assert listed == [every, "orders", own, "orders", every, "orders"], done.stdout + done.stderr


def test_a_run_of_a_table_builds_no_maintenance_jobs(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stdout.splitlines()[9:] == ["False", "True"], done.stderr


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
