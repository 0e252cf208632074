"""What the ticks remember: since when a pipeline file is as it is, and since when nobody could look."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from hudi_ingest.orchestration.coordinator.cursor import SensorCursor, fingerprint
from hudi_ingest_tests.support.pipeline_files import Write, load, with_security


def at(second: int) -> datetime:
    return datetime.fromtimestamp(1000 + second, timezone.utc)


def test_a_changed_file_is_remembered_from_the_tick_that_sees_it() -> None:
    first = SensorCursor.read("").after("a", False, at(0))
    assert first.changed_at == 0, "what was before the first tick is not known to have been different"
    same = SensorCursor.read(first.to_text()).after("a", False, at(5))
    changed = SensorCursor.read(same.to_text()).after("b", False, at(10))
    assert (same.changed_at, changed.changed_at) == (0, 1010)
    assert changed.after("b", False, at(15)).changed_at == 1010


def test_trouble_is_remembered_from_its_first_tick_and_forgotten_after_its_last() -> None:
    blind = SensorCursor().after("a", True, at(0))
    assert blind.after("a", True, at(5)).blind_since == 1000
    assert blind.after("a", False, at(10)).blind_since is None


def test_a_cursor_of_another_version_is_no_memory() -> None:
    for text in ("", "{}", "not JSON", '{"more": 1}', "[1]"):
        assert SensorCursor.read(text) == SensorCursor()


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
