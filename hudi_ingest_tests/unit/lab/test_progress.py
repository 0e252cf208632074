"""Steps say how long they have taken."""

from __future__ import annotations

import queue

import pytest

from hudi_ingest_tests.lab import progress
from hudi_ingest_tests.lab.progress import elapsed


def test_a_long_step_reports_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.01)
    lines: queue.Queue[str] = queue.Queue()
    with pytest.raises(RuntimeError), elapsed(lines.put, "counting"):
        for _ in range(2):
            assert lines.get(timeout=120) == "counting: 0 s so far"
        raise RuntimeError
    reported = lines.qsize()
    with elapsed(lambda line: None, "another step"):
        pass
    assert lines.qsize() == reported


def test_a_short_step_reports_nothing() -> None:
    lines: list[str] = []
    with elapsed(lines.append, "counting"):
        pass
    assert lines == []
