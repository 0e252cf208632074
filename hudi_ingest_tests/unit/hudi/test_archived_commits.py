"""What Hudi has archived is read as it was committed, and never taken for nothing when it cannot be read. No JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import HISTORY
from hudi_ingest.hudi.timeline.archived_commits import archived_commits, avro_record
from hudi_ingest_tests.support.archived_timeline import archive, commit_metadata

FIRST, SECOND, THIRD = (f"2026010{day}000000000" for day in (1, 2, 3))


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "table"))


def test_archived_commits_have_their_files_and_what_they_replaced(storage: LocalStorage) -> None:
    assert archived_commits(storage, "") == [], "nothing is archived yet"
    commits = {
        FIRST: commit_metadata(["a=1/x_1.parquet", "y_1.parquet"]),
        SECOND: commit_metadata([], ["a=1/x_1.parquet"]),
    }
    archive(storage, {**commits, THIRD: None})
    first, second = archived_commits(storage, "")
    assert (first.instant, first.files, first.rows) == (FIRST, {"a=1/x_1.parquet": 300, "y_1.parquet": 300}, 10)
    assert not second.files and second.operation == "INSERT"
    assert second.replaced == {("a=1", "x")}
    assert f"{second.completed_at:%Y%m%d%H%M%S}" == SECOND[:14]
    assert [each.instant for each in archived_commits(storage, SECOND)] == [SECOND]
    assert [each.instant for each in archived_commits(storage, "", {FIRST, THIRD})] == [FIRST]
    assert archived_commits(storage, "", {"20270101000000000"}) == []
    # A file of the history of these times is not even opened.
    (Path(storage.base_path) / HISTORY / f"{FIRST}_{THIRD}_0.parquet").unlink()
    assert archived_commits(storage, "2027") == []


def test_what_is_no_commit_names_no_files(storage: LocalStorage) -> None:
    archive(storage, {FIRST: commit_metadata(["x_1.parquet"])}, action="rollback")
    assert archived_commits(storage, "") == []


def test_a_history_with_a_part_missing_is_no_empty_one(storage: LocalStorage) -> None:
    archive(storage, {FIRST: commit_metadata(["x_1.parquet"])})
    (Path(storage.base_path) / HISTORY / "_version_").unlink()
    with pytest.raises(FileNotFoundError, match="_version_"):
        archived_commits(storage, "")
    archive(storage, {FIRST: commit_metadata(["x_1.parquet"])})
    (Path(storage.base_path) / HISTORY / f"{FIRST}_{FIRST}_0.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        archived_commits(storage, "")


def test_a_history_that_is_merged_meanwhile_is_read_once_more(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(storage, {FIRST: commit_metadata(["x_1.parquet"])})
    read, real = list[str](), storage.parquet_file

    def merged(path: str) -> object:
        if not read:
            read.append(path)
            archive(storage, {FIRST: commit_metadata(["x_1.parquet"]), SECOND: commit_metadata([])}, 2)
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(storage, "parquet_file", merged)
    assert [each.instant for each in archived_commits(storage, "")] == [FIRST, SECOND]


@pytest.mark.parametrize("content", [b"", b"{}", commit_metadata(["x"])[:-60], commit_metadata(["x"], codec="deflate")])
def test_what_is_not_understood_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        avro_record(content)
