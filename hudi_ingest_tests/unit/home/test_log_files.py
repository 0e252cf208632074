"""Logs of long-lived processes have a bound."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from hudi_ingest.home.folder import Home, cut_back, note_step, stack_logs


def test_a_large_log_is_cut_back_under_the_process_that_writes_it(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("ab", buffering=0) as output:
        for number in range(40):
            output.write(b"line %d\n" % number)
            cut_back([log, tmp_path / "none.log"], most_bytes=100)
    kept, current = (tmp_path / "a.log.1").read_text(), log.read_text()
    assert (kept + current).endswith("".join(f"line {number}\n" for number in range(30, 40)))
    assert max(len(kept), len(current)) <= 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1"]


def test_the_stacks_logs_are_those_of_its_processes_and_of_the_broker(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path, "")
    home.logs.mkdir()
    for name in ("engine.log", "engine.log.1"):
        (home.logs / name).touch()
    assert stack_logs(home) == (home.logs / "engine.log", home.kafka / "broker.log")


def test_steps_of_several_processes_are_whole_lines_of_one_private_log(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", tmp_path, "")
    steps = [{"step": "write", "number": number, "slices": "x" * 10_000} for number in range(200)]
    with ProcessPoolExecutor(4) as pool:
        list(pool.map(partial(note_step, home), steps))
    lines = [json.loads(line) for line in home.transactions_log.read_text().splitlines()]
    assert sorted(line["number"] for line in lines) == [*range(200)]
    assert all(line["at"] < "3" and line["pid"] and line["slices"] == "x" * 10_000 for line in lines)
    assert home.root.stat().st_mode & 0o077 == 0


def test_a_step_that_cannot_be_logged_stops_nothing_and_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path / "home", tmp_path, "")
    home.make()
    home.logs.write_text("no folder")
    with caplog.at_level(logging.WARNING):
        note_step(home, {"step": "begin"})
    assert "a step is missing in" in caplog.text and "transactions.log" in caplog.text
