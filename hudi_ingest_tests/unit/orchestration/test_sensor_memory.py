"""What the ticks remember: since when a pipeline file is as it is, and since when nobody could look."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hudi_ingest.ledger import Ledger
from hudi_ingest.orchestration.coordinator.sensor import _note_sight, fingerprint
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


def test_trouble_is_remembered_from_its_first_tick_and_forgotten_after_its_last(write: Write) -> None:
    pipeline = load(write)
    assert _note_sight(pipeline, False, at(0)) == 1000
    assert _note_sight(pipeline, False, at(5)) == 1000
    assert _note_sight(load(write), False, at(7)) == 1007, "the pipelines were loaded again"
    assert _note_sight(pipeline, True, at(10)) is None
    assert _note_sight(pipeline, False, at(15)) == 1015


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
