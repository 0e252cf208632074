"""The warning about small files: when it comes, and whether its advice holds."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.files.read_amplification import (
    CLUSTERED_FROM,
    SMALL_PART,
    files_to_merge,
    merged_below,
    small_files_warning,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.pipeline_files import Write, load

MIB = 1024 * 1024


def base_files(*sizes: int, folders: int = 1) -> dict[str, int]:
    return {f"dt={number % folders}/file{number}": size for number, size in enumerate(sizes)}


def pipeline(write: Write, interval: float) -> Pipeline:
    return load(write, transaction__interval_seconds=interval)


def test_h3_large_files_and_rare_commits_are_no_trouble(write: Write) -> None:
    often = pipeline(write, 60)
    assert small_files_warning(often, base_files(*[32 * MIB] * 50)) == ""
    assert small_files_warning(often, {}) == ""
    assert small_files_warning(pipeline(write, 3600), base_files(*[MIB] * 40)) == ""


def test_h3_the_warning_names_the_setting_that_helps(write: Write) -> None:
    sizes = [MIB, 3 * MIB] * 10
    said = small_files_warning(pipeline(write, 60), base_files(*sizes, 64 * MIB, folders=2))
    assert "20 of this commit's 21 files are small (2,097,152 bytes on average, in 2 table partitions)" in said
    assert "can be 28,800 small files a day, more than 15,000" in said
    assert "Raise transaction.interval_seconds (to 116 for that limit), or partition the table by fewer values." in said


@given(st.integers(1, 365), st.integers(5, 3600))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_h3_the_interval_that_is_advised_ends_the_warning(write: Write, count: int, interval: int) -> None:
    said = small_files_warning(pipeline(write, interval), base_files(*[MIB] * count))
    if said:
        advised = int(re.search(r"\(to ([\d,]+) for", said)[1].replace(",", ""))  # type: ignore[index]
        assert small_files_warning(pipeline(write, advised), base_files(*[MIB] * count)) == ""


def test_files_that_are_alone_in_their_partition_need_no_merging() -> None:
    groups = [
        FileGroup("a", "1", size_bytes=24 * MIB),
        FileGroup("a", "2", size_bytes=MIB),
        FileGroup("a", "3", size_bytes=25 * MIB),
        FileGroup("a", "4", live=False, size_bytes=MIB),
        FileGroup("b", "5", size_bytes=MIB),
    ]
    assert files_to_merge(groups, 100 * MIB) == 2
    assert files_to_merge([], 100 * MIB) == 0


SIZES = st.lists(st.one_of(st.integers(1, 40 * MIB), st.integers(1000, 1100)), max_size=300)


@given(SIZES, st.integers(1, 3))
def test_files_that_are_due_are_merged_with_larger_ones_only_if_they_outweigh_them(
    sizes: list[int], folders: int
) -> None:
    groups = [FileGroup(str(number % folders), str(number), size_bytes=size) for number, size in enumerate(sizes)]
    below = merged_below(groups, 128 * MIB)
    small = [group for group in groups if group.size_bytes < 32 * MIB]
    assert len([group for group in small if group.size_bytes >= below]) <= CLUSTERED_FROM / 2
    if below < 128 * MIB // SMALL_PART:
        merged = [group for group in small if group.size_bytes < below]
        chosen = [
            sorted(group.size_bytes for group in merged if group.partition_path == str(folder))
            for folder in range(folders)
        ]
        assert not below or any(folder and sum(folder) >= 5 * folder[-1] for folder in chosen)


def test_what_was_merged_when_due_is_left_until_four_times_as_much_is_beside_it() -> None:
    new, merged = [FileGroup("a", f"new{number}", size_bytes=4000) for number in range(200)], list[FileGroup]()
    taken = list[int]()
    for number in range(10):
        below = merged_below([*new, *merged], 128 * MIB)
        joined = [group for group in merged if group.size_bytes < below]
        taken.append(len(joined))
        size = sum(group.size_bytes for group in [*new, *joined])
        merged = [*(group for group in merged if group not in joined), FileGroup("a", str(number), size_bytes=size)]
    assert taken == [0, 0, 0, 0, 4, 0, 0, 0, 0, 4]


def test_too_many_files_are_not_left_although_few_are_of_a_size() -> None:
    groups = [FileGroup(str(number // 4), str(number), size_bytes=4000 + number % 4) for number in range(200)]
    assert merged_below(groups, 128 * MIB) == 32 * MIB
