from __future__ import annotations

import pytest

from hudi_ingest.exceptions import CommitRefused, TableMismatch
from hudi_ingest.hudi.files.file_groups import (
    FileGroup,
    exceptional_ids,
    files_before,
    fixed_id,
    id_of,
    new_groups,
    require_current_ids,
)
from hudi_ingest.model.report import BaseFile, LogFile

pytestmark = pytest.mark.fast

FOREIGN = "00000001-5af1-4c5e-9f2e-1b0d2c3e4f5a-0"


def log_file(partition_path: str, file_id: str) -> LogFile:
    return LogFile(partition_path, file_id, f"{partition_path}/.{file_id}_1.log.1_0-1-0", 3, 1, 500, 10, 20)


def test_a_bucket_has_the_id_that_its_number_determines() -> None:
    groups = [FileGroup("dt=a", fixed_id(0)), FileGroup("dt=a", fixed_id(3)), FileGroup("", fixed_id(0))]
    assert exceptional_ids("/t", groups, 4) == {}
    assert id_of({}, "dt=a", 3) == "00000003-0000-0000-0000-000000000000-0"


def test_a_file_group_that_another_writer_made_keeps_its_id() -> None:
    ids = exceptional_ids("/t", [FileGroup("dt=a", fixed_id(0)), FileGroup("dt=a", FOREIGN)], 4)
    assert ids == {"dt=a|1": FOREIGN}
    assert id_of(ids, "dt=a", 1) == FOREIGN
    assert id_of(ids, "dt=b", 1) == fixed_id(1)


def test_a_replaced_id_is_never_used_again() -> None:
    replaced = [FileGroup("dt=a", fixed_id(1), live=False)]
    first = exceptional_ids("/t", replaced, 4)
    assert exceptional_ids("/t", replaced, 4) == first
    new = id_of(first, "dt=a", 1)
    assert new.startswith("00000001-")
    assert new != fixed_id(1)
    # Once it has rows it stays, and once it is replaced, too, the next one is another.
    assert exceptional_ids("/t", [*replaced, FileGroup("dt=a", new)], 4) == first
    third = id_of(exceptional_ids("/t", [*replaced, FileGroup("dt=a", new, live=False)], 4), "dt=a", 1)
    assert third not in (new, fixed_id(1))
    # The fixed id of a bucket whose replaced file group had another one is still free.
    assert exceptional_ids("/t", [FileGroup("dt=a", FOREIGN, live=False)], 4) == {}


@pytest.mark.parametrize(
    ("file_id", "said"),
    [
        (FOREIGN, "bucket 1 has two file groups, 00000001-0000-0000-0000-000000000000-0 and 00000001-5af1"),
        ("07693141-5af1-4c5e-9f2e-1b0d2c3e4f5a-0", "belongs to none of the 4 buckets"),
        ("a7f93141-5af1-4c5e-9f2e-1b0d2c3e4f5a-0", "belongs to none of the 4 buckets"),
    ],
)
def test_a_key_that_may_have_two_rows_stops_the_table(file_id: str, said: str) -> None:
    groups = [FileGroup("dt=a", fixed_id(1)), FileGroup("dt=a", file_id)]
    if "none" in said and not file_id[:8].isdecimal():
        said = f"file group {file_id} {said}"
    with pytest.raises(TableMismatch, match="partition 'dt=a'") as raised:
        exceptional_ids("/t", groups, 4)
    assert said in str(raised.value)


def test_p4_log_files_in_a_file_group_that_was_replaced_meanwhile_are_not_published() -> None:
    files = [log_file("dt=a", fixed_id(0)), log_file("dt=a", fixed_id(1))]
    require_current_ids(files, {}, "orders-1")
    with pytest.raises(
        CommitRefused, match=rf"orders-1: another writer .* is {FOREIGN} now, and dt=a/\.{fixed_id(1)}_1"
    ):
        require_current_ids(files, {"dt=a|1": FOREIGN}, "orders-1")


def test_new_file_groups_are_those_that_only_log_files_have() -> None:
    files = [log_file("dt=b", fixed_id(1)), log_file("dt=a", fixed_id(0)), log_file("dt=b", fixed_id(1))]
    known = [FileGroup("dt=a", fixed_id(0)), FileGroup("dt=a", fixed_id(1))]
    assert new_groups(files, known) == [("dt=b", fixed_id(1))]


def test_log_files_change_what_their_file_groups_had_before() -> None:
    first = BaseFile("dt=b", fixed_id(1), "dt=b/first.parquet", 0, 9, 0, 0)
    groups = [
        FileGroup("dt=a", fixed_id(0), files=("base.parquet", ".log.1", ".log.2")),
        FileGroup("dt=a", fixed_id(0), live=False),
        FileGroup("dt=a", fixed_id(1), files=("untouched.parquet",)),
    ]
    log_files = [log_file("dt=a", fixed_id(0)), log_file("dt=b", fixed_id(1)), log_file("dt=b", fixed_id(1))]
    assert files_before(log_files, groups, [first]) == {
        ("dt=a", fixed_id(0)): ("base.parquet", ".log.1", ".log.2"),
        ("dt=b", fixed_id(1)): ("first.parquet",),
    }
