"""P2, P7: the small `make replay-proof`; the large one is started by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.e2e, pytest.mark.tier(3)]


def test_p2_p7_a_range_is_replayed_by_command_and_by_dagster_under_live_load_and_a_reader_sees_no_hole() -> None:
    small = ["--records", "20000", "--transactions", "4", "--per-second", "50"]
    proof = [sys.executable, "-m", "hudi_ingest_tests.replay_proof", *small]
    done = subprocess.run(proof, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "findings=0" in done.stdout.splitlines()[-1]
