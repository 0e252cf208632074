"""Which tests run where, in which order, and how the slow ones are named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hudi_ingest_tests.support import tiers


def items_of(*files: str) -> list[pytest.Item]:
    return [
        cast("pytest.Item", SimpleNamespace(path=tiers.TESTS / file, nodeid=f"hudi_ingest_tests/{file}::test_{number}"))
        for number, file in enumerate(files)
    ]


@pytest.fixture
def durations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "durations.json"
    file.write_text(json.dumps({"1": {"kafka/test_b.py": 3}, "2": {"kafka/test_a.py": 9, "kafka/test_b.py": 1}}))
    monkeypatch.setattr(tiers, "DURATIONS", file)
    return file


@pytest.mark.parametrize(
    ("tier", "order"),
    [
        (1, ["unit/records/test_c.py", "kafka/test_b.py", "kafka/test_a.py", "kafka/test_d.py"]),
        (2, ["unit/records/test_c.py", "kafka/test_a.py", "kafka/test_b.py", "kafka/test_d.py"]),
        (None, ["unit/records/test_c.py", "kafka/test_a.py", "kafka/test_b.py", "kafka/test_d.py"]),
    ],
)
def test_files_that_need_no_jars_come_first_and_then_the_longest(
    durations: Path, tier: int | None, order: list[str]
) -> None:
    items = items_of("kafka/test_a.py", "kafka/test_b.py", "unit/records/test_c.py", "kafka/test_d.py")
    assert [item.path.relative_to(tiers.TESTS).as_posix() for item in tiers.in_order(items, tier)] == order


def test_durations_are_added_up_by_file_and_those_of_other_tiers_stay(durations: Path) -> None:
    reports: list[Any] = [
        SimpleNamespace(nodeid=f"hudi_ingest_tests/{name}", duration=seconds)
        for name, seconds in [
            ("kafka/test_a.py::test_x", 2.0),
            ("kafka/test_a.py::test_y[::]", 3.4),
            ("unit/test_z.py::test_z", 0.4),
        ]
    ]
    tiers.record(1, reports)
    assert json.loads(durations.read_text()) == {
        "1": {"kafka/test_a.py": 5},
        "2": {"kafka/test_a.py": 9, "kafka/test_b.py": 1},
    }


def test_a_file_is_imported_for_the_tiers_that_it_may_have(tmp_path: Path) -> None:
    plain, marked = tmp_path / "test_plain.py", tmp_path / "test_marked.py"
    plain.write_text("")
    marked.write_text("@pytest.mark.tier(3)\ndef test_long(): pass\n")
    assert [tier for tier in tiers.TIERS if tiers.may_have(plain, tier)] == [2]
    assert [tier for tier in tiers.TIERS if tiers.may_have(marked, tier)] == [2, 3]
    assert tiers.may_have(Path(__file__), 1)


def test_a_run_of_tier_1_takes_its_tests_alone_and_fails_for_one_that_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(
        "import pytest\n"
        "@pytest.mark.tier(1)\n"
        "def test_works(): pass\n"
        "@pytest.mark.tier(1)\n"
        "def test_needs_more(): pytest.skip('no such program')\n"
        "def test_of_ci(): assert False\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", "--tier", "1", str(file)]
    ran = subprocess.run(command, cwd=tiers.TESTS.parent, capture_output=True, text=True, timeout=300)
    assert "1 failed, 1 passed, 1 deselected" in ran.stdout, ran.stdout + ran.stderr
    assert "no such program\nTier 1 skips nothing." in ran.stdout
