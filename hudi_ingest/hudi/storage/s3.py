"""Tables on S3 and compatible stores.

All requests but those that read Parquet go through botocore: it has conditional writes and multipart uploads, sends exactly one
request for each call, and can do without the checksums that only AWS is sure to take. pyarrow's uploads cannot: they end in
trailing checksums, and versitygw answers the next request on such a connection with 400.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timezone
from typing import IO, Any, Protocol, cast

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.storage.paths import HOODIE, OWN_FILES
from hudi_ingest.hudi.storage.s3_access import TRIES, client_of, filesystem_of
from hudi_ingest.hudi.storage.storage import (
    UNKNOWN_TIME,
    StoredFile,
    StoreError,
    TableStorage,
    Upload,
    Versioned,
    WriteConflict,
    store_error,
)
from hudi_ingest.model.storage_options import StorageOptions, bucket_and_key

PART_BYTES = 8 * 1024 * 1024
"""A file up to this size is one PUT. Parts have the same size but for the last, as some stores require; AWS requires 5 MiB."""


class Uploads(Protocol):
    """Requests of one table. All raise StoreError."""

    def write(self, path: str, content: bytes) -> None: ...
    def begin_upload(self, path: str) -> str: ...
    def upload_part(self, path: str, upload_id: str, number: int, content: bytes) -> str: ...
    def complete_upload(self, path: str, upload_id: str, etags: list[str], size_bytes: int) -> None: ...
    def give_up_upload(self, path: str, upload_id: str) -> None: ...


class S3Output:
    """A binary file, open for writing, of which nothing is visible before it is closed.

    It keeps PART_BYTES in memory at most, and no more than was written: a task may have hundreds of files open. One that is
    dropped, left by an error or refused by the store is never completed.
    """

    def __init__(self, uploads: Uploads, path: str, ready: Callable[[], object] | None = None) -> None:
        self.closed = False
        self._ready = ready
        self._uploads = uploads
        self._path = path
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._size = 0
        self._upload_id: str | None = None
        self._etags: list[str] = []

    def __enter__(self) -> S3Output:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._give_up()

    def write(self, content: bytes) -> int:
        # A copy, because the caller may reuse its buffer.
        self._waiting.append(bytes(content))
        self._waiting_bytes += len(content)
        self._size += len(content)
        if self._waiting_bytes > PART_BYTES:
            with self._given_up_on_error():
                self._send_full_parts()
        return len(content)

    def tell(self) -> int:
        return self._size

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        return

    def close(self) -> None:
        if not self.closed:
            with self._given_up_on_error():
                self._send_rest()
            self.closed = True

    def _send_full_parts(self) -> None:
        if self._upload_id is None:
            if self._ready is not None:
                self._ready()
            self._upload_id = self._uploads.begin_upload(self._path)
        content = b"".join(self._waiting)
        # The last byte stays, because close sends the last part.
        full = (len(content) - 1) // PART_BYTES * PART_BYTES
        for start in range(0, full, PART_BYTES):
            self._send_part(self._upload_id, content[start : start + PART_BYTES])
        self._waiting = [content[full:]]
        self._waiting_bytes = len(content) - full

    def _send_rest(self) -> None:
        content = b"".join(self._waiting)
        if self._upload_id is None:
            if self._ready is not None:
                self._ready()
            self._uploads.write(self._path, content)
        else:
            self._send_part(self._upload_id, content)
            self._uploads.complete_upload(self._path, self._upload_id, self._etags, self._size)
        self._waiting.clear()

    def _send_part(self, upload_id: str, content: bytes) -> None:
        number = len(self._etags) + 1
        self._etags.append(self._uploads.upload_part(self._path, upload_id, number, content))

    @contextmanager
    def _given_up_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Close without completing the file: after an error a part may be missing."""
        if self.closed:
            return
        self.closed = True
        self._waiting.clear()
        if self._upload_id is not None:
            # An upload that cannot be aborted now is aborted by the rollback of its instant, or by the sweep.
            with suppress(OSError):
                self._uploads.give_up_upload(self._path, self._upload_id)


_MISSING = {"404", "NoSuchKey", "NotFound"}
_CONDITION_FAILED = {"412", "PreconditionFailed", "409", "ConditionalRequestConflict", *_MISSING}
_NO_CONDITIONS = {"501", "NotImplemented"}
_WITHOUT_CONDITIONS = "Set table.storage.conditional_writes: false and table.lock, so that ZooKeeper does."
_ETAG_OF_NOTHING = f'"{"0" * 32}"'
_MOST_DELETED = 1000
"""Keys of one request."""
_AFTER_ALL = "\U0010ffff"
_LISTS_UPLOADS_BY_KEY = "MinIO"
"""The server that lists open uploads only to those who ask with an object's whole key as the prefix."""


def _server_of(answer: Mapping[str, Any]) -> str:
    return str(answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("server", ""))


class S3Storage(TableStorage):
    """Objects below a prefix of one bucket. Folders are only prefixes: none is ever created."""

    def __init__(self, base_path: str, options: StorageOptions) -> None:
        super().__init__(base_path, options)
        self._bucket, self._key = bucket_and_key(base_path)

    def __reduce__(self) -> tuple[type[S3Storage], tuple[str, StorageOptions]]:
        return (S3Storage, (self.base_path, self.options))

    def make(self) -> None:
        try:
            self.require_conditional_writes()
        except OSError as error:
            remedy = error.remedy if isinstance(error, StoreError) else "Check table.storage."
            raise TableUnreachable(
                f"the table's folder {self.base_path} cannot be written to: {error}. {remedy} Nothing was written."
            ) from error

    def require_conditional_writes(self) -> None:
        probe = f"{OWN_FILES}/probe.{uuid.uuid4().hex}.partial"
        if not self.options.conditional_writes:
            self.write(probe, b"")
            self.delete(probe)
            return
        self.write(probe, b"")
        conditions = {"If-None-Match": {"IfNoneMatch": "*"}, "If-Match": {"IfMatch": _ETAG_OF_NOTHING}}
        ignored = [
            header
            for header, condition in conditions.items()
            if self._put_on_condition(probe, b"1", condition) not in _CONDITION_FAILED
        ]
        self.delete(probe)
        if ignored:
            raise TableUnreachable(
                f"{self.options.endpoint or 'the store'} of table {self.base_path} does not honour {' and '.join(ignored)} when an "
                f"object is written, so it cannot keep a stale coordinator out. Nothing was written. {_WITHOUT_CONDITIONS}"
            )

    def exists(self, path: str) -> bool:
        return self._head(path) is not None

    def size(self, path: str) -> int:
        head = self._head(path)
        if head is None:
            raise FileNotFoundError(f"{self.base_path}/{path}")
        return int(head["ContentLength"])

    def read(self, path: str) -> bytes:
        return self._get(path).content

    def write(self, path: str, content: bytes) -> None:
        self._call("put_object", Key=self._key_of(path), Body=content)

    def write_whole(self, path: str, content: bytes) -> None:
        # Objects appear whole.
        self.write(path, content)

    def replace(self, path: str, content: bytes) -> None:
        self.write(path, content)

    def read_versioned(self, path: str) -> Versioned:
        try:
            return self._get(path)
        except FileNotFoundError:
            return Versioned(b"", None)

    def put_if(self, path: str, content: bytes, before: Versioned) -> None:
        if not self.options.conditional_writes:
            self.write(path, content)
            return
        condition = {"IfNoneMatch": "*"} if before.version is None else {"IfMatch": before.version}
        for _ in range(TRIES):
            refusal = self._put_on_condition(path, content, condition)
            if not refusal:
                return
            if refusal in _NO_CONDITIONS:
                raise StoreError(
                    f"{self._store}: no conditional writes ({refusal}), so it cannot keep a stale coordinator out",
                    _WITHOUT_CONDITIONS,
                )
            now = self.read_versioned(path)
            if now.content == content:
                # The answer to an earlier try was lost: no two changes of such a file have the same content.
                return
            if now.version != before.version:
                raise WriteConflict(path)
            # Another change was in flight and has failed.
        raise WriteConflict(path)

    def sync(self, paths: Iterable[str]) -> None:
        return

    def open_output(self, path: str, ready: Callable[[], object] | None = None) -> IO[bytes]:
        return cast("IO[bytes]", S3Output(self, path, ready))

    def begin_upload(self, path: str) -> str:
        """Begin a multipart upload. Returns its id."""
        return str(self._call("create_multipart_upload", Key=self._key_of(path))["UploadId"])

    def upload_part(self, path: str, upload_id: str, number: int, content: bytes) -> str:
        """Upload the part with this number, from 1. Returns its ETag."""
        with self._open_upload(path):
            answer = self._call(
                "upload_part", Key=self._key_of(path), UploadId=upload_id, PartNumber=number, Body=content
            )
        return str(answer["ETag"])

    def complete_upload(self, path: str, upload_id: str, etags: list[str], size_bytes: int) -> None:
        """Make one file of all parts, which have these ETags and this size. No file may have been at this path before."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        with self._open_upload(path):
            try:
                self._call(
                    "complete_multipart_upload",
                    Key=self._key_of(path),
                    UploadId=upload_id,
                    MultipartUpload={"Parts": parts},
                )
            except FileNotFoundError:
                # The answer to an earlier try may have been lost.
                head = self._head(path)
                if head is None or head["ContentLength"] != size_bytes:
                    raise

    def give_up_upload(self, path: str, upload_id: str) -> None:
        self.abort_upload(Upload(path, upload_id, UNKNOWN_TIME))

    @contextmanager
    def _open_upload(self, path: str) -> Iterator[None]:
        """Raises StoreError if there is no such upload any more."""
        try:
            yield
        except FileNotFoundError as error:
            raise StoreError(
                f"{self._store}: the multipart upload of {self._key_of(path)} is not open any more (NoSuchUpload)",
                "The rollback of its transaction has aborted it, or `hudi-ingest sweep`, or a lifecycle rule of the bucket.",
            ) from error

    def delete(self, path: str) -> None:
        self._call("delete_object", Key=self._key_of(path))

    def names(self, folder: str) -> tuple[str, ...]:
        prefix = self._prefix(folder)
        names: set[str] = set()
        for page in self._pages(Prefix=prefix, Delimiter="/"):
            names.update(entry["Key"].removeprefix(prefix) for entry in page.get("Contents", ()))
            names.update(entry["Prefix"].removeprefix(prefix).rstrip("/") for entry in page.get("CommonPrefixes", ()))
        return tuple(sorted(names - {""}))

    def files_beside(self, folder: str, excluded: Container[str]) -> list[StoredFile]:
        # One listing that jumps over the excluded folders, however many others there are.
        prefix = self._prefix(folder)
        files: list[StoredFile] = []
        start: str | None = ""
        while start is not None:
            after, start = start, None
            for page in self._pages(Prefix=prefix, **({"StartAfter": after} if after else {})):
                for entry in page.get("Contents", ()):
                    name, slash, _ = entry["Key"].removeprefix(prefix).partition("/")
                    if slash and name in excluded:
                        start = f"{prefix}{name}/{_AFTER_ALL}"
                        break
                    files += self._stored(entry)
                if start is not None:
                    break
        return files

    def files(self, folder: str) -> list[StoredFile]:
        return [
            file
            for page in self._pages(Prefix=self._prefix(folder))
            for entry in page.get("Contents", ())
            for file in self._stored(entry)
        ]

    def file(self, path: str) -> StoredFile | None:
        head = self._head(path)
        if head is None:
            return None
        return StoredFile(path, int(head["ContentLength"]), head["LastModified"].astimezone(timezone.utc))

    def delete_folder(self, folder: str) -> None:
        keys = [entry["Key"] for page in self._pages(Prefix=self._prefix(folder)) for entry in page.get("Contents", ())]
        for first in range(0, len(keys), _MOST_DELETED):
            batch = [{"Key": key} for key in keys[first : first + _MOST_DELETED]]
            answer = self._call("delete_objects", Delete={"Objects": batch, "Quiet": True})
            for problem in answer.get("Errors", ()):
                raise StoreError(
                    f"{self._store}: object {problem.get('Key')} cannot be deleted ({problem.get('Code')})",
                    "Allow the login to delete objects below the table's path (s3:DeleteObject).",
                )

    def unfinished_uploads(self, suspected: Iterable[str] = ()) -> list[Upload]:
        pages = [*self._upload_pages(f"{self._key}/")]
        if _server_of(pages[0]) == _LISTS_UPLOADS_BY_KEY:
            pages = [page for path in suspected for page in self._upload_pages(self._key_of(path))]
        uploads: list[Upload] = []
        for entry in (entry for page in pages for entry in page.get("Uploads", ())):
            path = entry["Key"].removeprefix(f"{self._key}/")
            if not path.startswith(f"{HOODIE}/") or path.startswith(f"{OWN_FILES}/"):
                uploads.append(Upload(path, entry["UploadId"], entry["Initiated"].astimezone(timezone.utc)))
        return uploads

    def _upload_pages(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        more: Mapping[str, str] = {}
        while True:
            page = self._call("list_multipart_uploads", Prefix=prefix, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def abort_upload(self, upload: Upload) -> bool:
        try:
            self._call("abort_multipart_upload", Key=self._key_of(upload.path), UploadId=upload.upload_id)
        except FileNotFoundError:
            return False
        return True

    def explained(self, error: OSError) -> OSError:
        if isinstance(error, StoreError) or "AWS Error" not in str(error):
            return error
        return store_error(error, self.options, self._bucket)

    @property
    def _store(self) -> str:
        return f"{self.options.endpoint or 'AWS S3'}, bucket {self._bucket}"

    @property
    def _arrow(self) -> Any:
        return filesystem_of(self.options)

    def _absolute(self, path: str) -> str:
        return f"{self._bucket}/{self._key_of(path)}"

    def _key_of(self, path: str) -> str:
        return f"{self._key}/{path}" if path else self._key

    def _prefix(self, folder: str) -> str:
        return f"{self._key_of(folder)}/"

    def _get(self, path: str) -> Versioned:
        answer = self._call("get_object", Key=self._key_of(path))
        from botocore.exceptions import BotoCoreError

        try:
            with answer["Body"] as body:
                return Versioned(body.read(), answer["ETag"])
        except BotoCoreError as error:
            raise store_error(error, self.options, self._bucket) from error

    def _head(self, path: str) -> Mapping[str, Any] | None:
        try:
            return self._call("head_object", Key=self._key_of(path))
        except FileNotFoundError:
            return None

    def _stored(self, entry: Mapping[str, Any]) -> Iterator[StoredFile]:
        key = entry["Key"]
        # Some tools create empty objects as folders.
        if not key.endswith("/"):
            modified = entry["LastModified"].astimezone(timezone.utc)
            yield StoredFile(key.removeprefix(f"{self._key}/"), int(entry["Size"]), modified)

    def _pages(self, **arguments: Any) -> Iterator[Mapping[str, Any]]:
        while True:
            page = self._call("list_objects_v2", **arguments)
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def _put_on_condition(self, path: str, content: bytes, condition: Mapping[str, str]) -> str:
        """Return the store's code if it refused the condition, "" if it has written the object. Raises StoreError."""
        client = client_of(self.options)
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            client.put_object(Bucket=self._bucket, Key=self._key_of(path), Body=content, **condition)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _CONDITION_FAILED or code in _NO_CONDITIONS:
                return code
            raise store_error(error, self.options, self._bucket) from error
        except BotoCoreError as error:
            raise store_error(error, self.options, self._bucket) from error
        return ""

    def _call(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        """Send one request. Raises FileNotFoundError for a missing object or upload, else StoreError."""
        client = client_of(self.options)
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: Mapping[str, Any] = getattr(client, operation)(Bucket=self._bucket, **arguments)
            return answer
        except ClientError as error:
            if str(error.response.get("Error", {}).get("Code", "")) in (*_MISSING, "NoSuchUpload"):
                raise FileNotFoundError(f"s3a://{self._bucket}/{arguments.get('Key', '')}") from error
            raise store_error(error, self.options, self._bucket) from error
        except BotoCoreError as error:
            raise store_error(error, self.options, self._bucket) from error
