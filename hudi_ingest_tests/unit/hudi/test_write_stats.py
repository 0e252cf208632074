from __future__ import annotations

import pytest

from hudi_ingest.hudi.timeline.publication import base_file_stat, first_file_stat, log_file_stat
from hudi_ingest.model.report import BaseFile, LogFile

pytestmark = pytest.mark.fast


def test_a_log_file_is_an_append_to_its_file_group() -> None:
    name = ".00000001-0000-0000-0000-000000000000-0_20260101000000000.log.2_3-7-1"
    stat = log_file_stat("20260101000000000", {}, LogFile("dt=a", "00000001-x-0", f"dt=a/{name}", 5, 2, 900, 7, 20))
    assert stat == {
        "fileId": "00000001-x-0",
        "path": f"dt=a/{name}",
        "partitionPath": "dt=a",
        "totalWriteBytes": 900,
        "fileSizeInBytes": 900,
        "prevCommit": "20260101000000000",
        "baseFile": "",
        "logFiles": [name],
        "logVersion": 2,
        "logOffset": 0,
        "numWrites": 5,
        "numUpdateWrites": 5,
        "numDeletes": 2,
    }


def test_cdc_queries_find_the_files_that_a_log_file_changed() -> None:
    before = {("dt=a", "f-0"): ("f-0_1-0-0_1.parquet", ".f-0_2.log.1_0-1"), ("dt=a", "f-1"): ("f-1_0-0-0_3.parquet",)}
    stats = [
        log_file_stat("3", before, LogFile("dt=a", file_id, f"dt=a/.{file_id}_3.log.1_0-1", 5, 2, 900, 7, 20))
        for file_id in ("f-0", "f-1")
    ]
    assert [(stat["baseFile"], stat["logFiles"]) for stat in stats] == [
        ("f-0_1-0-0_1.parquet", [".f-0_2.log.1_0-1", ".f-0_3.log.1_0-1"]),
        ("f-1_0-0-0_3.parquet", [".f-1_3.log.1_0-1"]),
    ]
    first = first_file_stat(BaseFile("dt=a", "f-1", "dt=a/f-1_0-0-0_3.parquet", 0, 900, 0, 0))
    assert (first["baseFile"], first["logFiles"], first["numWrites"]) == ("f-1_0-0-0_3.parquet", [], 0)


def test_a_base_file_is_the_first_of_its_file_group() -> None:
    stat = base_file_stat(BaseFile("", "f-0", "f-0_1-0-0_1.parquet", 5, 900, 7, 20))
    assert (stat["prevCommit"], stat["numWrites"], stat["numInserts"], stat["path"]) == (
        "null",
        5,
        5,
        "f-0_1-0-0_1.parquet",
    )
