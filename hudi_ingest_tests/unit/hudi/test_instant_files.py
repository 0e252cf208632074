"""P1: Hudi writes a timeline's file under another name first; if it is killed before it renames it, the instant is in the state it was in."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.hudi.files.current_rows import Completed
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import TIMELINE
from hudi_ingest.hudi.timeline.damaged_instants import damaged_instants
from hudi_ingest.hudi.timeline.timeline import Timeline

OURS, OTHER, SERVICE, END, LATER = (f"202611231000{second}000" for second in ("10", "20", "30", "40", "50"))
NAMES = (
    f"{OURS}.commit.requested",
    f"{OURS}.inflight",
    f"{OTHER}.deltacommit.requested",
    f"{OTHER}.deltacommit.inflight",
    f"{SERVICE}.compaction.requested",
    f"{SERVICE}.compaction.inflight",
    f"{END}.restore.requested",
    f"{END}.savepoint.inflight",
)


def answers(base_path: Path) -> dict[str, Any]:
    timeline, storage = Timeline(str(base_path)), LocalStorage(str(base_path))
    return {
        "instants": timeline.instants(),
        "writes": timeline.pending_writes(),
        "compactions": timeline.pending_compactions(),
        "newest": timeline.newest_instant(),
        "restored": timeline.restored_at(),
        "savepoints": timeline.savepoints(),
        "completed": Completed.of(storage.names(TIMELINE)),
        "damaged": [damage.instant for damage in damaged_instants(storage, "hudi_ingest.transaction.orders", list)],
    }


@pytest.mark.parametrize(
    "name",
    [
        f"{OURS}_{LATER}.commit",
        f"{OTHER}_{LATER}.deltacommit",
        f"{SERVICE}_{LATER}.commit",
        f"{END}_{LATER}.restore",
        f"{END}_{LATER}.savepoint",
        f"{LATER}.clean.requested",
        f"{LATER}.inflight",
        f"{LATER}.replacecommit.inflight",
    ],
)
def test_p1_a_file_of_the_timeline_counts_from_when_it_has_its_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / TIMELINE
    folder.mkdir(parents=True)
    for each in NAMES:
        (folder / each).touch()
    before = answers(tmp_path)
    assert before["instants"].pending == {OURS, OTHER, SERVICE, END}
    unnamed = folder / f"{name}.{uuid.uuid4()}"
    unnamed.touch()
    assert answers(tmp_path) == before
    unnamed.rename(folder / name)
    assert answers(tmp_path) != before
