"""All file access to a table goes through here, whether it is on a file system of this machine or on an object store."""

from __future__ import annotations

import errno
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import IO, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.storage.paths import HOODIE, PRIMARY, PRIMARY_CHECKSUM, partition_metadata_path
from hudi_ingest.model.storage_options import StorageOptions

_NOT_KEPT = {".temp", ".heartbeat", "iceberg"}
"""Markers and heartbeats may be lost: no committed transaction needs them, and the sweep deletes the files of the others. Iceberg's metadata
is made again."""
UNKNOWN_TIME = datetime.max.replace(tzinfo=timezone.utc)
"""Time of a file for which the storage has none: it never counts as old."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a storage listing; `modified` is in UTC."""

    path: str
    size_bytes: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Upload:
    """A file whose multipart upload to an object store has begun and not been completed; `began` is in UTC."""

    path: str
    upload_id: str
    began: datetime


@dataclass(frozen=True, slots=True)
class Versioned:
    """A file's content with the version that `put_if` compares; of a missing file, b"" and None."""

    content: bytes
    version: str | None


Result = TypeVar("Result")


class WriteConflict(Exception):
    """Another process has changed the file since it was read."""


WHO_RETRIES = "a run retries the step, and a command must be given again"
"""What follows a fault that may pass: the same message reaches runs and people at a terminal."""
_CAUSES: tuple[tuple[str, str], ...] = (
    (r"hudi-ingest credentials: ([^\n]*? where Spark runs)", r"\1; set it for the engine (and a cluster's executors)"),
    (
        r"SignatureDoesNotMatch|INVALID_SIGNATURE|signature we calculated does not match",
        "the store says that the secret key is wrong; correct table.storage.secret_key, or the process's own credentials",
    ),
    (
        r"InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|XAdminUserNotFound|access key ID you provided does not exist",
        "the store does not know the access key; correct table.storage.access_key, or the process's own credentials",
    ),
    (
        r"ExpiredToken|EXPIRED_TOKEN|InvalidToken|TokenRefreshRequired",
        "the temporary credentials have expired or their session token is wrong; renew them",
    ),
    (
        r"RequestTimeTooSkewed|REQUEST_TIME_TOO_SKEWED|RequestExpired",
        "the store refuses requests because this machine's clock is wrong; set the clock",
    ),
    (
        r"NoSuchBucket|NO_SUCH_BUCKET|[Bb]ucket does not exist|UnknownStoreException",
        "the bucket does not exist; create it, or correct table.base_path or table.storage.endpoint",
    ),
    (
        r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|\(301\)|Status Code: 30[17]|"
        r"HTTP (?:code|status) 301",
        "the bucket is in another region; set table.storage.region to the bucket's",
    ),
    (
        r"NoAuthWithAWSException|No AWS Credentials|Unable to load (?:AWS )?credentials",
        "no credentials were found; set table.storage.access_key and secret_key or a profile, or give the process AWS's "
        "environment variables or a role",
    ),
    (
        r"AccessDenied|ACCESS_DENIED|Status Code: 403|Forbidden",
        "the store refused access; correct the credentials, or allow them to list the bucket and to read, write and delete the "
        "table's objects and abort their uploads",
    ),
    (
        r"SlowDown|SLOW_DOWN|Throttl|ServiceUnavailable|SERVICE_UNAVAILABLE|InternalError|INTERNAL_FAILURE|RequestTimeout|\(50[023]\)|"
        r"Status Code: 50[023]|Service Unavailable",
        f"the store is overloaded or broken at the moment (every try was answered with 5xx); {WHO_RETRIES}",
    ),
    (
        r"Status Code: 400|\(400\)|AWSBadRequestException",
        "the store refused a request without saying why, as some do for a wrong region or a wrong clock; check "
        "table.storage.region and this machine's clock",
    ),
    (
        r"SSLError|SSL validation|certificate",
        "the store's certificate is not trusted here, or it does not speak TLS; correct http:// or https:// in "
        "table.storage.endpoint, or set AWS_CA_BUNDLE to the file of the certificate's authority",
    ),
    (
        r"Connection refused|Could not connect|ConnectionClosed|Connection was closed|[Tt]imeout on endpoint|UnknownHost|"
        r"timed out|Unable to execute HTTP request|curlCode|NETWORK_CONNECTION",
        f"the store does not answer; start it, or correct table.storage.endpoint; {WHO_RETRIES}",
    ),
)
"""Pattern and explanation, the most specific first, because a text may match several."""
_MOST_TEXT = 1000
"""Characters of an error's text. pyarrow names the object twice before it comes to the store's code."""


FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
FULL_REMEDY = (
    "Its disk is full, or the user's quota, or no inode is left (`df -h`, `df -i`). Free some: `hudi-ingest sweep` lists files that nothing "
    "needs, `hudi-ingest services` merges small ones."
)
_FULL_SIGNS = ("No space left on device", "Disk quota exceeded")


def is_full(text: str) -> bool:
    """Whether an error's text is about a disk without space or inodes."""
    return any(sign in text for sign in _FULL_SIGNS)


class StoreError(OSError):
    """A store refused or did not answer. Its text says what happened; `remedy` is a sentence that says what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[StoreError], tuple[str, str]]:
        return (StoreError, (str(self), self.remedy))


def store_advice(text: str) -> str | None:
    """Say what the S3 store's error means and what to do; None for an error of another kind."""
    for pattern, explanation in _CAUSES:
        match = re.search(pattern, text)
        if match is not None:
            return match.expand(explanation)
    return None


def store_remedy(text: str) -> str | None:
    """Return the advice of `store_advice` as a sentence."""
    advice = store_advice(text)
    return f"{advice[0].upper()}{advice[1:]}." if advice else None


def store_error(error: Exception, options: StorageOptions, bucket: str) -> StoreError:
    """Explain an error of botocore's or pyarrow's S3 client."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    details = response.get("Error", {})
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = details.get("Region") or headers.get("x-amz-bucket-region")
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:_MOST_TEXT].rstrip('.')}"
    of_bucket = f" (the bucket is in {region})" if region and region != options.region else ""
    return StoreError(
        f"{options.endpoint or 'AWS S3'}, bucket {bucket}: {text}{of_bucket}",
        store_remedy(text) or "The store gave no known reason; check table.storage and the store's own log.",
    )


def advice(error: Exception) -> str:
    """Advise on a storage error, in one sentence."""
    if isinstance(error, StoreError):
        return error.remedy
    number = error.errno if isinstance(error, OSError) else None
    if number in FULL:
        return FULL_REMEDY
    if number == errno.EMFILE:
        return "This process has reached its limit of open files: raise `ulimit -n` (LimitNOFILE in a systemd unit)."
    if number == errno.ENFILE:
        return "This machine has reached its limit of open files: raise fs.file-max, or find the process that opens so many (`lsof`)."
    return "Check the path, its permissions and free space."


class TableStorage(ABC):
    """Files below one table's base path. Paths are relative to it and use `/`. All methods raise OSError.

    Picklable: only its base path and options, which hold no secret, go to Spark's Python workers, which connect there.
    """

    is_local = False
    """Whether files must be flushed to survive a power cut."""

    def __init__(self, base_path: str, options: StorageOptions) -> None:
        self.base_path = base_path
        self.options = options

    @abstractmethod
    def make(self) -> None:
        """Make sure that the table's folder exists and can be written to. Raises TableUnreachable."""

    def require_creatable(self) -> None:
        """Without making anything: raises TableUnreachable when `make` certainly could not make the table's folder."""
        return

    @abstractmethod
    def require_conditional_writes(self) -> None:
        """Raises TableUnreachable when the store has no conditional writes although the options say so."""

    def explained(self, error: OSError) -> OSError:
        """Turn an error that pyarrow met while it read Parquet into one that says what to do."""
        return error

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Return the size of a file in bytes. Raises FileNotFoundError."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Read a whole file. Raises FileNotFoundError."""

    @abstractmethod
    def write(self, path: str, content: bytes) -> None:
        """Replace the file; creates its folders."""

    @abstractmethod
    def write_whole(self, path: str, content: bytes) -> None:
        """Replace the file in one step: a reader, and a process that is killed, sees or leaves all of the old content or all of
        the new. Only `sync` makes it survive a power cut."""

    @abstractmethod
    def replace(self, path: str, content: bytes) -> None:
        """Replace the file atomically: even after a power cut a reader sees all of the old content or all of the new."""

    @abstractmethod
    def read_versioned(self, path: str) -> Versioned:
        """Read a small file for `put_if`."""

    @abstractmethod
    def put_if(self, path: str, content: bytes, before: Versioned) -> None:
        """Replace the file atomically if it is still as it was `before`. Raises WriteConflict when it is not.

        Without conditional writes (a local path, or a store that has none) nothing is compared, so the callers' lock counts.
        """

    @abstractmethod
    def sync(self, paths: Iterable[str]) -> None:
        """Flush the files, and the folders that lead to them, so that they survive a power cut.

        Only on a local or mounted file system; an object store keeps what it has acknowledged.
        """

    @abstractmethod
    def open_output(self, path: str, ready: Callable[[], object] | None = None) -> IO[bytes]:
        """Open a stream to a new file; creates its folders. Closing it completes the file, also after an error of the caller's.

        Whatever must precede the file, `ready` waits for. It is called before anything of the file is on the storage.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    @abstractmethod
    def names(self, folder: str) -> tuple[str, ...]:
        """List the names of files and folders directly below `folder`, sorted; empty if the folder does not exist."""

    @abstractmethod
    def files_beside(self, folder: str, excluded: Container[str]) -> list[StoredFile]:
        """List all files below `folder`, in no particular order, except in the `excluded` folders directly below it."""

    @abstractmethod
    def files(self, folder: str) -> list[StoredFile]:
        """List all files below `folder`, at any depth and in no particular order; empty if the folder does not exist."""

    @abstractmethod
    def file(self, path: str) -> StoredFile | None:
        """Return the file's current size and time, or None if it does not exist."""

    @abstractmethod
    def delete_folder(self, folder: str) -> None:
        """Delete a folder and its contents, if it exists."""

    @abstractmethod
    def unfinished_uploads(self, suspected: Iterable[str] = ()) -> list[Upload]:
        """List the files outside .hoodie, and our own below it, whose upload is not completed. Invisible to all readers.

        Of a store that lists no uploads by prefix, such as MinIO, only those of `suspected` paths."""

    @abstractmethod
    def abort_upload(self, upload: Upload) -> bool:
        """Delete what is uploaded; its writer can no longer complete the file. False: the upload has ended already."""

    @property
    @abstractmethod
    def _arrow(self) -> Any:
        """The pyarrow file system."""

    @abstractmethod
    def _absolute(self, path: str) -> str:
        """The path in that file system."""

    def parquet_footer(self, path: str) -> pq.FileMetaData:
        """Read the schema and statistics of a Parquet file, without its rows."""
        return pq.read_metadata(self._absolute(path), filesystem=self._arrow)

    def parquet_batches(self, path: str, columns: Sequence[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
        """Read a Parquet file in batches of at most `rows`; with `columns` None, all columns."""
        names = None if columns is None else [*columns]
        # Not as a dataset, which would add columns from the path.
        with self._arrow.open_input_file(self._absolute(path)) as file:
            yield from pq.ParquetFile(file).iter_batches(rows, columns=names)

    def parquet_file(self, path: str) -> pq.ParquetFile:
        """Open a Parquet file; the caller closes it. Pages with a checksum are compared with it. Raises FileNotFoundError."""
        return pq.ParquetFile(self._absolute(path), filesystem=self._arrow, page_checksum_verification=True)

    def data_files(self) -> list[StoredFile]:
        """List all files of the table outside .hoodie, in no particular order."""
        return self.files_beside("", {HOODIE})


@contextmanager
def beside(storage: TableStorage, call: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """Make a call to an object store beside those of the block; yields what returns its result, or raises its error. On a file
    system, which answers at once, that makes the call."""
    if storage.is_local:
        yield call
        return
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call).result


@contextmanager
def reaching(storage: TableStorage, operation: str) -> Iterator[None]:
    """Raises TableUnreachable for an OSError of the block. `operation` is a verb and its object: `read the epoch`."""
    try:
        yield
    except OSError as error:
        raise TableUnreachable(
            f"cannot {operation} of the table at {storage.base_path}: {error}. {advice(error)}"
        ) from error


class Durability:
    """Flushes one table on a local or mounted file system, in an order that survives a power cut: files before the commit that names
    them, the commit before it is reported. Every method raises OSError.

    Neither Hudi nor Spark flushes anything to a local disk. Without this, a completed instant may be on disk after a power cut
    while the files that it names are empty. Damage between Hudi's write and a flush here is found and repaired by
    damaged_instants.py and transaction/timeline_repair.py.
    """

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def sync_files(self, paths: Iterable[str]) -> None:
        """Sync base files, dead-letter files and manifests, and the metadata that marks their folders as partitions."""
        files = {*paths}
        folders = {path.rpartition("/")[0] for path in files if not path.startswith(f"{HOODIE}/")}
        partitions = (partition_metadata_path(folder) for folder in folders)
        self._storage.sync([*files, *(path for path in partitions if self._storage.exists(path))])

    def look(self) -> frozenset[StoredFile]:
        """List the files below .hoodie."""
        return frozenset(self._storage.files_beside(HOODIE, _NOT_KEPT))

    def sync_changes(self, since: frozenset[StoredFile]) -> None:
        """Sync the files below .hoodie that are new or changed since an earlier `look`: instants, the metadata table; and always the
        table's properties, which nothing shows to have been synced. An empty look syncs everything, for when a process may have died before
        it could."""
        changed = self.look() - {file for file in since if file.path not in (PRIMARY, PRIMARY_CHECKSUM)}
        while changed:
            try:
                self._storage.sync(file.path for file in changed)
                return
            except FileNotFoundError:
                # Archival or another writer's cleaning removed a file, which then need not be synced.
                changed &= self.look()


class NoDurability(Durability):
    """Leaves flushing to the operating system: after a power cut the table may need a restore."""

    def sync_files(self, paths: Iterable[str]) -> None:
        return

    def look(self) -> frozenset[StoredFile]:
        return frozenset()

    def sync_changes(self, since: frozenset[StoredFile]) -> None:
        return


def durability_of(storage: TableStorage, fsync: bool) -> Durability:
    # An object store keeps what it has acknowledged.
    return (Durability if fsync and storage.is_local else NoDurability)(storage)
