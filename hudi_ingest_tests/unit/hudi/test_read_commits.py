"""Which commits of a timeline need not be parsed again."""

from __future__ import annotations

from hudi_ingest.hudi.timeline.timeline import ReadCommits


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
