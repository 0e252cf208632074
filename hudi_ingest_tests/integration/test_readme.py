"""K8: the README's Python, run as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE
from hudi_ingest.local.verification import verify
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.support.ground import Ground, make_pipeline

README = Path(__file__).parent.parent.parent / "README.md"


@pytest.mark.tier(1)
@pytest.mark.kafka
@pytest.mark.spark
def test_k8_ten_lines_of_python_run_one_transaction(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(ground.home.root))
    monkeypatch.setenv(LEDGER_VARIABLE, ground.home.ledger_url)
    ground.send_rows(0, 6)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (found,) = (block for block in blocks if "run_transaction(" in block)
    lines = [line for line in found.splitlines() if line.strip()]
    assert len(lines) <= 10
    path = str(ground.home.pipelines / f"{pipeline.name}.yaml")
    exec(found.replace("pipelines/payments.yaml", path), {})
    assert "6 rows" in capsys.readouterr().out
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.kafka
def test_k8_the_commands_for_a_topic_of_ones_own_make_it_and_send_a_record(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "payment.json").write_text('{"id": "p1"}')
    commands = re.findall(r"^    python (-c .*)$", README.read_text(), re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        own = command.replace("127.0.0.1:19092", ground.bootstrap_servers).replace("payments", ground.name)
        subprocess.run([sys.executable, *shlex.split(own)], cwd=tmp_path, check=True, timeout=300)
    pipeline = make_pipeline(ground)
    assert sum(marks.end for marks in observe(pipeline).watermarks.values()) == 1
