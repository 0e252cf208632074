"""The code location builds what its process needs: every pipeline, or in a run's process the run's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PIPELINE = """
name: {name}
source: {{bootstrap_servers: "127.0.0.1:9", topics: [shared]}}
table: {{base_path: {folder}/{name}, schema: "id string"}}
"""
LISTED = (
    "from hudi_ingest.orchestration.definitions import defs\n"
    "repository = defs.get_repository_def()\n"
    "print(*sorted(job.name for job in repository.get_all_jobs() if job.name.endswith('_transaction')))\n"
    "print(*sorted(key.to_user_string() for key in repository.get_job('orders_transaction').asset_layer.executable_asset_keys))\n"
)


@pytest.mark.parametrize(
    ("run", "jobs"),
    [
        ("", "clicks_transaction orders_transaction"),
        ("orders", "orders_transaction"),
        ("gone", "clicks_transaction orders_transaction"),
    ],
)
def test_a_run_builds_its_own_pipeline_only(tmp_path: Path, run: str, jobs: str) -> None:
    for name in ("clicks", "orders"):
        (tmp_path / f"{name}.yaml").write_text(PIPELINE.format(name=name, folder=tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", LISTED],
        env={**os.environ, "HUDI_INGEST_PIPELINES": str(tmp_path), "HUDI_INGEST_RUN_PIPELINE": run},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.splitlines()[:1] == [jobs], done.stdout + done.stderr
    assert done.stdout.splitlines()[1:] == ["orders"], done.stderr
