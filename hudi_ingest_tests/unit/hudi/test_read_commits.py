"""Which commits of a timeline need not be parsed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.storage.paths import PRIMARY, TIMELINE
from hudi_ingest.hudi.timeline import timeline
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, ReadCommits, Timeline, instant_time
from hudi_ingest_tests.support.properties_text import properties_text


def test_the_least_recently_used_commits_go_first() -> None:
    read: ReadCommits[str] = ReadCommits(most_bytes=100)
    read.keep("a", "first", 40)
    read.keep("b", "second", 40)
    assert read.get("a") == "first"
    read.keep("c", "third", 40)
    read.keep("c", "third again", 60)
    assert [read.get(file) for file in "abc"] == ["first", None, "third again"]


def test_a_commit_larger_than_all_of_the_room_is_not_kept() -> None:
    read: ReadCommits[str] = ReadCommits(most_bytes=100)
    read.keep("a", "first", 101)
    read.keep("b", "second", 100)
    assert (read.get("a"), read.get("b")) == (None, "second")


def test_on_a_local_disk_commits_whose_files_are_the_same_are_not_read(tmp_path: Path) -> None:
    names = ("20261122100000000_20261122100001000.commit", "20261122100100000_20261122100101000.commit")
    (tmp_path / TIMELINE).mkdir(parents=True)
    (tmp_path / PRIMARY).write_text(properties_text({"hudi_ingest.pipeline": "orders"}))
    table = Timeline(str(tmp_path))
    for name in names:
        # A file that could not be read.
        (tmp_path / TIMELINE / name).write_text("{")
        file = table.storage.file(f"{TIMELINE}/{name}")
        commit = CommittedInstant(name[:17], {}, instant_time(name[18:35]))
        timeline._read_commits.keep((table.base_path, file), commit, 1)
    assert [commit.instant for commit in table.completed()] == [name[:17] for name in reversed(names)]
    (tmp_path / TIMELINE / names[0]).write_text("{}")
    with pytest.raises(TableUnreachable):
        table.completed()
