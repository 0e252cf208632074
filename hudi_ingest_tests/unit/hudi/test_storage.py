"""A table's folder on a file system of this machine."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.storage import reaching
from hudi_ingest.transaction.write.task import _store_errors

pytestmark = pytest.mark.fast


def test_the_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "orders"
    for _ in range(2):
        LocalStorage(str(folder)).make()
        assert folder.is_dir()


@pytest.mark.parametrize("above", ["/proc/x", "a file"])
def test_p6_a_folder_that_cannot_be_made_is_told(tmp_path: Path, above: str) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(
        TableUnreachable, match=r"the table's folder \S+.*/y cannot be created or written to: .*Correct table"
    ):
        LocalStorage(str(tmp_path / above / "y")).make()


def test_p6_a_file_system_that_is_read_only_is_told() -> None:
    with pytest.raises(TableUnreachable, match="cannot be created or written to"):
        LocalStorage("/proc/sys").make()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_p6_a_full_disk_is_told_with_its_place_and_what_to_do(tmp_path: Path, number: int) -> None:
    storage = LocalStorage(str(tmp_path))
    with (
        pytest.raises(TableUnreachable, match=rf"{tmp_path}.*Its disk is full.*df -h.*df -i.*sweep"),
        reaching(storage, "write"),
    ):
        raise OSError(number, os.strerror(number))
    # As pyarrow raises it in a worker.
    with (
        pytest.raises(TableUnreachable, match=rf"table at {tmp_path} cannot be written: .*Its disk is full"),
        _store_errors(storage),
    ):
        raise OSError(number, f"Error writing bytes to file. Detail: [errno {number}] {os.strerror(number)}")
