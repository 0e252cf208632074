"""A table's storage on S3: the same as on a disk, in few requests, with conditional writes and open uploads."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hudi_ingest.exceptions import Fenced, TableUnreachable
from hudi_ingest.hudi.files import new_files
from hudi_ingest.hudi.files.base_file import BaseFileWriter
from hudi_ingest.hudi.files.file_groups import RowSource, file_id
from hudi_ingest.hudi.files.keyed_writer import KeyedFileWriter
from hudi_ingest.hudi.files.new_files import BaseFileLayout, KeyedLayout
from hudi_ingest.hudi.files.orphans import judge_uploads
from hudi_ingest.hudi.storage import s3_access
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import EPOCH_PATH, PRIMARY, TIMELINE, heartbeat_path, marker_path
from hudi_ingest.hudi.storage.s3 import PART_BYTES, S3Storage
from hudi_ingest.hudi.storage.s3_access import client_of, credentials_of, filesystem_of, hudi_rs_options
from hudi_ingest.hudi.storage.storage import (
    NoDurability,
    StoreError,
    TableStorage,
    Versioned,
    WriteConflict,
    durability_of,
)
from hudi_ingest.hudi.timeline import timeline
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Instants, Timeline, instant_time
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.processes import LOOPBACK, free_port
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.storage_options import SecretReference, StorageOptions
from hudi_ingest.operations.upkeep.sweep import Sweep
from hudi_ingest.records.changes import DELETED
from hudi_ingest.transaction.rollback import abort_uploads
from hudi_ingest.transaction.write.task import _store_errors
from hudi_ingest_tests.support.http_server import QuietHandler, serving
from hudi_ingest_tests.support.log_blocks import read_log
from hudi_ingest_tests.support.pipeline_files import Write, load
from hudi_ingest_tests.support.properties_text import properties_text
from hudi_ingest_tests.support.s3_proxy import Request
from hudi_ingest_tests.support.s3_table import SECRET, S3Tables, s3_tables
from hudi_ingest_tests.support.silent_server import silent_server

pytestmark = pytest.mark.fast


def storage_settings(options: StorageOptions) -> dict[str, str]:
    """`table.storage` of a pipeline file."""
    login = {key: reference.text for key, reference in options.secrets}
    return {"endpoint": str(options.endpoint), "region": str(options.region), **login}


INSTANT = "20261121140405123"
EPOCH = Epoch(1, "t-1")
ORDERS_3 = RowSource(TopicPartition("orders", 3), "3-0-0")


@pytest.fixture(scope="module")
def tables() -> Iterator[S3Tables]:
    with s3_tables() as found:
        yield found


@pytest.fixture
def storage(tables: S3Tables) -> S3Storage:
    return tables.table()


# ---- the same as on a disk


def test_files_are_found_as_on_a_disk(storage: S3Storage, tmp_path: Path) -> None:
    local = LocalStorage(str(tmp_path / "table"))
    paths = [
        "a",
        ".hidden",
        ".hoodie/x",
        ".hoodie/timeline/1.commit",
        "dt=1/a",
        "dt=1/b/c",
        "dt=1.5/a",
        "dt=é ö/a+b",
        "z/y",
    ]

    def facts(of: TableStorage) -> list[object]:
        folders = ["", ".hoodie", "dt=1", "dt", "dt=é ö", "nowhere"]
        return [
            [of.names(folder) for folder in folders],
            [sorted(file.path for file in of.files(folder)) for folder in folders],
            sorted((file.path, file.size_bytes) for file in of.data_files()),
            sorted(file.path for file in of.files_beside(".hoodie", {"timeline"})),
            [(of.exists(path), file.size_bytes if (file := of.file(path)) else None) for path in [*paths, "nowhere"]],
        ]

    for each in (local, storage):
        for number, path in enumerate(paths):
            each.write(path, b"1" * number)
    assert facts(storage) == facts(local)
    assert abs(storage.files("dt=1")[0].modified - datetime.now(timezone.utc)) < timedelta(minutes=5)
    for each in (local, storage):
        each.write("a", b"other")
        each.replace("z/y", b"other")
        each.delete("dt=1.5/a")
        each.delete("nowhere")
        each.delete_folder("dt=1")
        each.delete_folder("nowhere")
        assert (each.read("a"), each.read("z/y"), each.size("a")) == (b"other", b"other", 5)
        for ask in (each.read, each.size, each.parquet_footer):
            with pytest.raises(FileNotFoundError):
                ask("nowhere")
    # On a disk the folder of a deleted file stays.
    assert [file.path for file in storage.files("")] == sorted(file.path for file in local.files(""))


def test_many_files_are_listed_and_deleted_in_pages(tables: S3Tables, storage: S3Storage) -> None:
    tables.fill(storage, [f"f/{number:04}" for number in range(1005)])
    with tables.proxy.counted() as counts:
        assert len(storage.files("f")) == len(storage.names("f")) == len(storage.data_files()) == 1005
        storage.delete_folder("f")
    assert storage.files("") == []
    assert counts == {"LIST": 8, "POST-delete": 2}


def test_objects_that_the_store_refuses_to_delete_are_not_taken_for_deleted(
    storage: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        storage.write(f"f/{name}", b"")
    call = storage._call

    def refusing(operation: str, **arguments: Any) -> Any:
        if operation != "delete_objects":
            return call(operation, **arguments)
        # As S3 answers: 200, with the objects that it kept.
        return {"Errors": [{"Key": "f/b", "Code": "AccessDenied"}]}

    monkeypatch.setattr(storage, "_call", refusing)
    with pytest.raises(StoreError, match=r"object f/b cannot be deleted .AccessDenied.") as refused:
        storage.delete_folder("f")
    assert "s3:DeleteObject" in refused.value.remedy


def test_a_listing_jumps_over_the_metadata_however_long_it_is(tables: S3Tables, storage: S3Storage) -> None:
    for path in (".hoodie/a", ".hoodie/b/c", "dt=1/a", "dt=2/a"):
        storage.write(path, b"")
    with tables.proxy.counted() as counts:
        assert [file.path for file in storage.data_files()] == ["dt=1/a", "dt=2/a"]
    assert counts == {"LIST": 2}


def test_each_call_is_one_request(tables: S3Tables, storage: S3Storage) -> None:
    storage.write("a", b"1")
    storage.read_versioned("a")
    for call in (
        lambda: storage.write("a/b/c", b"1"),
        lambda: storage.read("a"),
        lambda: storage.exists("a"),
        lambda: storage.exists("nowhere"),
        lambda: storage.size("a"),
        lambda: storage.delete("nowhere"),
        lambda: storage.names("a"),
    ):
        with tables.proxy.counted() as counts:
            call()
        assert counts.total() == 1, counts


def test_no_flushing_and_no_listing_for_it(storage: S3Storage) -> None:
    assert isinstance(durability_of(storage, fsync=True), NoDurability)


# ---- base files


def layout() -> BaseFileLayout:
    return BaseFileLayout(INSTANT, EPOCH, ("dt",), rows_per_file=1000, target_file_bytes=1 << 30, compression="zstd")


def opened(storage: S3Storage) -> S3Storage:
    storage.write(heartbeat_path(INSTANT), b"")
    TableEpoch(storage).advance(EPOCH.number, EPOCH.transaction_id)
    return storage


def rows(count: int) -> pa.Table:
    return pa.table(
        {
            "dt": ["d0"] * count,
            "_kafka_partition": pa.array([3] * count, pa.int32()),
            "_kafka_offset": pa.array(range(count), pa.int64()),
        }
    )


def test_a_small_base_file_is_one_request_beside_its_marker_and_checks(tables: S3Tables, storage: S3Storage) -> None:
    opened(storage)
    with tables.proxy.counted() as counts, BaseFileWriter(storage, layout()) as writer:
        writer.write(ORDERS_3, rows(10))
        writer.close()
    [file] = writer.files[ORDERS_3.source]
    assert storage.size(file.path) == file.size_bytes
    assert storage.parquet_footer(file.path).num_rows == 10
    assert storage.exists(marker_path(INSTANT, file.path))
    # Heartbeat and epoch before and after; marker, the folder's metadata, the file.
    assert counts == {"HEAD": 3, "GET": 2, "PUT": 3}


@pytest.mark.parametrize("size", [10, 12_000_000])
def test_p3_a_file_that_an_error_closes_is_deleted(storage: S3Storage, size: int) -> None:
    opened(storage)
    with pytest.raises(RuntimeError), BaseFileWriter(storage, layout()) as writer:
        table = rows(2).append_column("text", pa.array([os.urandom(size // 2).hex()] * 2))
        writer.write(ORDERS_3, table)
        writer._write_largest()
        raise RuntimeError("in the middle")
    assert not [file.path for file in storage.data_files() if file.path.endswith(".parquet")]
    assert storage.unfinished_uploads() == []


def test_p3_a_file_that_is_being_closed_is_deleted_once_it_is_there(
    storage: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(storage)
    deleting, write, delete = threading.Event(), storage.write, storage.delete

    def write_late(path: str, content: bytes) -> None:
        if path.endswith(".parquet"):
            # Nobody deletes it meanwhile.
            deleting.wait(0.5)
        write(path, content)

    def note(path: str) -> None:
        deleting.set()
        delete(path)

    monkeypatch.setattr(storage, "write", write_late)
    monkeypatch.setattr(storage, "delete", note)
    with pytest.raises(RuntimeError), BaseFileWriter(storage, layout()) as writer:
        writer.write(ORDERS_3, rows(2))
        writer._finish_source()
        raise RuntimeError("in the middle")
    pool = writer._new_files._pool
    assert deleting.is_set() and pool is not None
    pool.shutdown()
    assert not [file.path for file in storage.data_files() if file.path.endswith(".parquet")]


@pytest.mark.parametrize("size", [10, 12_000_000])
def test_p3_a_log_file_is_one_request_and_deleted_on_an_error(
    tables: S3Tables, storage: S3Storage, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(storage)
    schema = '{"type": "record", "name": "r", "fields": [{"name": "dt", "type": "string"}]}'
    keyed = KeyedLayout(INSTANT, EPOCH, ("dt",), ("text",), ("_kafka_offset",), 1, schema, compression="zstd")
    texts = [os.urandom(size // 2).hex() for _ in range(2)]
    changes = rows(2).append_column("text", pa.array(texts)).append_column(DELETED, pa.array([False, True]))
    with tables.proxy.counted() as counts, KeyedFileWriter(storage, keyed) as writer:
        writer.write(ORDERS_3, changes)
        writer.close()
    [file] = writer.files[ORDERS_3.source]
    assert len(read_log(storage.read(file.path))) == 2
    assert storage.size(file.path) == file.size_bytes
    if size == 10:
        assert counts == {"HEAD": 3, "GET": 2, "PUT": 3}

    def fail(point: str) -> None:
        if point == "rows_written":
            raise RuntimeError("in the middle")

    monkeypatch.setattr(new_files, "reach", fail)
    again = replace(ORDERS_3, write_token="3-1-0")
    with pytest.raises(RuntimeError), KeyedFileWriter(storage, keyed) as writer:
        writer.write(again, changes)
        writer.close()
    assert [stored.path for stored in storage.data_files() if ".log." in stored.path] == [file.path]
    assert storage.unfinished_uploads() == []


@pytest.mark.parametrize("size", [10, 12_000_000], ids=["one request", "an upload in parts"])
def test_p3_nothing_of_a_file_is_on_the_store_before_its_marker(
    tables: S3Tables, storage: S3Storage, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(storage)
    path, first = "dt=d0/x.parquet", len(tables.proxy.requests)
    with tables.proxy.slow(0.5, lambda request: request.key.endswith(".marker.CREATE")):
        files = new_files.NewFiles[Any](storage, INSTANT, EPOCH)
        files.open(ORDERS_3, "dt=d0", path).write(b"x" * size)
        files.close(path)
        files.finish(ORDERS_3)
    asked = tables.proxy.requests[first:]
    [marker] = [request for request in asked if request.key.endswith(".marker.CREATE")]
    assert min(request.at for request in asked if request.key.endswith("/x.parquet")) >= marker.until

    def fail(point: str) -> None:
        if point == "marker_written":
            raise OSError("no answer")

    monkeypatch.setattr(new_files, "reach", fail)
    refused = new_files.NewFiles[Any](storage, INSTANT, EPOCH)
    with suppress(OSError):
        refused.open(ORDERS_3, "dt=d0", "dt=d0/y.parquet").write(b"x" * size)
        refused.close("dt=d0/y.parquet")
    with pytest.raises(OSError, match="no answer"):
        refused.open(ORDERS_3, "dt=d0", "dt=d0/z.parquet").write(b"x" * 12_000_000)
    refused.discard()
    assert not storage.exists("dt=d0/y.parquet")
    assert not storage.exists("dt=d0/z.parquet")
    assert storage.unfinished_uploads() == []


def test_a_small_file_takes_the_memory_of_its_bytes(storage: S3Storage) -> None:
    def resident() -> int:
        return psutil.Process().memory_info().rss

    with storage.open_output("warm") as stream:
        pq.write_table(rows(10), stream)
    before, most = resident(), 0
    streams = [storage.open_output(f"f{number}") for number in range(100)]
    for stream in streams:
        pq.write_table(rows(10), stream)
    most = max(most, resident())
    for stream in streams:
        stream.close()
    # pyarrow's streams take 10 MiB each.
    assert max(most, resident()) - before < 100 * 1024 * 1024
    assert storage.parquet_footer("f99").num_rows == 10


def test_p3_a_file_that_an_error_leaves_or_nobody_closes_does_not_appear(storage: S3Storage) -> None:
    with pytest.raises(RuntimeError), storage.open_output("left") as stream:
        pq.write_table(rows(10), stream)
        raise RuntimeError
    dropped = storage.open_output("dropped")
    dropped.write(b"1")
    del dropped
    gc.collect()
    assert storage.files("") == []


def test_a_big_file_is_uploaded_in_equal_parts_without_checksums_at_their_ends(
    tables: S3Tables, storage: S3Storage
) -> None:
    """versitygw 1.8.0 leaves what follows such a checksum on the connection, and takes it for the next request."""
    content = os.urandom(3 * PART_BYTES + 7)
    before = len(tables.proxy.requests)
    with storage.open_output("big") as stream:
        for start, end in pairwise([0, 1, PART_BYTES, PART_BYTES + 5, 3 * PART_BYTES, len(content)]):
            stream.write(content[start:end])
    assert storage.read("big") == content
    requests = [request for request in tables.proxy.requests[before:] if request.method != "GET"]
    assert [request.kind for request in requests] == ["POST-multipart", *["PUT-part"] * 4, "POST-multipart"]
    assert not any(request.chunked for request in requests)
    with storage.open_output("whole") as stream:
        stream.write(content[: 2 * PART_BYTES])
    assert storage.size("whole") == 2 * PART_BYTES


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_file_of_whole_parts_ends_in_one_of_them(
    tables: S3Tables, storage: S3Storage, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    """Not every store takes an empty last part, and none needs it."""
    sent: list[int] = []
    upload = S3Storage.upload_part

    def upload_part(self: S3Storage, path: str, upload_id: str, number: int, content: bytes) -> str:
        sent.append(len(content))
        return upload(self, path, upload_id, number, content)

    monkeypatch.setattr(S3Storage, "upload_part", upload_part)
    content = os.urandom(parts * PART_BYTES)
    with storage.open_output("whole") as stream:
        stream.write(content[:1])
        stream.write(content[1:])
    assert sent == ([] if parts == 1 else [PART_BYTES] * parts)
    assert storage.read("whole") == content


def test_p1_p2_lost_answers_to_an_upload_are_asked_again(tables: S3Tables, storage: S3Storage) -> None:
    def is_of_upload(request: Request) -> bool:
        return request.kind in ("PUT-part", "POST-multipart")

    stream = storage.open_output("big")
    stream.write(b"x" * 12_000_000)
    # Its last part, and its completion, after which the store does not know the upload any more.
    with tables.proxy.silent(is_of_upload, times=2) as lost:
        stream.close()
    assert lost() == 2
    assert storage.size("big") == 12_000_000
    assert storage.unfinished_uploads() == []


def test_p3_a_lost_upload_is_not_complete_because_another_file_is_there(
    storage: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("big", b"of another size")
    call = storage._call

    def forget_uploads(operation: str, **arguments: Any) -> Mapping[str, Any]:
        # As stores answer; moto breaks.
        if operation == "complete_multipart_upload":
            raise FileNotFoundError("NoSuchUpload")
        return call(operation, **arguments)

    monkeypatch.setattr(storage, "_call", forget_uploads)
    with pytest.raises(StoreError, match="is not open any more"):
        storage.complete_upload("big", "1", ['"etag"'], 12_000_000)


def test_p3_a_part_that_the_store_refuses_ends_the_upload(storage: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> str:
        raise StoreError("AccessDenied", "")

    stream = storage.open_output("big")
    stream.write(b"x" * 12_000_000)
    monkeypatch.setattr(storage, "upload_part", refuse)
    with pytest.raises(StoreError):
        stream.close()
    # As a writer does that gives up its files.
    stream.close()
    assert storage.files("") == []
    assert storage.unfinished_uploads() == []


@pytest.mark.parametrize("name", [f"x_{INSTANT}.parquet", f".00000001-x-0_{INSTANT}.log.1_3-0-1"])
def test_p4_a_rollback_aborts_the_open_uploads_of_its_instant(storage: S3Storage, name: str) -> None:
    path = f"dt=d0/{name}"
    stream, other = storage.open_output(path), storage.open_output("dt=d0/x_20261121140405124.parquet")
    for each in (stream, other):
        each.write(b"x" * 12_000_000)
    assert {upload.path for upload in storage.unfinished_uploads()} == {path, "dt=d0/x_20261121140405124.parquet"}
    abort_uploads(storage, INSTANT, [path])
    [left] = storage.unfinished_uploads()
    assert left.path == "dt=d0/x_20261121140405124.parquet"
    with pytest.raises(OSError, match=r"NoSuchUpload|reached max retries"):
        stream.close()
    assert not storage.exists(path)
    other.close()
    assert storage.size(left.path) == 12_000_000
    assert not storage.abort_upload(left)


def test_p4_of_a_store_that_lists_uploads_by_key_a_rollback_asks_for_each_file(
    storage: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"dt=d0/x_{INSTANT}.parquet"
    stream = storage.open_output(path)
    stream.write(b"x" * 12_000_000)
    call = storage._call

    def as_minio(operation: str, **arguments: str) -> Mapping[str, object]:
        answer = {**call(operation, **arguments)}
        if operation == "list_multipart_uploads":
            answer["ResponseMetadata"] = {"HTTPHeaders": {"server": "MinIO"}}
            answer["Uploads"] = [entry for entry in answer.get("Uploads", ()) if entry["Key"] == arguments["Prefix"]]
        return answer

    monkeypatch.setattr(storage, "_call", as_minio)
    abort_uploads(storage, INSTANT, [])
    assert [upload.path for upload in storage.unfinished_uploads([path])] == [path]
    abort_uploads(storage, INSTANT, [path])
    with pytest.raises(OSError, match=r"NoSuchUpload|reached max retries"):
        stream.close()


def test_r9_a_sweep_aborts_dead_uploads(storage: S3Storage, write: Write, tmp_path: Path) -> None:
    pipeline = load(
        write,
        environment=dict(os.environ),
        table__base_path=storage.base_path,
        table__storage=storage_settings(storage.options),
    )
    path = f"dt=d0/{file_id('orders', 0, 7, 'dt=d0', INSTANT)}_0-0-0_{INSTANT}.parquet"
    stream = storage.open_output(path)
    stream.write(b"x" * 12_000_000)
    reported: list[str] = []
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        sweep = Sweep(pipeline, ledger, frozenset)
        instants = Instants(frozenset(), frozenset([INSTANT]))
        found = judge_uploads(
            sweep._uploads(), instants, topics=["orders"], older_than=datetime.now(timezone.utc) + timedelta(1)
        ).orphans
        assert [orphan.file.path for orphan in found] == [path]
        assert sweep._uploads_now(found) == [found[0].upload]
        sweep._delete(found, reported.append)
        assert sweep._uploads_now(found) == []
    with pytest.raises(OSError, match=r"NoSuchUpload|reached max retries"):
        stream.close()


# ---- the epoch


def test_p4_of_two_begins_at_once_one_is_fenced(storage: S3Storage) -> None:
    epoch = TableEpoch(storage)
    epoch.advance(1, "a")
    before = storage.read_versioned(EPOCH_PATH)
    epoch.advance(2, "b")
    with pytest.raises(WriteConflict):
        storage.put_if(EPOCH_PATH, b"other", before)
    assert epoch.current() == Epoch(2, "b")
    fenced: list[str] = []
    start = threading.Barrier(4)

    def begin(number: int) -> None:
        start.wait()
        try:
            TableEpoch(storage).advance(3, f"t-{number}")
        except Fenced:
            fenced.append(f"t-{number}")

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fenced) == 3
    assert epoch.current().transaction_id not in fenced


def test_p4_only_one_of_two_makes_the_first_epoch(storage: S3Storage) -> None:
    before = storage.read_versioned(EPOCH_PATH)
    storage.put_if(EPOCH_PATH, b"1", before)
    with pytest.raises(WriteConflict):
        storage.put_if(EPOCH_PATH, b"2", before)
    storage.delete(EPOCH_PATH)
    with pytest.raises(WriteConflict):
        storage.put_if(EPOCH_PATH, b"2", replace(before, version='"gone"'))


def test_p4_a_write_that_lost_a_race_asks_once(tables: S3Tables, storage: S3Storage) -> None:
    """Only a change that was in flight and has failed is a reason to try again."""
    storage.write(EPOCH_PATH, b"1")
    before = storage.read_versioned(EPOCH_PATH)
    storage.write(EPOCH_PATH, b"2")
    seen = len(tables.proxy.requests)
    with pytest.raises(WriteConflict):
        storage.put_if(EPOCH_PATH, b"3", before)
    assert [request.method for request in tables.proxy.requests[seen:]] == ["PUT", "GET"]


def test_p5_a_change_whose_answer_was_lost_is_recognized(tables: S3Tables, storage: S3Storage) -> None:
    def is_epoch(request: Request) -> bool:
        return request.kind == "PUT" and request.key.endswith(EPOCH_PATH)

    epoch = TableEpoch(storage)
    for change in (partial(epoch.advance, 1, "a"), partial(epoch.advance, 2, "b"), partial(epoch.retire, "b")):
        with tables.proxy.silent(is_epoch) as times:
            change()
        assert times() == 1
    assert epoch.current() == Epoch(3, "")


class _Careless(BaseHTTPRequestHandler):
    """A store that takes whatever it is given, except that it answers some conditions with `statuses`."""

    statuses: Mapping[str, int] = {}
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(next((status for header, status in self.statuses.items() if header in self.headers), 200))

    def do_DELETE(self) -> None:
        self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        return


@contextmanager
def careless_store(**statuses: int) -> Iterator[str]:
    headers = {name.replace("_", "-"): status for name, status in statuses.items()}
    server = ThreadingHTTPServer((LOOPBACK, 0), type("Careless", (_Careless,), {"statuses": headers}))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://{LOOPBACK}:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("statuses", "ignored"),
    [
        ({}, "If-None-Match and If-Match"),
        ({"If_None_Match": 501, "If_Match": 501}, "If-None-Match and If-Match"),
        # As AWS itself for some months.
        ({"If_None_Match": 412}, "If-Match"),
    ],
)
def test_p6_a_store_without_conditional_writes_is_refused(
    tables: S3Tables, statuses: dict[str, int], ignored: str
) -> None:
    with careless_store(**statuses) as endpoint:
        options = replace(tables.options, endpoint=endpoint)
        for ask in (S3Storage.make, S3Storage.require_conditional_writes):
            with pytest.raises(
                TableUnreachable,
                match=rf"does not honour {ignored} when.*conditional_writes: false and table\.lock",
            ):
                ask(S3Storage("s3a://lake/t", options))
        S3Storage("s3a://lake/t", replace(options, conditional_writes=False)).make()


def test_p4_an_epoch_that_a_store_refuses_to_compare_is_not_taken_for_written(tables: S3Tables) -> None:
    """For example after the table was copied to a store that has no conditional writes."""
    with careless_store(If_Match=501) as endpoint:
        storage = S3Storage("s3a://lake/t", replace(tables.options, endpoint=endpoint))
        with pytest.raises(StoreError, match="no conditional writes") as raised:
            storage.put_if(EPOCH_PATH, b"2", Versioned(b"1", '"1"'))
    assert "conditional_writes: false" in raised.value.remedy


# ---- logins


def test_no_secret_travels_and_a_worker_resolves_its_own(storage: S3Storage) -> None:
    storage.write("a", b"content")
    pickled = pickle.dumps(storage)
    assert SECRET.encode() not in pickled
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).read('a').decode())"
    answer = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, timeout=300)
    assert answer.stdout == b"content\n", answer.stderr
    without = {name: value for name, value in os.environ.items() if name != "TEST_STORE_SECRET"}
    answer = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, timeout=300, env=without)
    last = answer.stderr.decode().strip().splitlines()[-1]
    assert (
        "table.storage.secret_key is ${TEST_STORE_SECRET}, and environment variable TEST_STORE_SECRET is not set"
        in last
    )


def test_a_forked_process_has_connections_of_its_own(storage: S3Storage) -> None:
    storage.write("a", b"parent")
    with storage.open_output("p") as stream:
        pq.write_table(rows(1), stream)
    child = os.fork()
    if child == 0:
        try:
            storage.write("b", storage.read("a"))
            with storage.open_output("c") as stream:
                pq.write_table(rows(2), stream)
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert storage.read("b") == storage.read("a")
    assert storage.parquet_footer("c").num_rows == 2


@pytest.fixture
def no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    from hudi_ingest.hudi.storage import s3_access

    s3_access._session.cache_clear()
    return monkeypatch


def test_threads_may_connect_at_once(tables: S3Tables) -> None:
    """As the ticks of several pipelines do. botocore's own sessions then fail with a KeyError."""
    from hudi_ingest.hudi.storage import s3_access

    s3_access._session.cache_clear()
    s3_access._client.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        assert len({id(client) for client in pool.map(client_of, [tables.options] * 8)}) == 1


def test_the_default_chain_and_profiles(no_login: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="none in the environment, in a default profile, or from a role") as raised:
        credentials_of(StorageOptions())
    assert "AWS_ACCESS_KEY_ID" in raised.value.remedy
    with pytest.raises(StoreError, match=r"profile \(lake\) could not be found"):
        credentials_of(StorageOptions(profile="lake"))
    (tmp_path / "credentials").write_text("[lake]\naws_access_key_id=k\naws_secret_access_key=s\n")
    (tmp_path / "config").write_text("[profile lake]\nregion=eu-north-1\n")
    assert credentials_of(StorageOptions(profile="lake")).access_key == "k"
    # What renews temporary credentials rewrites the file.
    (tmp_path / "credentials").write_text("[lake]\naws_access_key_id=k2\naws_secret_access_key=s\n")
    assert credentials_of(StorageOptions(profile="lake")).access_key == "k2"
    assert hudi_rs_options("s3a://lake/t", StorageOptions(profile="lake"))["aws_region"] == "eu-north-1"
    no_login.setenv("AWS_ACCESS_KEY_ID", "e")
    no_login.setenv("AWS_SECRET_ACCESS_KEY", "s")
    no_login.setenv("AWS_SESSION_TOKEN", "t")
    from hudi_ingest.hudi.storage import s3_access

    s3_access._session.cache_clear()
    found = credentials_of(StorageOptions())
    assert (found.access_key, found.session_token) == ("e", "t")
    s3_access._session.cache_clear()


def test_hudi_rs_gets_the_same_login(tables: S3Tables) -> None:
    found = hudi_rs_options("s3a://lake/t", tables.options)
    assert found == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": SECRET,
        "aws_region": "us-east-1",
        "aws_endpoint": tables.options.endpoint,
        "aws_allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
    }
    hosted = replace(tables.options, endpoint="https://store.example", path_style=False)
    assert hudi_rs_options("s3a://lake/t", hosted)["aws_endpoint"] == "https://lake.store.example"
    assert hudi_rs_options("/tables/t", tables.options) == {}


def test_a_store_whose_hosts_name_buckets(tables: S3Tables) -> None:
    def address(options: StorageOptions) -> str:
        url: str = client_of(options).generate_presigned_url("get_object", Params={"Bucket": "lake", "Key": "t"})
        return url.partition("?")[0]

    hosted = replace(tables.options, endpoint="https://store.example:8443", path_style=False)
    assert address(hosted) == "https://lake.store.example:8443/t"
    assert address(replace(hosted, path_style=True)) == "https://store.example:8443/lake/t"
    aws = replace(hosted, endpoint=None, region="cn-north-1")
    assert hudi_rs_options("s3a://lake/t", aws)["aws_endpoint"] == "https://s3.cn-north-1.amazonaws.com.cn"


def test_no_log_shows_a_session_token(tables: S3Tables, storage: S3Storage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        storage.exists("a")
    assert not [
        record for record in caplog.records if record.name.startswith("botocore") and record.levelno < logging.INFO
    ]
    assert SECRET not in caplog.text


# ---- bad input


def test_p6_a_store_that_is_down_is_told_soon(tables: S3Tables) -> None:
    down = S3Storage("s3a://lake/t", replace(tables.options, endpoint=f"http://{LOOPBACK}:{free_port()}"))
    with pytest.raises(StoreError, match="Could not connect") as raised:
        down.read("a")
    assert "correct table.storage.endpoint" in raised.value.remedy
    with pytest.raises(TableUnreachable, match=r"cannot be written to.*correct table\.storage\.endpoint"):
        down.make()
    assert pickle.loads(pickle.dumps(raised.value)).remedy == raised.value.remedy


def test_p6_a_store_that_never_answers_is_given_up_and_holds_up_no_other_table(
    tables: S3Tables, storage: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("a", b"1")
    monkeypatch.setattr(s3_access, "REQUEST_SECONDS", 1)
    with silent_server() as address, ThreadPoolExecutor(3) as pool:
        hanging = S3Storage("s3a://lake/t", replace(tables.options, endpoint=f"http://{address}"))
        began = time.monotonic()
        asked: list[Future[object]] = [
            pool.submit(partial(hanging.read, "a")),
            pool.submit(hanging.make),
            pool.submit(lambda: filesystem_of(hanging.options).get_file_info("lake/t/a")),
        ]
        answered = 0
        while wait(asked, 0.5).not_done:
            assert storage.read("a") == b"1"
            answered += 1
        assert answered > 1, "meanwhile"
        assert time.monotonic() - began < 60
        errors = [each.exception() for each in asked]
    assert [type(error) for error in errors] == [StoreError, TableUnreachable, OSError]
    assert "Read timeout" in str(errors[0])
    assert "cannot be written to" in str(errors[1])


def test_p6_a_missing_bucket_is_told_for_objects_and_streams(tables: S3Tables) -> None:
    missing = S3Storage("s3a://nowhere/t", tables.options)
    with pytest.raises(StoreError) as raised:
        missing.read("a")
    assert raised.value.remedy.startswith("The bucket does not exist; create it")
    for size in (1, 12_000_000):
        with pytest.raises(StoreError) as of_stream, missing.open_output("a") as stream:
            stream.write(b"x" * size)
        assert of_stream.value.remedy == raised.value.remedy


def test_p6_a_busy_store_is_tried_again_for_a_while(tables: S3Tables, storage: S3Storage) -> None:
    with tables.proxy.counted() as counts, tables.proxy.busy(), pytest.raises(StoreError) as raised:
        storage.read("a")
    assert "overloaded" in raised.value.remedy
    assert counts == {"GET": 4}


def test_a_worker_without_the_extra_says_so(storage: S3Storage) -> None:
    code = "import pickle, sys; sys.modules['botocore'] = None; pickle.loads(sys.stdin.buffer.read()).read('a')"
    answer = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(storage), capture_output=True, timeout=300)
    assert "botocore is not installed for process" in answer.stderr.decode().splitlines()[-1]


def test_a_reference_that_is_missing_says_where_to_set_it(tables: S3Tables) -> None:
    options = replace(tables.options, secret_key=SecretReference("${NOT_SET_ANYWHERE}"))
    storage = S3Storage("s3a://lake/t", options)
    with pytest.raises(StoreError, match=r"^table\.storage\.secret_key is \$\{NOT_SET_ANYWHERE\}") as raised:
        storage.exists("a")
    assert "hudi-ingest up" in raised.value.remedy
    told = r"cannot be written: table\.storage\.secret_key is .*`hudi-ingest up`"
    with pytest.raises(TableUnreachable, match=told), _store_errors(storage):
        storage.write("a", b"")
    with pytest.raises(TableUnreachable, match=r"cannot read the properties .*secret_key is .*`hudi-ingest up`"):
        Timeline(storage.base_path, options).exists()
    with pytest.raises(TableUnreachable, match=r"cannot read the epoch .*secret_key is .*`hudi-ingest up`"):
        TableEpoch(storage).current()


# ---- a step of the pipeline asks for the timeline once

COMMITS = ("20261122100000000_20261122100001000.commit", "20261122100100000_20261122100101000.commit")


def committed_table(tables: S3Tables, storage: S3Storage) -> Timeline:
    """A table whose commits this process has read before."""
    tables.fill(storage, [f"{TIMELINE}/{name}" for name in COMMITS])
    storage.write(PRIMARY, properties_text({"hudi_ingest.pipeline": "orders"}).encode())
    for name in COMMITS:
        commit = CommittedInstant(name[:17], {}, instant_time(name[18:35]))
        timeline._read_commits.keep((storage.base_path, name), commit, 1)
    return Timeline(storage.base_path, storage.options)


def test_commits_that_were_read_before_cost_one_listing(tables: S3Tables, storage: S3Storage) -> None:
    table = committed_table(tables, storage)
    with tables.proxy.counted() as requests:
        assert [commit.instant for commit in table.completed()] == [name[:17] for name in reversed(COMMITS)]
    assert requests == {"LIST": 1}
    columns = pa.schema([("id", pa.string())])
    timeline._read_schemas.keep((storage.base_path, frozenset(COMMITS)), columns, 1)
    with tables.proxy.counted() as requests:
        assert table.schema() == columns
    assert requests == {"LIST": 1}
    tables.fill(storage, [f"{TIMELINE}/20261122100200000_20261122100201000.commit"])
    for read in (table.completed, table.schema):
        with pytest.raises(TableUnreachable):
            # One that is new has to be read, and this one is empty.
            read()


def test_p3_a_step_looks_once_at_the_timeline_until_it_changes_it(tables: S3Tables, storage: S3Storage) -> None:
    table = committed_table(tables, storage)
    with tables.proxy.counted() as requests, table.held():
        for _ in range(3):
            assert table.exists()
            assert not table.instants().pending
            assert len(table.completed()) == len(COMMITS)
    assert requests == {"GET": 1, "LIST": 1}
    tables.fill(storage, [f"{TIMELINE}/20261122100200000.commit.requested"])
    with table.held():
        assert table.instants().pending == {"20261122100200000"}
        tables.fill(storage, [f"{TIMELINE}/20261122100300000.commit.requested"])
        storage.write(PRIMARY, properties_text({"hudi_ingest.pipeline": "customers"}).encode())
        assert len(table.instants().pending) == 1
        table.forget()
        assert len(table.instants().pending) == 2
        assert table.properties()["hudi_ingest.pipeline"] == "customers"
    tables.fill(storage, [f"{TIMELINE}/20261122100400000.commit.requested"])
    assert len(table.instants().pending) == 3, "nothing is held after the step"


def test_p4_the_epoch_is_read_anew_within_a_step(tables: S3Tables, storage: S3Storage) -> None:
    table, epoch = committed_table(tables, storage), TableEpoch(storage)
    epoch.advance(1, "first")
    with table.held():
        epoch.require(Epoch(1, "first"), "this must not continue")
        TableEpoch(S3Storage(storage.base_path, storage.options)).advance(2, "second")
        with pytest.raises(Fenced):
            epoch.require(Epoch(1, "first"), "this must not continue")


@pytest.mark.parametrize("status", [200, 403])
def test_answers_of_another_server_at_the_endpoint_are_not_quoted(storage: S3Storage, status: int) -> None:
    class Other(QuietHandler):
        def do_GET(self) -> None:
            self.answer(status, b"SECRET")

    with serving(Other) as url:
        other = S3Storage(storage.base_path, replace(storage.options, endpoint=url))
        with pytest.raises(StoreError, match="ListObjectsV2") as raised:
            other.names("")
    assert "SECRET" not in str(raised.value)
