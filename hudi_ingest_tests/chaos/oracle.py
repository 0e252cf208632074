"""What a table holds, told by hudi-rs, pyarrow and by what was produced; it shares no code with the product.

Anomalies are named: lost, duplicate, foreign (a row that nobody produced), changed (a column differs from what was produced),
misplaced (a row outside its partition value's folder), torn-read (a reader saw a part of a commit), vanished and repeated (rows
that a reader saw and that are gone, or are there twice), unreadable, stuck (not committed in time), orphan, stale-group,
stale-ledger, stale-instant, dead-letters (more or less of them than bad records), wrong-loss (accepted and not in a commit's
accounting, or the other way round), misordered (a commit of ours sorts before an earlier one).
"""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaException, TopicPartition
from hudi import HudiReadOptions, HudiTable

DEAD_LETTERS = ".hoodie/hudi_ingest/dead_letters"
_FOLDER_COLUMN = "dt"
_RECORD = ["id", "n", "dt", "_kafka_topic", "_kafka_timestamp"]
_PLACE = ["_kafka_partition", "_kafka_offset"]
_META = ["_hoodie_record_key", "_hoodie_partition_path"]
_OURS = ("commit", "replacecommit")
_NOT_OURS = "CLUSTER"
"""The operation of services' replace commits; those of a replay are insertions."""


@dataclass(frozen=True, slots=True)
class Record:
    """What was produced to one offset; `timestamp_ms` is the CreateTime that the producer set."""

    id: str
    n: int
    dt: str
    timestamp_ms: int


Produced = Mapping[tuple[int, int], Record]
"""By partition and offset."""


def rows(base_path: str, columns: list[str]) -> pa.Table:
    batches = HudiTable(base_path).read(HudiReadOptions().with_projection(columns))
    # Of a table without rows there is no batch, either.
    return pa.Table.from_batches(batches) if batches else pa.table({name: pa.nulls(0) for name in columns})


def count(base_path: str) -> int:
    """How many rows a reader sees; 0 while there is no table to be read."""
    if not Path(base_path, ".hoodie", "hoodie.properties").exists():
        return 0
    try:
        return int(rows(base_path, _PLACE).num_rows)
    except Exception:  # noqa: BLE001 - hudi-rs has no error class of its own; the table may be in the making
        return -1


def compare(base_path: str, topic: str, produced: Produced) -> Counter[str]:
    """Anomalies of the table's rows, every column of them, and of the folders that they are in."""
    anomalies = compare_rows(rows(base_path, [*_META, *_PLACE, *_RECORD]), topic, produced)
    anomalies["misplaced"] += sum(_misplaced(Path(base_path, path)) for path in listed_files(base_path))
    return +anomalies


def compare_rows(table: pa.Table, topic: str, produced: Produced) -> Counter[str]:
    """Anomalies of rows that a reader got against what was produced to `topic`."""
    table = table.set_column(
        table.column_names.index("_kafka_timestamp"), "_kafka_timestamp", pc.cast(table["_kafka_timestamp"], _MICROS)
    )
    seen: Counter[tuple[int, int]] = Counter()
    changed = foreign = 0
    for row in table.to_pylist():
        place = row["_kafka_partition"], row["_kafka_offset"]
        seen[place] += 1
        if place not in produced:
            foreign += 1
        elif row != _expected(topic, place, produced[place]):
            changed += 1
    return +Counter(
        lost=sum(1 for place in produced if place not in seen),
        duplicate=sum(times - 1 for times in seen.values()),
        foreign=foreign,
        changed=changed,
    )


_MICROS = pa.timestamp("us", "UTC")


def _expected(topic: str, place: tuple[int, int], record: Record) -> dict[str, Any]:
    """The row that a reader must get, meta columns included."""
    partition, offset = place
    return {
        "_hoodie_record_key": f"{topic}-{partition}-{offset}",
        "_hoodie_partition_path": f"{_FOLDER_COLUMN}={record.dt}",
        "_kafka_partition": partition,
        "_kafka_offset": offset,
        "id": record.id,
        "n": record.n,
        "dt": record.dt,
        "_kafka_topic": topic,
        "_kafka_timestamp": datetime.fromtimestamp(record.timestamp_ms / 1000, timezone.utc),
    }


def _misplaced(path: Path) -> int:
    values = pq.read_table(path, columns=[_FOLDER_COLUMN])[_FOLDER_COLUMN].to_pylist()
    return sum(1 for value in values if f"{_FOLDER_COLUMN}={value}" != path.parent.name)


def listed_files(base_path: str) -> set[str]:
    """Base files that a reader of the table as it is now reads."""
    return {
        f"{slice.partition_path}/{slice.base_file_name}" if slice.partition_path else slice.base_file_name
        for slice in HudiTable(base_path).get_file_slices()
    }


def orphans(base_path: str) -> list[str]:
    """Data files on the disk that the table does not list and no completed instant wrote: replaced ones wait for a cleaning."""
    root = Path(base_path)
    on_disk = {str(path.relative_to(root)) for path in root.rglob("*.parquet") if ".hoodie" not in path.parts}
    unlisted = on_disk - listed_files(base_path)
    if unlisted:
        unlisted -= {path for instant in completed(base_path) for path in instant.files}
    return sorted(unlisted)


def commit_times(base_path: str) -> dict[tuple[int, int], str]:
    """Of each row the instant that it is of, by partition and offset."""
    table = rows(base_path, ["_hoodie_commit_time", *_PLACE])
    places = zip(table["_kafka_partition"].to_pylist(), table["_kafka_offset"].to_pylist(), strict=True)
    return dict(zip(places, table["_hoodie_commit_time"].to_pylist(), strict=True))


def compare_letters(base_path: str, waiting: Sequence[Mapping[str, Any]], bad: Mapping[tuple[int, int], bytes]) -> int:
    """How many letters are not of one bad record, with its bytes, each of one. `waiting` is what `dead-letters show` says; that
    they are in files is seen here. Files may hold more: of records that are rows by now, and of ranges that were replayed."""
    expected = Counter(bad.items())
    shown = Counter(
        ((letter["partition"], letter["offset"]), base64.b64decode(letter["value_base64"])) for letter in waiting
    )
    kept: set[tuple[tuple[int, int], bytes]] = set()
    for path in Path(base_path, DEAD_LETTERS).rglob("*.parquet"):
        columns = pq.read_table(path, columns=["partition", "offset", "value"])
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


def completed(base_path: str) -> list[Instant]:
    """All completed instants of the table, the archived ones too."""
    timeline = Path(base_path, ".hoodie", "timeline")
    active = {}
    for path in timeline.glob("*_*.*"):
        time_, action = path.name.split("_")[0], path.suffix[1:]
        if action in _OURS:
            active[time_] = _instant(time_, action, path.read_bytes())
    return [*active.values(), *(each for each in archived(base_path) if each.time not in active)]


def archived(base_path: str) -> list[Instant]:
    """Completed commits in the archived timeline: parquet files that the newest manifest names."""
    history = Path(base_path, ".hoodie", "timeline", "history")
    version = history / "_version_"
    if not version.exists():
        return []
    files = json.loads((history / f"manifest_{version.read_text().strip()}").read_text())["files"]
    return [
        _instant(row["instantTime"], row["action"], row["metadata"])
        for file in files
        for row in pq.read_table(history / file["fileName"], columns=["instantTime", "action", "metadata"]).to_pylist()
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


def own_instants(base_path: str) -> set[str]:
    """Times of the completed instants that the ledger must have: commits and replays, active or archived."""
    return {instant.time for instant in completed(base_path) if instant.operation != _NOT_OURS}


def resets(base_path: str, pipeline: str) -> set[tuple[int, int, int]]:
    """Jumps over offsets that the commits name: (partition, committed offset, offset at which it goes on)."""
    return {
        (reset["partition"], reset["committed"], reset["restart"])
        for accounting in _accountings(base_path, pipeline)
        for reset in accounting["resets"]
    }


def order_of_commits(base_path: str, pipeline: str) -> list[int]:
    """Sequence numbers of the pipeline's transactions in the order of their instants."""
    return [accounting["sequence"] for accounting in _accountings(base_path, pipeline)]


def _accountings(base_path: str, pipeline: str) -> list[dict[str, Any]]:
    ours = [instant for instant in completed(base_path) if instant.operation != _NOT_OURS]
    texts = [
        instant.extra.get(f"hudi_ingest.transaction.{pipeline}") for instant in sorted(ours, key=lambda it: it.time)
    ]
    return [json.loads(text) for text in texts if text]


def pending_instants(base_path: str) -> set[str]:
    """Instants of any kind, of our own commits and of services, that were begun and are not completed."""
    timeline = Path(base_path, ".hoodie", "timeline")
    done = {path.name.split("_")[0] for path in timeline.glob("*_*.*")}
    return {path.name.split(".")[0] for path in timeline.glob("*.*.requested")} - done


def has_commits(base_path: str) -> bool:
    return any(Path(base_path, ".hoodie", "timeline").glob("*_*.commit"))


def group_offsets(bootstrap_servers: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Next offset of each partition; none while the broker cannot tell, as just after its start."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "log_level": 0})
    try:
        answer = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=20)
        return {each.partition: each.offset for each in answer}
    except KafkaException:
        return {}
    finally:
        consumer.close()


class Reader:
    """Reads the table again and again: a commit's rows must appear all at once, and each offset stays and is there once."""

    def __init__(self, base_path: str, pause_seconds: float = 1.0) -> None:
        self.polls = 0
        self.anomalies: Counter[str] = Counter()
        self._base_path = base_path
        self._pause_seconds = pause_seconds
        self._places: set[tuple[int, int]] = set()
        self._commits: dict[str, int] = {}
        self._unreadable_since: float | None = None
        self._stopping = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"reader of {base_path}", daemon=True)

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
        while not self._stopping.wait(self._pause_seconds):
            with self._looking:
                self._look()
        # A case may end sooner after its last commit than the next look would come.
        with self._looking:
            self._look()

    def _look(self) -> None:
        if not has_commits(self._base_path):
            return
        try:
            table = rows(self._base_path, ["_hoodie_commit_time", *_PLACE])
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
        self.anomalies["vanished"] += len(self._places - places.keys())
        self.anomalies["repeated"] += sum(1 for times in places.values() if times > 1)
        # A replay may take rows from a commit; none gets more after it has appeared.
        self.anomalies["torn-read"] += sum(
            1 for instant, times in self._commits.items() if commits.get(instant, 0) > times
        )
        self.anomalies = +self.anomalies
        self._places = set(places)
        # Of a commit that was replaced whole no row may come back.
        self._commits = dict.fromkeys(self._commits, 0) | dict(commits)
