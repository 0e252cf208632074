from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hudi_ingest.ledger import Ledger
from hudi_ingest_tests.support.pipeline_files import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str, name: str = "orders.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return to_file


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as opened:
        yield opened
