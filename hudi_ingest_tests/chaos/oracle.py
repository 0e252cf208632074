"""What a table holds, told by hudi-rs, pyarrow and by what was produced; it shares no code with the product.

Anomalies are named: lost, duplicate, foreign (a row that nobody produced), changed (a column differs from what was produced),
misplaced (a row outside its partition value's folder), torn-read (a reader saw a part of a commit), vanished and repeated (rows
that a reader saw and that are gone, or are there twice), unreadable, stuck (not committed in time), orphan, stale-group,
stale-ledger, stale-instant, dead-letters (more or less of them than bad records), wrong-loss (accepted and not in a commit's
accounting, or the other way round), misordered (a commit of ours sorts before an earlier one), left-over (a marker, a heartbeat
or dead letters of an instant that is over), open-upload (a multipart upload that nobody will complete), out-of-order and untraced
(the steps of transactions in transactions.log break a rule of the simulation, or there are none).
"""

from __future__ import annotations

import base64
import io
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaException, TopicPartition
from hudi import HudiReadOptions, HudiTable

from hudi_ingest_tests.lab.object_store import ObjectStore
from hudi_ingest_tests.support.waiting import wait_for

HOODIE = ".hoodie"
TIMELINE = f"{HOODIE}/timeline"
DEAD_LETTERS = f"{HOODIE}/hudi_ingest/dead_letters"
MARKERS = f"{HOODIE}/.temp"
HEARTBEATS = f"{HOODIE}/.heartbeat"
_HISTORY = f"{TIMELINE}/history"
_COMPLETED = re.compile(r"\d+_\d+\.[a-z]+")
"""The file of a completed instant; while Hudi writes it, its name goes on."""
_FOLDER_COLUMN = "dt"
_RECORD = ["id", "n", "dt", "_kafka_topic", "_kafka_timestamp"]
_PLACE = ["_kafka_partition", "_kafka_offset"]
_META = ["_hoodie_record_key", "_hoodie_partition_path"]
COMPARED = [*_META, *_PLACE, *_RECORD]
_LOOKS = 5
_OURS = ("commit", "deltacommit", "replacecommit")
_NOT_OURS = ("CLUSTER", "COMPACT")
"""Operations of services' commits; those of a replay are insertions or upserts."""
_LOG_FILE = ".log."


@dataclass(frozen=True, slots=True)
class Record:
    """What was produced to one offset; `timestamp_ms` is the CreateTime that the producer set."""

    id: str
    n: int
    dt: str
    timestamp_ms: int


Produced = Mapping[tuple[int, int], Record]
"""By partition and offset."""


@dataclass(frozen=True)
class StoredTable:
    """A table, and how hudi-rs (`options`) and pyarrow (`folder` in its `filesystem`) reach it. Paths are below the table."""

    base_path: str
    folder: str
    filesystem: pafs.FileSystem = field(default_factory=pafs.LocalFileSystem)
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def on_disk(cls, folder: Path | str) -> StoredTable:
        return cls(str(folder), str(folder))

    @classmethod
    def in_store(cls, store: ObjectStore, folder: str) -> StoredTable:
        """`folder` is bucket/key."""
        options = {
            "aws_access_key_id": store.access_key,
            "aws_secret_access_key": store.secret_key,
            "aws_region": store.region,
            "aws_endpoint": store.endpoint,
            "aws_allow_http": "true",
        }
        return cls(f"s3a://{folder}", folder, store.filesystem(), options)

    def hudi(self) -> HudiTable:
        return HudiTable(self.base_path, dict(self.options))

    def exists(self, path: str) -> bool:
        return bool(self.filesystem.get_file_info(f"{self.folder}/{path}").type == pafs.FileType.File)

    def read(self, path: str) -> bytes:
        with self.filesystem.open_input_stream(f"{self.folder}/{path}") as stream:
            return bytes(stream.read())

    def read_parquet(self, path: str, columns: list[str]) -> pa.Table:
        # Not as a dataset, which would add columns from the path.
        with self.filesystem.open_input_file(f"{self.folder}/{path}") as file:
            return pq.ParquetFile(file).read(columns)

    def names(self, folder: str) -> list[str]:
        """Names of the files directly below `folder`."""
        return [PurePosixPath(info.path).name for info in self._listed(folder, recursive=False)]

    def files(self, folder: str = "") -> dict[str, datetime]:
        """Paths of all files below `folder`, with the times at which they were written."""
        return {info.path.removeprefix(f"{self.folder}/"): info.mtime for info in self._listed(folder, recursive=True)}

    def _listed(self, folder: str, *, recursive: bool) -> list[pafs.FileInfo]:
        place = f"{self.folder}/{folder}".rstrip("/")
        found = self.filesystem.get_file_info(pafs.FileSelector(place, allow_not_found=True, recursive=recursive))
        return [info for info in found if info.type == pafs.FileType.File]


def rows(stored: StoredTable, columns: list[str]) -> pa.Table:
    batches = stored.hudi().read(HudiReadOptions().with_projection(columns))
    # Of a table without rows there is no batch, either.
    return pa.Table.from_batches(batches) if batches else pa.table({name: pa.nulls(0) for name in columns})


def count(stored: StoredTable) -> int:
    """How many rows a reader sees; 0 while there is no table to be read."""
    if not stored.exists(f"{HOODIE}/hoodie.properties"):
        return 0
    try:
        return int(rows(stored, _PLACE).num_rows)
    except Exception:  # noqa: BLE001 - hudi-rs has no error class of its own; the table may be in the making
        return -1


def compare_rows(table: pa.Table, topic: str, produced: Produced) -> Counter[str]:
    """Anomalies of rows that a reader got against what was produced to `topic`."""
    seen: Counter[tuple[int, int]] = Counter()
    changed = foreign = 0
    for row in comparable(table):
        place = row["_kafka_partition"], row["_kafka_offset"]
        seen[place] += 1
        if place not in produced:
            foreign += 1
        elif row != expected_row(topic, place, produced[place]):
            changed += 1
    return +Counter(
        lost=sum(1 for place in produced if place not in seen),
        duplicate=sum(times - 1 for times in seen.values()),
        foreign=foreign,
        changed=changed,
    )


def comparable(table: pa.Table) -> list[dict[str, Any]]:
    """The rows, with times of one type whoever read them."""
    times = pc.cast(table["_kafka_timestamp"], pa.timestamp("us", "UTC"))
    rows_: list[dict[str, Any]] = table.set_column(
        table.column_names.index("_kafka_timestamp"), "_kafka_timestamp", times
    ).to_pylist()
    return rows_


def expected_row(topic: str, place: tuple[int, int], record: Record, record_key: str | None = None) -> dict[str, Any]:
    """The row that a reader must get, meta columns included. An append table's record key is the place."""
    partition, offset = place
    return {
        "_hoodie_record_key": record_key or f"{topic}-{partition}-{offset}",
        "_hoodie_partition_path": f"{_FOLDER_COLUMN}={record.dt}",
        "_kafka_partition": partition,
        "_kafka_offset": offset,
        "id": record.id,
        "n": record.n,
        "dt": record.dt,
        "_kafka_topic": topic,
        "_kafka_timestamp": datetime.fromtimestamp(record.timestamp_ms / 1000, timezone.utc),
    }


def places(stored: StoredTable) -> set[tuple[int, int]]:
    """Partition and offset of each row; empty while there is no table to be read."""
    if count(stored) <= 0:
        return set()
    table = rows(stored, _PLACE)
    return set(zip(table["_kafka_partition"].to_pylist(), table["_kafka_offset"].to_pylist(), strict=True))


def misplaced(stored: StoredTable) -> Counter[str]:
    """Rows of base files in another folder than their partition value's."""
    return +Counter(misplaced=sum(_misplaced(stored, path) for path in listed_files(stored)))


def _misplaced(stored: StoredTable, path: str) -> int:
    values = stored.read_parquet(path, [_FOLDER_COLUMN])[_FOLDER_COLUMN].to_pylist()
    return sum(1 for value in values if f"{_FOLDER_COLUMN}={value}" != PurePosixPath(path).parent.name)


def listed_files(stored: StoredTable) -> set[str]:
    """Base files that a reader of the table as it is now reads."""
    return {
        f"{slice.partition_path}/{slice.base_file_name}" if slice.partition_path else slice.base_file_name
        for slice in stored.hudi().get_file_slices()
    }


def orphans(stored: StoredTable) -> list[str]:
    """Data files that the table does not list and no completed instant wrote: replaced ones wait for a cleaning."""
    data = {path for path in stored.files() if _is_data(path) and not path.startswith(f"{HOODIE}/")}
    unlisted = data - listed_files(stored)
    if unlisted:
        unlisted -= {path for instant in completed(stored) for path in instant.files}
    return sorted(unlisted)


def _is_data(path: str) -> bool:
    return path.endswith(".parquet") or _LOG_FILE in PurePosixPath(path).name


def left_overs(stored: StoredTable) -> list[str]:
    """Markers and heartbeats of instants that are not pending, and dead letters of instants that are not completed."""
    pending, done = pending_instants(stored), {instant.time for instant in completed(stored)}
    found = []
    for folder in (MARKERS, HEARTBEATS, DEAD_LETTERS):
        for path in stored.files(folder):
            instant = path.removeprefix(f"{folder}/").split("/")[0]
            if instant.isdigit() and instant not in (done | pending if folder == DEAD_LETTERS else pending):
                found.append(path)
    return sorted(found)


def commit_times(stored: StoredTable) -> dict[tuple[int, int], str]:
    """Of each row the instant that it is of, by partition and offset."""
    table = rows(stored, ["_hoodie_commit_time", *_PLACE])
    places = zip(table["_kafka_partition"].to_pylist(), table["_kafka_offset"].to_pylist(), strict=True)
    return dict(zip(places, table["_hoodie_commit_time"].to_pylist(), strict=True))


def compare_letters(
    stored: StoredTable, waiting: Sequence[Mapping[str, Any]], bad: Mapping[tuple[int, int], bytes]
) -> int:
    """How many letters are not of one bad record, with its bytes, each of one. `waiting` is what `dead-letters show` says; that
    they are in files is seen here. Files may hold more: of records that are rows by now, and of ranges that were replayed."""
    expected = Counter(bad.items())
    shown = Counter(
        ((letter["partition"], letter["offset"]), base64.b64decode(letter["value_base64"])) for letter in waiting
    )
    kept: set[tuple[tuple[int, int], bytes]] = set()
    for path in stored.files(DEAD_LETTERS):
        if not path.endswith(".parquet"):
            continue
        columns = stored.read_parquet(path, ["partition", "offset", "value"])
        places = zip(columns["partition"].to_pylist(), columns["offset"].to_pylist(), strict=True)
        kept.update(zip(places, columns["value"].to_pylist(), strict=True))
    return ((expected - shown) + (shown - expected)).total() + len(expected.keys() - kept)


@dataclass(frozen=True, slots=True)
class Instant:
    """A completed instant; `operation` and `files` (paths below the table) are what its metadata says, if it is a commit."""

    time: str
    action: str
    operation: str
    files: tuple[str, ...]
    extra: Mapping[str, str] = field(default_factory=dict)


def completed(stored: StoredTable) -> list[Instant]:
    """All completed instants of the table, the archived ones too."""
    for _ in range(_LOOKS):
        # A commit may archive instants between our listing and reading them.
        with suppress(FileNotFoundError):
            return _completed(stored)
    return _completed(stored)


def _completed(stored: StoredTable) -> list[Instant]:
    active = {}
    for name in _completed_names(stored):
        time_, action = name.split("_")[0], PurePosixPath(name).suffix[1:]
        if action in _OURS:
            active[time_] = _instant(time_, action, stored.read(f"{TIMELINE}/{name}"))
    return [*active.values(), *(instant for instant in archived(stored) if instant.time not in active)]


def _completed_names(stored: StoredTable) -> list[str]:
    return [name for name in stored.names(TIMELINE) if _COMPLETED.fullmatch(name)]


def archived(stored: StoredTable) -> list[Instant]:
    """Completed commits in the archived timeline: parquet files that the newest manifest names."""
    version = f"{_HISTORY}/_version_"
    if not stored.exists(version):
        return []
    files = json.loads(stored.read(f"{_HISTORY}/manifest_{stored.read(version).decode().strip()}"))["files"]
    columns = ["instantTime", "action", "metadata"]
    return [
        _instant(row["instantTime"], row["action"], row["metadata"])
        for file in files
        for row in stored.read_parquet(f"{_HISTORY}/{file['fileName']}", columns).to_pylist()
        if row["action"] in _OURS
    ]


def _instant(time_: str, action: str, metadata: bytes | None) -> Instant:
    said: dict[str, Any] = next(iter(_avro(metadata)), {}) if metadata else {}
    stats = [stat for written in (said.get("partitionToWriteStats") or {}).values() for stat in written]
    return Instant(
        time_,
        action,
        said.get("operationType") or "",
        tuple(stat["path"] for stat in stats),
        said.get("extraMetadata") or {},
    )


def _avro(data: bytes) -> Iterator[Any]:
    return iter(fastavro.reader(io.BytesIO(data)))


def own_instants(stored: StoredTable) -> set[str]:
    """Times of the completed instants that the ledger must have: commits and replays, active or archived."""
    return {instant.time for instant in completed(stored) if instant.operation not in _NOT_OURS}


def resets(stored: StoredTable, pipeline: str) -> set[tuple[int, int, int]]:
    """Jumps over offsets that the commits name: (partition, committed offset, offset at which it goes on)."""
    return {
        (reset["partition"], reset["committed"], reset["restart"])
        for accounting in _accountings(stored, pipeline)
        for reset in accounting["resets"]
    }


def order_of_commits(stored: StoredTable, pipeline: str) -> list[int]:
    """Sequence numbers of the pipeline's transactions in the order of their instants."""
    return [accounting["sequence"] for accounting in _accountings(stored, pipeline)]


def _accountings(stored: StoredTable, pipeline: str) -> list[dict[str, Any]]:
    ours = [instant for instant in completed(stored) if instant.operation not in _NOT_OURS]
    texts = [
        instant.extra.get(f"hudi_ingest.transaction.{pipeline}") for instant in sorted(ours, key=lambda it: it.time)
    ]
    return [json.loads(text) for text in texts if text]


def pending_instants(stored: StoredTable) -> set[str]:
    """Instants of any kind, of our own commits and of services, that were begun and are not completed."""
    begun = {name.split(".")[0] for name in stored.names(TIMELINE) if name.endswith(".requested")}
    return begun - {name.split("_")[0] for name in _completed_names(stored)}


def left_pending(stored: StoredTable, running: Callable[[], object], seconds: float) -> set[str]:
    """Pending instants once no run is `running`: a run's rows are in the table while it still cleans, and that instant is no stale
    one. Raises NotInTime."""
    wait_for(lambda: not running(), f"the runs on {stored.base_path} have ended", seconds, pause_seconds=0.1)
    return pending_instants(stored)


def pending_merges(stored: StoredTable) -> set[str]:
    """Names of the inflight files of clusterings and compactions."""
    return {name for name in stored.names(TIMELINE) if name.endswith((".clustering.inflight", ".compaction.inflight"))}


def has_commits(stored: StoredTable) -> bool:
    return any(name.endswith((".commit", ".deltacommit")) for name in _completed_names(stored))


def group_offsets(bootstrap_servers: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Next offset of each partition; none while the broker cannot tell, as just after its start."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "log_level": 0})
    try:
        answer = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=60)
        return {each.partition: each.offset for each in answer}
    except KafkaException:
        return {}
    finally:
        consumer.close()


class Reader:
    """Reads the table again and again: a commit's rows must appear all at once, and each offset stays and is there once."""

    def __init__(self, stored: StoredTable, pause_seconds: float = 1.0) -> None:
        self.polls = 0
        self.anomalies: Counter[str] = Counter()
        self._stored = stored
        self._pause_seconds = pause_seconds
        self._places: set[tuple[int, int]] = set()
        self._commits: dict[str, int] = {}
        self._unreadable_since: float | None = None
        self._stopping = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"reader of {stored.base_path}", daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def forget(self) -> None:
        """What was seen may be gone."""
        with self._looking:
            self._places, self._commits = set(), {}

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self) -> None:
        took = 0.0
        # Reading a store takes a while: it must not keep the machine busy.
        while not self._stopping.wait(max(self._pause_seconds, took)):
            began = time.monotonic()
            with self._looking:
                self._look()
            took = time.monotonic() - began
        # A case may end sooner after its last commit than the next look would come.
        with self._looking:
            self._look()

    def _look(self) -> None:
        if not has_commits(self._stored):
            return
        try:
            table = rows(self._stored, ["_hoodie_commit_time", *_PLACE])
        except Exception:  # noqa: BLE001 - hudi-rs has no error class of its own
            self._unreadable_since = self._unreadable_since or time.monotonic()
            if time.monotonic() - self._unreadable_since > 60:
                self.anomalies["unreadable"] += 1
                self._unreadable_since = None
            return
        self._unreadable_since = None
        self.polls += 1
        places = Counter(zip(table["_kafka_partition"].to_pylist(), table["_kafka_offset"].to_pylist(), strict=True))
        commits = Counter(table["_hoodie_commit_time"].to_pylist())
        self.anomalies["repeated"] += sum(1 for times in places.values() if times > 1)
        self._judge_places(places)
        # A replay may take rows from a commit; none gets more after it has appeared.
        self.anomalies["torn-read"] += sum(
            1 for instant, times in self._commits.items() if commits.get(instant, 0) > times
        )
        self.anomalies = +self.anomalies
        # Of a commit that was replaced whole no row may come back.
        self._commits = dict.fromkeys(self._commits, 0) | dict(commits)

    def _judge_places(self, places: Counter[tuple[int, int]]) -> None:
        self.anomalies["vanished"] += len(self._places - places.keys())
        self._places = set(places)
