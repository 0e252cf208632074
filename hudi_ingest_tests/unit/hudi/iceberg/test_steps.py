"""What Iceberg lacks, by timelines alone: archived, restored and keyed ones."""

from __future__ import annotations

import pytest

from hudi_ingest.hudi.iceberg.steps import Known, Published, archive_since, complete_with, expired, next_steps
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, instant_time

pytestmark = pytest.mark.fast
T = [f"2026010{day}000000000" for day in range(1, 10)]
OWN = "own"


def commit(
    number: int, *paths: str, own: bool = True, completed: int | None = None, replaced: str = ""
) -> CommittedInstant:
    groups = frozenset([("", replaced)] if replaced else [])
    at = instant_time(T[number if completed is None else completed])
    return CommittedInstant(T[number], {OWN: "{}"} if own else {}, at, dict.fromkeys(paths, 1), replaced=groups)


def published(number: int, oldest: int = 0, completed: int | None = None) -> Published:
    at = instant_time(T[number if completed is None else completed])
    return Published(number, T[number], at, T[oldest])


def test_archived_commits_are_asked_for_only_when_something_was_archived() -> None:
    known = Known((commit(2), commit(3), commit(4)))
    assert archive_since([], known) is None
    assert archive_since([published(3, oldest=2), published(1, oldest=1)], known) is None
    assert archive_since([published(3, oldest=1), published(2, oldest=1)], known) == T[1]
    # The newest snapshot's own commit is not active: it is archived or lost.
    assert archive_since([published(1, oldest=1)], known) == T[1]
    savepoint = Known((commit(0), commit(2), commit(3)), savepoints=frozenset([T[0]]))
    assert archive_since([published(3, oldest=2)], savepoint) is None


def test_what_completed_late_and_was_archived_at_once_is_published() -> None:
    clustering = commit(1, "c_0_0.parquet", own=False, completed=5, replaced="a")
    known = Known((commit(4), commit(6)), archived=(clustering,))
    steps = next_steps([published(4, oldest=1)], known, OWN, keyed=False)
    assert [change.commit.instant for change in steps.changes] == [T[1], T[6]]
    assert steps.changes[0].replaced == {("", "a"), ("", "c")}


def test_lost_commits_are_left_behind_and_archived_ones_are_not() -> None:
    chain = [published(4), published(3), published(2), published(1)]
    known = Known((commit(2), commit(6)), archived=(commit(1),))
    steps = next_steps(chain, known, OWN, keyed=False)
    assert steps.back_to == published(2)
    assert [change.commit.instant for change in steps.changes] == [T[6]]
    steps = next_steps(chain, Known((commit(6),)), OWN, keyed=False)
    assert steps.back_to is None and [change.whole for change in steps.changes] == [True]


def test_many_commits_are_one_snapshot_with_what_is_left_of_them() -> None:
    commits = (
        commit(1, "a_0_1.parquet"),
        commit(2, "b_0_2.parquet"),
        commit(3, "c_0_3.parquet", own=False, replaced="a"),
    )
    steps = next_steps([published(0)], Known((commit(0), *commits)), OWN, keyed=False, at_once=True)
    (change,) = steps.changes
    assert (change.commit.instant, change.added, change.instants) == (T[3], ("b_0_2.parquet", "c_0_3.parquet"), 3)
    assert {("", "a")} <= change.replaced


def test_a_keyed_table_says_how_far_its_base_files_have_all() -> None:
    first = commit(1, "a_0-0-0_1.parquet", ".a_x.log.1_0", ".b_x.log.1_0")
    second = commit(2, ".a_x.log.2_0")
    third = commit(3, ".b_x.log.2_0")
    compaction = commit(4, f"a_0_{T[4]}.parquet", own=False)
    both = commit(5, f"a_0_{T[5]}.parquet", f"b_0_{T[5]}.parquet", own=False)
    known = Known((commit(0), first, second, third, compaction, both))
    assert next_steps([published(0)], known, OWN, keyed=True).changes[0].added == (f"a_0_{T[4]}.parquet",)
    assert complete_with(compaction, known, OWN) == commit(0), "b's first log file is not compacted"
    assert complete_with(both, known, OWN) == third
    partly = Known((first, second, commit(3, f"b_0_{T[3]}.parquet", own=False)))
    assert complete_with(commit(3, own=False), partly, OWN) is None
    assert complete_with(second, Known((commit(1, "a.parquet"), commit(2, "b.parquet"))), OWN) == commit(2, "b.parquet")


def test_snapshots_expire_by_the_commits_after_them() -> None:
    known = Known(tuple(commit(number) for number in range(1, 6)))
    chain = [published(number) for number in (5, 4, 3, 2, 1)]
    assert expired(chain, known, 3) == (2, 1)
    assert expired(chain, known, 9) == ()
