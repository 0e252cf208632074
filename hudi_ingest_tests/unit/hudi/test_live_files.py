"""P5, P7: which files readers must see by the commits alone, and what is no alarm. No JVM."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hudi_ingest.exceptions import TableMismatch
from hudi_ingest.hudi.files.live_files import files_that_would_show, hidden_text, live_files, unlisted_files
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Timeline, instant_time
from hudi_ingest.pipeline.pipeline import Pipeline

pytestmark = pytest.mark.fast

T = [f"2026010{day}000000000" for day in range(1, 8)]


def base(group: str, instant: str, folder: str = "dt=1") -> str:
    return f"{folder}/{group}_0-0-0_{instant}.parquet"


def log(group: str, instant: str, folder: str = "dt=1") -> str:
    return f"{folder}/.{group}_{instant}.log.1_0-1-2"


def commit(instant: str, *paths: str, replaced: tuple[str, ...] = (), completed: str = "") -> CommittedInstant:
    groups = frozenset(("dt=1", group) for group in replaced)
    return CommittedInstant(instant, {}, instant_time(completed or instant), dict.fromkeys(paths, 1), replaced=groups)


def test_what_was_replaced_or_written_anew_is_not_live() -> None:
    commits = [
        commit(T[0], base("a", T[0]), base("b", T[0]), base("c", T[0])),
        commit(T[1], base("b", T[1])),
        commit(T[2], base("d", T[2]), replaced=("a",)),
        commit(T[3], base("a", T[3], "dt=2")),
    ]
    live = {base("b", T[1]): T[1], base("c", T[0]): T[0], base("d", T[2]): T[2], base("a", T[3], "dt=2"): T[3]}
    assert live_files(commits) == live_files(reversed(commits)) == live


def test_a_log_file_is_live_until_a_base_file_has_what_is_in_it() -> None:
    compaction = commit(T[2], base("a", T[2]), completed=T[4])
    merged = commit(T[1], log("a", T[1]), log("b", T[1]))
    beside = commit(T[0], log("a", T[0]), completed=T[3])
    assert live_files([commit(T[0], base("a", T[0])), merged]) == {
        base("a", T[0]): T[0],
        log("a", T[1]): T[1],
        log("b", T[1]): T[1],
    }
    # Hudi's rule goes by when a log file was completed: this one began before the compaction was planned, and ended after.
    assert live_files([compaction, merged, beside]) == {
        base("a", T[2]): T[2],
        log("b", T[1]): T[1],
        log("a", T[0]): T[0],
    }
    at_once = commit(T[0], log("a", T[0]), completed=T[2])
    assert log("a", T[0]) in live_files([compaction, at_once])


def test_a_log_file_without_a_base_file_is_not_missed() -> None:
    """hudi-rs lists no file group that has none."""
    commits = [commit(T[1], log("a", T[1]), log("b", T[1])), commit(T[2], base("c", T[2]), log("c", T[2]))]
    assert unlisted_files(commits, []) == {base("c", T[2]): T[2], log("c", T[2]): T[2]}
    assert unlisted_files(commits, [base("b", T[0]), base("c", T[2])]) == {log("b", T[1]): T[1], log("c", T[2]): T[2]}
    assert unlisted_files(commits, live_files(commits)) == {}


def test_what_no_commit_names_or_only_archived_ones_hide_would_show() -> None:
    archived = [commit(T[0], base("a", T[0]), base("b", T[0])), commit(T[1], base("c", T[1]), replaced=("a",))]
    active = [commit(T[2], base("d", T[2]), base("e", T[2])), commit(T[3], base("f", T[3]), replaced=("d",))]
    named = [path for each in (*archived, *active) for path in each.files]
    strays = ["dt=1/stray.parquet", log("f", T[3]), base("d", T[3])]
    others = [
        "dt=1/.hoodie_partition_metadata",
        "dt=1/.hoodie_partition_metadata.parquet",
        "dt=1/notes.txt",
        "dt=1/.x.log.crc",
    ]
    assert files_that_would_show([*named, *strays, *others], active, archived) == sorted([base("a", T[0]), *strays])


def test_the_message_names_files_commits_and_the_command() -> None:
    text = hidden_text("orders", "/data/orders", {base("a", T[0]): T[0], base("b", T[0]): T[0]})
    assert f"does not list {base('a', T[0])}, {base('b', T[0])}, which commit {T[0]} published" in text
    assert "`hudi-ingest recover orders --metadata-table`" in text


class Moving(Timeline):
    """At each look at its list, the next of `looks`: the commits as they are then, and what is listed."""

    def __init__(self, path: str, looks: list[tuple[list[CommittedInstant], list[str]]], kept: set[str]) -> None:
        self.storage = LocalStorage(path)
        self.looks, self.kept, self.seen = looks, kept, 0
        self.asked: list[Collection[str] | None] = []

    def properties(self) -> dict[str, str]:
        return {}

    def completed(self) -> tuple[CommittedInstant, ...]:
        return tuple(self.looks[self.seen][0])

    def live_paths(self, folders: Collection[str] | None = None) -> frozenset[str]:
        self.asked.append(folders)
        self.seen += 1
        return frozenset(self.looks[self.seen - 1][1])

    def savepoints(self) -> frozenset[str]:
        return frozenset(self.kept)

    def forget(self) -> None:
        pass


def unlisted(
    looks: list[tuple[list[CommittedInstant], list[str]]], kept: set[str] | None = None, path: str = "/t"
) -> tuple[dict[str, str], int]:
    timeline = Moving(path, looks, kept or set())
    found = PipelineTable(cast(Pipeline, SimpleNamespace()), timeline).unlisted(tuple(looks[0][0]))
    return found, timeline.seen


def test_only_what_two_looks_miss_is_unlisted() -> None:
    first, second = commit(T[0], base("a", T[0])), commit(T[1], base("b", T[1]), replaced=("a",))
    whole: tuple[list[CommittedInstant], list[str]] = ([first], [base("a", T[0])])
    assert unlisted([whole]) == ({}, 1), "one look is enough while nothing is missed"
    # Another writer replaced it between the look at the commits and that at the list.
    assert unlisted([([first], [base("b", T[1])]), ([first, second], [base("b", T[1])])]) == ({}, 2)
    assert unlisted([([first], []), ([first], [])]) == ({base("a", T[0]): T[0]}, 2)
    assert unlisted([([], [])]) == ({}, 0), "an empty table is not even asked"


def test_a_savepoints_commit_may_have_lost_what_replaced_its_files() -> None:
    first = commit(T[0], base("a", T[0]))
    assert unlisted([([first], [])], {T[0]}) == ({}, 1)


def test_a_metadata_table_that_is_gone_is_told_before_its_list_is_read(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Moving, "properties", lambda self: {"hoodie.table.metadata.partitions": "files"})
    with pytest.raises(TableMismatch, match=r"\.hoodie/metadata, is gone"):
        unlisted([([commit(T[0], base("a", T[0]))], [])], path=str(tmp_path))


def test_only_the_newest_commits_are_looked_at_and_first_in_their_own_folders() -> None:
    commits = [
        commit(f"202602{day:02}000000000", base("g", f"202602{day:02}000000000", f"dt={day}")) for day in range(1, 13)
    ]
    commits.reverse()
    listed = [path for each in commits[:10] for path in each.files]
    timeline = Moving("/t", [(commits, listed[1:]), (commits, listed[1:])], set())
    table = PipelineTable(cast(Pipeline, SimpleNamespace()), timeline)
    assert table.unlisted(commits) == {listed[0]: commits[0].instant}
    assert timeline.asked == [{f"dt={day}" for day in range(3, 13)}, None], "the whole list decides"
    timeline = Moving("/t", [(commits, listed)] * 4, set())
    table = PipelineTable(cast(Pipeline, SimpleNamespace()), timeline)
    assert table.unlisted(commits) == {}
    assert len(table.unlisted(commits, None)) == 2 and timeline.asked[1:] == [None, None]


@pytest.mark.parametrize(
    ("fields", "folders", "values"),
    [
        ("dt", {"dt=2026-01-01", "dt=2026-01-02"}, "2026-01-01,2026-01-02"),
        ("dt:SIMPLE,region", {"7/eu", "8/eu"}, "7,8"),
        ("dt", {"dt=a%20b", "dt=c"}, None),
        ("dt", {f"dt={number}" for number in range(101)}, None),
        ("", {""}, None),
    ],
)
def test_table_partitions_are_chosen_only_where_their_values_are_certain(
    fields: str, folders: set[str], values: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = Moving("/t", [], set())
    monkeypatch.setattr(Moving, "properties", lambda self: {"hoodie.table.partition.fields": fields})
    chosen = timeline._chosen(folders)
    assert (None if chosen is None else chosen.filters[0][2]) == values
