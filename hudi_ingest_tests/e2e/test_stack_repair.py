"""Any process of the embedded stack may be killed: it comes back by itself, or by one `hudi-ingest up` that leaves the rest alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from hudi_ingest.local import stack as local_stack
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import free_port, is_alive
from hudi_ingest.local.stack import (
    BROKER,
    CODE_SERVER,
    DAEMON,
    ENGINE,
    WEBSERVER,
    Stack,
    StackSettings,
    bring_down,
    bring_up,
    hanging_parts,
)
from hudi_ingest.local.verification import verify
from hudi_ingest_tests.chaos import oracle
from hudi_ingest_tests.support.command_line import hudi_ingest
from hudi_ingest_tests.support.ground import Ground, fresh_ground, write_pipeline
from hudi_ingest_tests.support.java import QUICK, java_options
from hudi_ingest_tests.support.waiting import suspend, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.e2e, pytest.mark.tier(3)]

SETTINGS = StackSettings(free_port(), free_port(), master="local[2]", driver_memory="1g")
ROWS = 3


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ground, Stack]]:
    """A stack that has committed the first records."""
    with (
        fresh_ground(f"127.0.0.1:{SETTINGS.kafka_port}", tmp_path_factory.mktemp("repair")) as ground,
        java_options(QUICK),
    ):
        write_pipeline(
            ground,
            source={"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}"},
            transaction={"interval_seconds": 5, "timeout_seconds": 60},
        )
        try:
            found = up(ground)
            create_topic(found.bootstrap_servers, ground.name, 1)
            resumed = hudi_ingest(ground.home, "resume", ground.name)
            assert resumed.returncode == 0, resumed.stderr
            require_that_records_are_committed(ground)
            yield ground, found
        finally:
            bring_down(ground.home, lambda line: None)


def up(ground: Ground, told: list[str] | None = None) -> Stack:
    return bring_up(ground.home, SETTINGS, lambda line: told.append(line) if told is not None else None)


def require_that_records_are_committed(ground: Ground) -> None:
    ground.send_rows(0, ROWS, len(ground.produced))
    wait_for(
        lambda: oracle.count(oracle.StoredTable.on_disk(ground.base_path)) == len(ground.produced),
        "the new records are committed",
        pause_seconds=0.5,
    )
    assert verify(ground.base_path, ground.produced).exact


def child_of(stack: Stack, name: str, words: str) -> psutil.Process:
    record = next(each for each in stack.processes if each.name == name)
    for child in psutil.Process(record.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if words in " ".join(child.cmdline()):
                return child
    raise AssertionError(f"{name} has no child {words}")


def pids(stack: Stack) -> dict[str, int]:
    return {each.name: each.pid for each in stack.processes if is_alive(each)}


def test_p5_killed_children_come_back_by_themselves(stack: tuple[Ground, Stack]) -> None:
    ground, running = stack
    child_of(running, CODE_SERVER, "api grpc").kill()
    child_of(running, DAEMON, "multiprocessing.forkserver").kill()
    require_that_records_are_committed(ground)


@pytest.mark.parametrize(
    "blows",
    [
        pytest.param([{WEBSERVER, ENGINE}, {BROKER, CODE_SERVER, DAEMON}], id="several"),
        pytest.param([{BROKER}, {ENGINE}, {CODE_SERVER}, {WEBSERVER}, {DAEMON}], id="each"),
    ],
)
def test_p5_one_up_starts_what_was_killed_and_leaves_the_rest_alone(
    stack: tuple[Ground, Stack], blows: list[set[str]]
) -> None:
    ground, _ = stack
    running = up(ground)
    for killed in blows:
        before = pids(running)
        for name in killed:
            psutil.Process(before[name]).kill()
        running = up(ground)
        after = pids(running)
        assert set(after) == set(before)
        assert {name for name in after if after[name] != before[name]} == killed
    told: list[str] = []
    assert pids(up(ground, told)) == pids(running)
    assert told == [], "cron mails nothing while all is well"
    require_that_records_are_committed(ground)


@pytest.mark.parametrize("name", [CODE_SERVER, WEBSERVER, DAEMON])
def test_p5_up_replaces_a_part_of_dagster_that_hangs_and_status_names_it(
    stack: tuple[Ground, Stack], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, _ = stack
    before = pids(up(ground))
    # The daemon reports every 30 s.
    monkeypatch.setattr(local_stack, "_HANGS_SECONDS", 40.0)
    monkeypatch.setattr(local_stack, "_ANSWER_SECONDS", 5.0)
    wait_for(lambda: time.time() - psutil.Process(before[name]).create_time() > 40, "it is not just starting")
    assert hanging_parts(ground.home) == []
    suspend(psutil.Process(before[name]))
    try:
        hangs = f"{name} (pid {before[name]}) hangs: it has not "
        wait_for(lambda: hangs in " ".join(hanging_parts(ground.home)), "it is said to hang", pause_seconds=1)
        told: list[str] = []
        after = pids(up(ground, told))
    finally:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(before[name]).kill()
    assert {each for each in after if after[each] != before[each]} == {name}
    assert any(f"{name} (pid {before[name]}) hangs" in line and "replacing it" in line for line in told)
    assert hanging_parts(ground.home) == []
    require_that_records_are_committed(ground)
