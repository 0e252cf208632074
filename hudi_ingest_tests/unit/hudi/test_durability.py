"""P5: what was synced outlives a power cut, with the folders that lead to it; see support/power_cut.py."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.storage import NoDurability, TableStorage, durability_of
from hudi_ingest_tests.support.power_cut import Disk


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def storage(table: Path) -> TableStorage:
    return LocalStorage(str(table))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def test_p5_files_of_a_new_table_outlive_a_power_cut(table: Path, storage: TableStorage, disk: Disk) -> None:
    for path in ("dt=1/a.parquet", "dt=1/.hoodie_partition_metadata", "b.parquet", "dt=1/unlisted.parquet"):
        storage.write(path, path.encode())
    durability_of(storage, True).sync_files(["dt=1/a.parquet", "b.parquet"])
    assert disk.survives(table / "dt=1" / "a.parquet")
    assert disk.survives(table / "dt=1" / ".hoodie_partition_metadata")
    assert disk.survives(table / "b.parquet")
    assert not disk.survives(table / "dt=1" / "unlisted.parquet")


def test_p5_what_changes_below_hoodie_does_too(table: Path, storage: TableStorage, disk: Disk) -> None:
    durability = durability_of(storage, True)
    storage.write(".hoodie/hoodie.properties", b"old")
    before = durability.look()
    storage.write(".hoodie/hoodie.properties", b"newer")
    storage.write(".hoodie/timeline/1_2.commit", b"{}")
    storage.write(".hoodie/metadata/files/log", b"log")
    storage.write(".hoodie/.temp/1/marker", b"")
    durability.sync_changes(before)
    for path in ("hoodie.properties", "timeline/1_2.commit", "metadata/files/log"):
        assert disk.survives(table / ".hoodie" / path), path
    assert not disk.survives(table / ".hoodie/.temp/1/marker")


def test_p5_properties_of_a_process_that_died_before_it_could_flush_them_do_too(
    table: Path, storage: TableStorage, disk: Disk
) -> None:
    storage.write(".hoodie/hoodie.properties", b"new")
    storage.write(".hoodie/.hoodie.properties.crc", b"crc")
    durability = durability_of(storage, True)
    durability.sync_changes(durability.look())
    assert disk.survives(table / ".hoodie" / "hoodie.properties")
    assert disk.survives(table / ".hoodie" / ".hoodie.properties.crc")


def test_p5_nothing_that_did_not_change_is_flushed_again(
    storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    durability = durability_of(storage, True)
    storage.write(".hoodie/timeline/1_2.commit", b"{}")
    before = durability.look()
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("flushed"))
    durability.sync_changes(before)
    with pytest.raises(pytest.fail.Exception):
        durability.sync_changes(frozenset())


def test_a_file_that_archival_took_away_meanwhile_is_left_out(
    table: Path, storage: TableStorage, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    durability = durability_of(storage, True)
    storage.write(".hoodie/timeline/1_2.commit", b"{}")
    storage.write(".hoodie/timeline/3_4.commit", b"{}")
    sync = LocalStorage.sync

    def late(self: LocalStorage, paths: Iterable[str]) -> None:
        (table / ".hoodie/timeline/1_2.commit").unlink(missing_ok=True)
        sync(self, paths)

    monkeypatch.setattr(LocalStorage, "sync", late)
    durability.sync_changes(frozenset())
    assert disk.survives(table / ".hoodie/timeline/3_4.commit")


def test_p5_files_are_flushed_before_the_folders_that_name_them(
    table: Path, storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
    )
    paths = [f"dt={day}/{number}.parquet" for day in range(3) for number in range(20)]
    for path in paths:
        storage.write(path, b"rows")
    flushed.clear()
    durability_of(storage, True).sync_files(paths)
    kinds = [path.is_dir() for path in flushed]
    assert kinds == sorted(kinds), "a folder was flushed before a file"
    assert {table / path for path in paths} <= {*flushed}
    assert {table, *(table / f"dt={day}" for day in range(3))} <= {*flushed}


def test_p5_a_file_that_is_replaced_is_the_old_or_the_new_one(table: Path, storage: TableStorage, disk: Disk) -> None:
    storage.replace("epoch", b"1")
    storage.replace("epoch", b"2")
    # Its folder's own name is whose business it was to make the folder.
    assert disk._names[table] == {"epoch": (table / "epoch").stat().st_ino}
    assert disk._contents[(table / "epoch").stat().st_ino] == b"2"


def test_a_folder_that_cannot_be_flushed_on_this_file_system_is_no_error(
    storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [errno.EINVAL, errno.EIO]
    storage.write("a.parquet", b"a")
    really = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(codes[0], os.strerror(codes[0]))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    storage.sync(["a.parquet"])
    del codes[0]
    with pytest.raises(OSError, match="Input/output error"):
        storage.sync(["a.parquet"])


def test_switched_off_nothing_is_flushed(storage: TableStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("flushed"))
    durability = durability_of(storage, False)
    assert isinstance(durability, NoDurability)
    storage.write(".hoodie/timeline/1_2.commit", b"{}")
    durability.sync_files([".hoodie/timeline/1_2.commit"])
    durability.sync_changes(durability.look())
