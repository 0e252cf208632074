"""What the ticks remember: since when a pipeline file is as it is, and since when nobody could look."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance

from hudi_ingest.home.folder import LEDGER_VARIABLE
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.processes import free_port
from hudi_ingest.orchestration.coordinator import look
from hudi_ingest.orchestration.coordinator.look import fingerprint, look_at
from hudi_ingest.orchestration.coordinator.memory import Memory
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest_tests.support.pipeline_files import Write, load, with_security


def at(second: int) -> datetime:
    return datetime.fromtimestamp(1000 + second, timezone.utc)


def test_a_changed_file_is_remembered_from_the_tick_that_sees_it(tmp_path: Path) -> None:
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:

        def changed_at(settings: str, second: int) -> datetime | None:
            return ledger.requests.note_settings("orders", settings, at(second))

        ledger.requests.note_tick("orders", at(0))
        assert changed_at("a", 0) is None, "what was before the first tick is not known to have been different"
        assert changed_at("a", 5) is None
        assert changed_at("b", 10) == at(10)
        assert changed_at("b", 15) == at(10)
        assert ledger.requests.note_settings("clicks", "b", at(20)) is None, "each pipeline has its own"


def test_trouble_is_remembered_from_its_first_tick_and_forgotten_after_its_last(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def since(pipeline: Pipeline, second: int) -> float | None:
        with DagsterInstance.ephemeral() as instance:
            return look_at(memory.of(pipeline), instance, at(second)).blind_since

    def loaded() -> Pipeline:
        nobody = f"127.0.0.1:{free_port()}"
        settings: dict[str, Any] = {"source__bootstrap_servers": nobody, "source__request_timeout_seconds": 0.1}
        return load(write, table__base_path=str(tmp_path / "table"), **settings)

    monkeypatch.setenv(LEDGER_VARIABLE, f"sqlite:///{tmp_path / 'ledger.db'}")
    memory, pipeline, other = Memory(), loaded(), loaded()
    assert [since(pipeline, 0), since(pipeline, 5)] == [1000, 1000]
    assert since(other, 7) == 1007, "the pipelines were loaded again"
    with monkeypatch.context() as answered:
        answered.setattr(look, "observe", lambda *_: Situation(CommittedState(False), {}, {}, {}))
        answered.setattr(look, "answering_cluster", lambda _: nullcontext())
        assert since(other, 10) is None
    assert since(other, 15) == 1015


def test_the_fingerprint_changes_with_what_the_file_says_and_shows_no_secret(write: Write) -> None:
    one = load(write)
    assert fingerprint(one) == fingerprint(load(write))
    assert fingerprint(one) != fingerprint(load(write, on_bad_record="skip"))
    schema = write('{"type":"record","name":"r","fields":[{"name":"id","type":"string"}]}', "orders.avsc")
    by_file: dict[str, Any] = {"table__schema": None, "table__schema_file": str(schema)}
    before = fingerprint(load(write, **by_file))
    schema.write_text(schema.read_text().replace('"string"', '"long"'))
    assert before != fingerprint(load(write, **by_file))
    assert fingerprint(load(write, **with_security())) == fingerprint(load(write, **with_security(password="other")))
