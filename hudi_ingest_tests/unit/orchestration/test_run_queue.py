"""The embedded stack's daemon looks at the queue when a run is submitted or ends, not once a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from hudi_ingest.orchestration.embedded.daemon import __main__ as run_queue
from hudi_ingest.orchestration.embedded.daemon.__main__ import PromptRunQueue, daemons

QUEUE = "QUEUED_RUN_COORDINATOR"


@pytest.mark.parametrize("storage", ["QuickSqliteStorage", ""])
def test_only_the_queue_is_our_own_and_only_with_our_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    custom = f"storage: {{custom: {{module: hudi_ingest.orchestration.embedded.sqlite_storage, class: {storage}}}}}\n"
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n" + custom * bool(storage))
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        found = {daemon.daemon_type(): daemon for daemon in daemons(instance)}
        assert set(found) == set(instance.get_required_daemon_types())
        assert isinstance(found.pop(QUEUE), PromptRunQueue) == bool(storage)
        assert not any(isinstance(daemon, PromptRunQueue) for daemon in found.values())


def test_a_look_waits_for_a_change_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def look(*_: object) -> Iterator[None]:
        looks.append(1)
        yield None

    monkeypatch.setattr(QueuedRunCoordinatorDaemon, "run_iteration", look)
    monkeypatch.setattr(run_queue, "_LOOKS_BEFORE_HEARTBEAT", 2)
    answers = iter([False, False, False, False, True])
    heartbeats = list(PromptRunQueue(lambda: next(answers), 60).run_iteration(None))[:-1]  # type: ignore[arg-type]
    assert len(heartbeats) == 2
    assert len(list(PromptRunQueue(lambda: False, 0.0).run_iteration(None))) == 1  # type: ignore[arg-type]
    assert len(looks) == 2
