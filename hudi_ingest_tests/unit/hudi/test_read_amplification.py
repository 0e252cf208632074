"""What is not compacted, by a table that is compacted at random; and when compaction is due."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.hudi.files.read_amplification import COMPACT, ReadAmplification, read_amplification, why_due
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Timeline
from hudi_ingest.pipeline.sections.table_parts import CompactionLimits

pytestmark = pytest.mark.fast

BEGAN = datetime(2026, 11, 23, tzinfo=timezone.utc)
GROUPS = ("dt=1|00000000", "dt=1|00000001", "dt=2|00000000")
LIMITS = CompactionLimits(delta_commits=3)


def instant(second: int) -> str:
    return f"{BEGAN + timedelta(seconds=second):%Y%m%d%H%M%S}000"


def log_path(group: str, second: int, number: int = 0) -> str:
    folder, file_id = group.split("|")
    return f"{folder}/.{file_id}_{instant(second)}.log.1_{number}-0-0"


def base_path(group: str, second: int) -> str:
    folder, file_id = group.split("|")
    return f"{folder}/{file_id}_0-1-2_{instant(second)}.parquet"


def commit(second: int, done: int, files: dict[str, int], operation: str = "UPSERT") -> CommittedInstant:
    return CommittedInstant(instant(second), {}, BEGAN + timedelta(seconds=done), files, operation=operation)


@dataclass
class Table:
    """A keyed table that knows which log files each compaction merges: those that were completed when it was planned."""

    commits: list[CommittedInstant] = field(default_factory=list)
    logs: dict[str, dict[str, int]] = field(default_factory=dict)
    bases: dict[str, int] = field(default_factory=dict)
    planned: list[tuple[int, dict[str, set[str]]]] = field(default_factory=list)
    open: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    clock: int = 0

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def begin(self, groups: list[str], size: int) -> None:
        second = self.tick()
        self.open.append((second, {log_path(group, second): size for group in groups}))

    def complete(self) -> None:
        if not self.open:
            return
        second, files = self.open.pop(0)
        published = dict(files)
        for path, size in files.items():
            folder, name = path.split("/")
            group = f"{folder}|{name[1:].split('_')[0]}"
            if group not in self.bases:
                self.bases[group] = 7
                published[base_path(group, second)] = 7
            self.logs.setdefault(group, {})[path] = size
        self.commits.append(commit(second, self.tick(), published))

    def plan(self) -> None:
        busy = {group for _, merges in self.planned for group in merges}
        merges = {group: set(files) for group, files in self.logs.items() if files and group not in busy}
        if merges:
            self.planned.append((self.tick(), merges))

    def compact(self, size: int) -> None:
        if not self.planned:
            return
        second, merges = self.planned.pop(0)
        for group, merged in merges.items():
            self.logs[group] = {path: bytes_ for path, bytes_ in self.logs[group].items() if path not in merged}
            self.bases[group] = size
        files = {base_path(group, second): size for group in merges}
        self.commits.append(commit(second, self.tick(), files, COMPACT))


STEPS = st.one_of(
    st.tuples(st.just("begin"), st.sets(st.sampled_from(GROUPS), min_size=1).map(sorted), st.integers(1, 9)),
    st.tuples(st.just("complete")),
    st.tuples(st.just("plan")),
    st.tuples(st.just("compact"), st.integers(1, 99)),
)


@given(st.lists(STEPS, max_size=40), st.randoms())
def test_p7_what_is_not_compacted_is_what_no_compaction_has_merged(
    steps: list[tuple[object, ...]], dice: object
) -> None:
    table = Table()
    for name, *arguments in steps:
        getattr(table, str(name))(*arguments)
    commits = list(table.commits)
    dice.shuffle(commits)  # type: ignore[attr-defined]
    found = read_amplification(commits)
    unmerged = {group: files for group, files in table.logs.items() if files}
    paths = {path: size for files in unmerged.values() for path, size in files.items()}
    assert (found.log_files, found.log_bytes) == (len(paths), sum(paths.values()))
    assert found.file_groups == len(unmerged)
    assert found.most_log_files == max((len(files) for files in unmerged.values()), default=0)
    assert found.base_bytes == sum(table.bases[group] for group in unmerged)
    assert found.delta_commits == sum(1 for each in commits if each.files.keys() & paths.keys())
    assert (found.oldest_at is None) == (not paths)


def test_a_base_file_whose_commit_is_archived_leaves_the_ratio_unknown() -> None:
    logs = {log_path(GROUPS[0], 5): 30, log_path(GROUPS[1], 5): 10}
    assert read_amplification([commit(5, 6, logs)]).base_bytes is None
    both = read_amplification([commit(1, 2, {base_path(group, 1): 20 for group in GROUPS}), commit(5, 6, logs)])
    assert (both.base_bytes, both.ratio, both.mean_log_files) == (40, 1.0, 1.0)
    assert ReadAmplification().ratio is None


def test_log_files_of_a_dropped_partition_do_not_count() -> None:
    dropped = CommittedInstant(
        instant(7), {}, BEGAN + timedelta(seconds=8), replaced=frozenset({("dt=1", "00000000"), ("dt=1", "00000001")})
    )
    logs = {log_path(group, 5): 10 for group in GROUPS}
    found = read_amplification([commit(5, 6, logs), dropped, commit(9, 10, {log_path(GROUPS[0], 9): 1})])
    assert (found.log_files, found.log_bytes, found.file_groups) == (2, 11, 2)


@given(
    st.integers(0, 10),
    st.integers(0, 12),
    st.integers(0, 1 << 34),
    st.one_of(st.none(), st.integers(0, 500_000)),
    st.sampled_from((1, 2)),
)
def test_compaction_is_due_when_a_limit_is_reached(
    commits: int, files: int, size: int, age: int | None, times: int
) -> None:
    oldest = None if age is None else BEGAN - timedelta(seconds=age)
    reason = why_due(LIMITS, ReadAmplification(commits, 20, size, 2, files, None, oldest_at=oldest), BEGAN, times)
    reached = commits >= 3 * times or files >= 12 * times or size >= LIMITS.log_bytes * times
    reached |= (age or 0) >= 86_400 * times
    assert bool(reason) == (age is not None and reached), reason


def test_the_reason_names_the_limit() -> None:
    def reason(commits: int, size: int, age: int, files: int = 1) -> str:
        oldest = BEGAN - timedelta(seconds=age)
        return why_due(LIMITS, ReadAmplification(commits, 7, size, 2, files, None, oldest_at=oldest), BEGAN)

    assert reason(3, 0, 0) == "3 commits not compacted (delta_commits: 3)"
    assert reason(1, 0, 0, files=12) == "12 log files of a file group not compacted (12 with delta_commits: 3)"
    assert reason(1, 1 << 32, 0) == (
        "4,294,967,296 bytes of log files not compacted (2,576,980,377 with delta_commits: 3)"
    )
    assert reason(1, 1, 86_401) == "the oldest commit not compacted is 86,401 s old; they are compacted within a day"


@pytest.mark.parametrize(
    ("log_mb", "base_mb", "is_due"),
    [(15, 0, False), (16, 0, True), (40, 41, False), (41, 41, True), (41, None, False)],
)
def test_a_compaction_is_due_when_log_files_outweigh_base_files(log_mb: int, base_mb: int | None, is_due: bool) -> None:
    base_bytes = None if base_mb is None else base_mb << 20
    found = ReadAmplification(1, 1, log_mb << 20, 1, 1, base_bytes, oldest_at=BEGAN)
    assert bool(why_due(CompactionLimits(), found, BEGAN)) == is_due
    assert not why_due(CompactionLimits(), found, BEGAN, times=3)


def test_p5_a_compaction_is_pending_until_its_commit_is_there(tmp_path: Path) -> None:
    timeline = Timeline(str(tmp_path))
    assert timeline.pending_compactions() == ()
    folder = tmp_path / ".hoodie" / "timeline"
    folder.mkdir(parents=True)
    planned, running, done = (instant(second) for second in (3, 2, 1))
    for name in (
        f"{planned}.compaction.requested",
        f"{running}.compaction.requested",
        f"{running}.compaction.inflight",
    ):
        (folder / name).touch()
    for name in (f"{done}.compaction.requested", f"{done}.compaction.inflight", f"{done}_{instant(9)}.commit"):
        (folder / name).touch()
    (folder / f"{instant(4)}.deltacommit.requested").touch()
    assert timeline.pending_compactions() == (running, planned)
