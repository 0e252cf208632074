"""What a table holds, told by hudi-rs and by what was produced; it shares no code with the product.

Anomalies are named: lost, duplicate, foreign (a row that nobody produced), torn-read (a reader saw a part of a commit),
vanished (rows that a reader saw and that are gone), unreadable, stuck (not committed in time), orphan, stale-group,
stale-ledger, stale-instant, dead-letters (more or less of them than bad records).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaException, TopicPartition
from hudi import HudiReadOptions, HudiTable

DEAD_LETTERS = ".hoodie/hudi_ingest/dead_letters"
_PLACE = ["_hoodie_commit_time", "_kafka_partition", "_kafka_offset", "id"]


def rows(base_path: str) -> pa.Table:
    return pa.Table.from_batches(HudiTable(base_path).read(HudiReadOptions().with_projection(_PLACE)))


def count(base_path: str) -> int:
    """How many rows a reader sees; 0 while there is no table to be read."""
    if not Path(base_path, ".hoodie", "hoodie.properties").exists():
        return 0
    try:
        return int(rows(base_path).num_rows)
    except Exception:  # noqa: BLE001 - hudi-rs has no error class of its own; the table may be in the making
        return -1


def compare(base_path: str, produced: dict[tuple[int, int], str]) -> Counter[str]:
    """Anomalies of the table's rows against (partition, offset) → id."""
    found = rows(base_path)
    places = zip(found["_kafka_partition"].to_pylist(), found["_kafka_offset"].to_pylist(), strict=True)
    seen = Counter(zip(places, found["id"].to_pylist(), strict=True))
    return +Counter(
        lost=sum(1 for each in produced.items() if each not in seen),
        duplicate=sum(times - 1 for times in seen.values()),
        foreign=sum(1 for place, identifier in seen if produced.get(place) != identifier),
    )


def unlisted_files(base_path: str) -> list[str]:
    """Data files on the disk that the table does not list."""
    root = Path(base_path)
    on_disk = {str(each.relative_to(root)) for each in root.rglob("*.parquet") if ".hoodie" not in each.parts}
    listed = {
        f"{each.partition_path}/{each.base_file_name}" if each.partition_path else each.base_file_name
        for each in HudiTable(base_path).get_file_slices()
    }
    return sorted(on_disk - listed)


def compare_letters(base_path: str, bad: set[tuple[int, int]]) -> int:
    """How many dead letters are not of one bad (partition, offset), each of one, in a table that was swept."""
    seen: Counter[tuple[int, int]] = Counter()
    for path in Path(base_path, DEAD_LETTERS).rglob("*.parquet"):
        found = pq.read_table(path, columns=["partition", "offset"])
        seen.update(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))
    expected = Counter(bad)
    return ((expected - seen) + (seen - expected)).total()


def completed_instants(base_path: str) -> set[str]:
    timeline = Path(base_path, ".hoodie", "timeline")
    return {each.name.split("_")[0] for each in timeline.glob("*_*.commit")}


def pending_instants(base_path: str) -> set[str]:
    timeline = Path(base_path, ".hoodie", "timeline")
    begun = {each.name.split(".")[0] for each in timeline.glob("*.commit.requested")}
    return begun - completed_instants(base_path)


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
    """Reads the table again and again: a commit's rows must appear all at once and stay."""

    def __init__(self, base_path: str, pause_seconds: float = 1.0) -> None:
        self.polls = 0
        self.anomalies: Counter[str] = Counter()
        self._base_path = base_path
        self._pause_seconds = pause_seconds
        self._seen: Counter[str] = Counter()
        self._unreadable_since: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reader of {base_path}", daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_seconds):
            self._look()
        # A case may end sooner after its last commit than the next look would come.
        self._look()

    def _look(self) -> None:
        if not completed_instants(self._base_path):
            return
        try:
            found = Counter(rows(self._base_path)["_hoodie_commit_time"].to_pylist())
        except Exception:  # noqa: BLE001 - hudi-rs has no error class of its own
            self._unreadable_since = self._unreadable_since or time.monotonic()
            if time.monotonic() - self._unreadable_since > 60:
                self.anomalies["unreadable"] += 1
                self._unreadable_since = None
            return
        self._unreadable_since = None
        self.polls += 1
        for instant, times in self._seen.items():
            if instant not in found:
                self.anomalies["vanished"] += 1
            elif found[instant] != times:
                self.anomalies["torn-read"] += 1
        self._seen = found
