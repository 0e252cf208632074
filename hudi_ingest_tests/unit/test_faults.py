"""Fault points: off by default, one order for one process, and none without a test."""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from pathlib import Path

import pytest

import hudi_ingest
from hudi_ingest import faults
from hudi_ingest.faults import POINTS, PUBLICATION_POINTS, InjectedFault, reach


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(faults.VARIABLE, str(tmp_path))
    return tmp_path


def test_without_a_folder_and_without_an_order_nothing_happens(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reach("commit_landed")
    monkeypatch.delenv(faults.VARIABLE)
    (orders / "commit_landed.armed").write_text("raise")
    reach("commit_landed")
    assert (orders / "commit_landed.armed").exists()


def test_an_order_is_carried_out_once_and_tells_by_whom(orders: Path) -> None:
    (orders / "commit_landed.armed").write_text("raise")
    with pytest.raises(InjectedFault, match="commit_landed: commitStats has returned"):
        reach("commit_landed")
    reach("commit_landed")
    assert (orders / "commit_landed.reached").read_text() == str(os.getpid())
    (orders / "rows_written.armed").write_text("full\n")
    with pytest.raises(OSError, match="No space left") as raised:
        reach("rows_written")
    assert raised.value.errno == errno.ENOSPC


def test_an_unknown_point_is_refused(orders: Path) -> None:
    with pytest.raises(KeyError):
        reach("nowhere")


def test_each_point_is_reached_at_one_place_of_the_product() -> None:
    source = Path(hudi_ingest.__file__).parent
    found = Counter(
        name for path in source.rglob("*.py") for name in re.findall(r'\breach\("(\w+)"\)', path.read_text())
    )
    assert found == Counter([*POINTS, *PUBLICATION_POINTS])
