"""Each test has a ledger of its own, which has the switches of pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest.home.folder import LEDGER_VARIABLE


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, f"sqlite:///{tmp_path / 'ledger.db'}")
