"""What housekeeping deletes below a table's `.hoodie/hudi_ingest`, and what a rollback could still bring back. No JVM."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import COPIED_LETTERS, PUT_ASIDE, dead_letters_folder
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import Instants, Timeline, instant_time
from hudi_ingest.model.checkpoint import LettersHead
from hudi_ingest.model.report import LetterFile
from hudi_ingest.operations.upkeep.sweep import TableLeftovers
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog, LetterEntry
from hudi_ingest_tests.support.pipeline_files import Write, load

FIRST, RETRIED, ROLLED_BACK, LAST = (f"2026010{day}000000000" for day in (1, 2, 3, 4))
NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
Leftovers = Callable[[str, timedelta], TableLeftovers]


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "table"))


@pytest.fixture
def leftovers(write: Write, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> Leftovers:
    """Letters of FIRST, taken by RETRIED; a list whose commit was rolled back; and letters of LAST that wait."""
    log = DeadLetterLog(storage)
    head: LettersHead | None = None
    files = {instant: f"{dead_letters_folder(instant)}/letters.parquet" for instant in (FIRST, LAST)}
    for path in files.values():
        storage.write_whole(path, b"letters")
    letter = {instant: LetterFile(path=path, size_bytes=7, letters=1) for instant, path in files.items()}
    for entry in (
        LetterEntry(FIRST, "t1", "ingest", files=(letter[FIRST],)),
        LetterEntry(RETRIED, "t2", "retry", taken=(files[FIRST],)),
        LetterEntry(ROLLED_BACK, "t3", "ingest"),
        LetterEntry(LAST, "t4", "ingest", files=(letter[LAST],)),
    ):
        manifest = log._append(entry, head)
        head = head if entry.instant == ROLLED_BACK else LettersHead(manifest, 1)
    storage.write_whole(COPIED_LETTERS, b"[]")
    storage.write_whole(f"{PUT_ASIDE}/old.inflight", b"")
    pipeline = load(write, table__base_path=storage.base_path)
    state = SimpleNamespace(checkpoint=SimpleNamespace(letters=head))
    monkeypatch.setattr(PipelineTable, "committed", lambda self: state)
    monkeypatch.setattr(Timeline, "exists", lambda self: True)

    def since(oldest: str, age: timedelta) -> TableLeftovers:
        monkeypatch.setattr(Timeline, "instants", lambda self: Instants(frozenset(), frozenset([oldest])))
        return TableLeftovers(pipeline, NOW - age, NOW - age)

    return since


def names(files: TableLeftovers) -> set[str]:
    return {file.path.removeprefix(".hoodie/hudi_ingest/").rpartition("/")[0] for file in files.find()}


def test_what_a_retry_took_goes_once_no_rollback_can_bring_it_back(leftovers: Leftovers, storage: LocalStorage) -> None:
    month = timedelta(days=30)
    aside = Path(storage.base_path, PUT_ASIDE, "old.inflight")
    os.utime(aside, times=((NOW - 2 * month).timestamp(),) * 2)
    first, retried, rolled_back = (f"dead_letters/{instant}" for instant in (FIRST, RETRIED, ROLLED_BACK))
    assert names(leftovers(FIRST, month)) == {"put_aside"}, "a rollback could bring the first list back"
    assert names(leftovers(RETRIED, month)) == {"put_aside"}
    assert {file.path for file in leftovers(LAST, month).find() if file.path.endswith(".parquet")} == {
        f".hoodie/hudi_ingest/{first}/letters.parquet"
    }
    assert names(leftovers(LAST, month)) == {"put_aside", first}, "the last commit could be rolled back"
    assert names(leftovers(LAST, timedelta(days=365))) == set()
    found = leftovers("20260105000000000", month)
    everything = found.find()
    assert names(found) == {"put_aside", first, retried, rolled_back}
    found.delete(everything)
    assert found.find() == []
    head = PipelineTable(found.pipeline).committed().checkpoint
    assert head is not None
    [waiting] = DeadLetterLog(storage).waiting(head.letters)
    assert storage.exists(waiting.file.path) and instant_time(waiting.entry.instant) == instant_time(LAST)
    assert not aside.exists() and storage.exists(COPIED_LETTERS)
