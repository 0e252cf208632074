"""Copies of dead letters, sent to librdkafka's mock cluster: which count as copied, and where the next call resumes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Place

from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import COPIED_LETTERS
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead
from hudi_ingest.model.offsets import Slice, TopicVersion
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import LetterFile, SliceReport
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.dead_letters import copies
from hudi_ingest.transaction.dead_letters.copies import LetterCopies
from hudi_ingest.transaction.dead_letters.letter_file import HEADERS, LETTERS
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog
from hudi_ingest_tests.support.pipeline_files import Write, load


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    broker = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    (found,) = broker.list_topics(timeout=120).brokers.values()
    yield f"{found.host}:{found.port}"


@pytest.fixture
def pipeline(address: str, write: Write, tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    return load(
        write,
        source__bootstrap_servers=address,
        table__base_path=str(tmp_path / "table"),
        on_bad_record="dead_letter",
        dead_letters__topic=f"letters-{abs(hash(request.node.name))}",
    )


def letters(storage: LocalStorage, *commits: range) -> LettersHead:
    """The list after commits with dead letters at these offsets."""
    log, before, head = DeadLetterLog(storage), None, None
    for number, offsets in enumerate(commits, 1):
        table = pa.Table.from_pydict(
            {
                **{each.name: [""] * len(offsets) for each in LETTERS if each.type == pa.string()},
                "topic": ["orders"] * len(offsets),
                "partition": [0] * len(offsets),
                "offset": [*offsets],
                "timestamp": pa.array([0] * len(offsets), LETTERS.field("timestamp").type),
                "key": [None] * len(offsets),
                "value": [str(offset).encode() for offset in offsets],
                "headers": pa.nulls(len(offsets), HEADERS),
                "expected": ["a JSON object"] * len(offsets),
            },
            schema=LETTERS,
        )
        path = f".hoodie/hudi_ingest/dead_letters/{number:017}/0-{offsets[0]}.parquet"
        with storage.open_output(path) as stream:
            pq.write_table(table, stream)
        slice_ = Slice("orders", 0, offsets[0], offsets[-1] + 1)
        plan = IngestPlan("orders", f"t-{number}", number, (slice_,), topics={"orders": TopicVersion("id")})
        file = LetterFile(path, len(offsets), storage.size(path))
        report = SliceReport(slice_, 0, rejected=len(offsets), letters=(file,))
        head = log.extend(before, plan, f"{number:017}", [report], withheld=False)
        before = Checkpoint(number, plan.transaction_id, {}, letters=head)
    assert head is not None
    return head


def copied(pipeline: Pipeline, count: int) -> list[bytes]:
    """The first values of the dead-letter topic."""
    consumer = Consumer({"bootstrap.servers": pipeline.source.bootstrap_servers, "group.id": "test", "log_level": 0})
    try:
        consumer.assign([Place(str(pipeline.dead_letters.topic), partition, 0) for partition in range(4)])
        return sorted(message.value() for message in consumer.consume(count, 60))
    finally:
        consumer.close()


def marker(pipeline: Pipeline) -> list[str]:
    path = Path(pipeline.table.base_path, COPIED_LETTERS)
    return path.read_text().split() if path.exists() else []


def test_p1_each_letter_is_copied_once_and_the_marker_says_how_far(pipeline: Pipeline) -> None:
    storage = LocalStorage(pipeline.table.base_path)
    assert LetterCopies(pipeline).catch_up(letters(storage, range(2))) == 2
    assert LetterCopies(pipeline).catch_up(letters(storage, range(2), range(5, 8))) == 3
    assert LetterCopies(pipeline).catch_up(letters(storage, range(2), range(5, 8))) == 0
    assert copied(pipeline, 5) == [b"0", b"1", b"5", b"6", b"7"]
    assert marker(pipeline) == [f"{2:017}", f"{1:017}"]


class Unanswered:
    """A producer whose broker does not acknowledge `unacknowledged` of the messages, and refuses those with `refused` values."""

    unacknowledged = 0
    refused: tuple[bytes, ...] = ()

    def __init__(self, options: object) -> None:
        self._sent: list[tuple[bytes, Any]] = []

    def produce(self, topic: str, *, value: bytes, on_delivery: Any, **message: Any) -> None:
        self._sent.append((value, on_delivery))

    def poll(self, seconds: float) -> int:
        return 0

    def flush(self, seconds: float) -> int:
        for value, delivered in self._sent[self.unacknowledged :]:
            delivered(KafkaError(KafkaError._MSG_TIMED_OUT) if value in self.refused else None, None)
        self._sent.clear()
        return self.unacknowledged


@pytest.mark.parametrize(
    ("unacknowledged", "refused", "said"),
    [(1, (), "1 of 3 were not acknowledged within"), (0, (b"6",), "orders:0:6: .*timed out")],
)
def test_p1_letters_that_the_broker_did_not_acknowledge_do_not_count_as_copied(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, unacknowledged: int, refused: tuple[bytes, ...], said: str
) -> None:
    head = letters(LocalStorage(pipeline.table.base_path), range(2), range(5, 8))
    monkeypatch.setattr(Unanswered, "unacknowledged", 0)
    monkeypatch.setattr(copies, "Producer", Unanswered)
    monkeypatch.setattr(copies, "CATCH_UP_SECONDS", -1.0)
    assert LetterCopies(pipeline).catch_up(head) == 2, "the rest is left to the next call"
    monkeypatch.setattr(Unanswered, "unacknowledged", unacknowledged)
    monkeypatch.setattr(Unanswered, "refused", refused)
    with pytest.raises(KafkaUnreachable, match=said):
        LetterCopies(pipeline).catch_up(head)
    assert marker(pipeline) == [f"{1:017}"]
    monkeypatch.undo()
    assert LetterCopies(pipeline).catch_up(head) == 3
    assert copied(pipeline, 3) == [b"5", b"6", b"7"]
