"""K8: the README's Python, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hudi_ingest.config import Pipeline
from hudi_ingest.embedded.verification import verify
from hudi_ingest.home import HOME_VARIABLE, LEDGER_VARIABLE
from hudi_ingest_tests.support.ground import Ground

README = Path(__file__).parent.parent.parent / "README.md"


@pytest.mark.kafka
@pytest.mark.spark
def test_k8_ten_lines_of_python_run_one_transaction(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(ground.home.root))
    monkeypatch.setenv(LEDGER_VARIABLE, ground.home.ledger_url)
    ground.send_rows(0, 6)
    found = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    lines = [line for line in found[1].splitlines() if line.strip()]
    assert len(lines) <= 10
    path = str(ground.home.pipelines / f"{pipeline.name}.yaml")
    exec(found[1].replace("pipelines/payments.yaml", path), {})
    assert "6 rows" in capsys.readouterr().out
    assert verify(ground.base_path, ground.produced).exact
