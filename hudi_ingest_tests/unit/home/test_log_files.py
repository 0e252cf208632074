"""Logs of long-lived processes have a bound."""

from __future__ import annotations

from pathlib import Path

from hudi_ingest.home.folder import Home, cut_back, stack_logs


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
