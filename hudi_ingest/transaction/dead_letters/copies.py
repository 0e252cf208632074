"""Copies of dead letters in a Kafka topic, with the headers that Kafka Connect gives its own.

They follow the commits: a marker beside the list of dead letters names the newest transactions whose letters the broker has
acknowledged, and the next commit or tick copies whatever the list has after them. A copy may arrive twice if a process dies
between the broker's acknowledgement and the marker, but is never lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, Producer

from hudi_ingest.exceptions import KafkaUnreachable, TableUnreachable
from hudi_ingest.faults import reach
from hudi_ingest.hudi.storage.open import storage_at
from hudi_ingest.hudi.storage.paths import COPIED_LETTERS
from hudi_ingest.hudi.storage.storage import advice
from hudi_ingest.kafka.client_settings import Trouble, confluent_options, unusable_settings
from hudi_ingest.model.checkpoint import LettersHead
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.row_maker import DECODING, TRANSFORMING
from hudi_ingest.transaction.dead_letters.log import DeadLetter, DeadLetterLog, LetterEntry, find_letters_of

CATCH_UP_SECONDS = 20.0
"""Seconds after which the rest is left to the next commit or tick."""

_MOST_BYTES = 1_000_000_000
"""librdkafka's most. Its default of a megabyte would keep back larger letters, and all after them, whatever the topic takes."""
_KEPT = 50
"""How many instants the marker holds: letters would be copied again only if another writer rolled back more transactions with
dead letters than that at once."""
_STAGES = {DECODING: "VALUE_CONVERTER", TRANSFORMING: "TRANSFORMATION"}
_LAST_STAGE = "TASK_PUT"
_EXCEPTION = "org.apache.kafka.connect.errors.DataException"
_CONTEXT = "__connect.errors."


class LetterCopies:
    """Keeps a pipeline's dead-letter topic up to date with its table."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._storage = storage_at(pipeline.table.base_path, pipeline.table.storage_options)
        self._log = DeadLetterLog(self._storage)
        self._seconds = pipeline.source.request_timeout_seconds

    def catch_up(self, head: LettersHead | None) -> int:
        """Copy the letters in the list ending at `head` that are not in the topic yet, and return how many there were.

        Raises KafkaUnreachable, KafkaRefused, TableUnreachable; the next call resumes where this one stopped.
        """
        topic = self._pipeline.dead_letters.topic
        if topic is None or head is None:
            return 0
        copied = self._copied()
        if copied[:1] == (head.instant,):
            return 0
        producer = self._producer()
        began = time.monotonic()
        count = 0
        entries = self._log.entries(head)
        taken = {path for entry in entries for path in entry.taken}
        for entry in behind(entries, copied):
            # Letters that a retry could not turn into rows were copied when they first became letters.
            if entry.kind != TransactionKind.RETRY.value:
                count += self._copy(producer, topic, self._without_deleted(entry, taken))
            reach("letters_copied")
            copied = (entry.instant, *copied)[:_KEPT]
            self._note(copied)
            if time.monotonic() - began > CATCH_UP_SECONDS:
                break
        return count

    def _without_deleted(self, entry: LetterEntry, taken: Set[str]) -> LetterEntry:
        """Leave out files that housekeeping has deleted: their letters became rows before there was a topic."""
        try:
            files = [file for file in entry.files if file.path not in taken or self._storage.exists(file.path)]
        except OSError as error:
            raise TableUnreachable(
                f"dead letters of {entry.transaction_id} in the table at {self._storage.base_path} cannot be read: {error}. "
                f"{advice(error)}"
            ) from error
        return replace(entry, files=tuple(files))

    def _producer(self) -> Producer:
        options = {
            **confluent_options(self._pipeline.source, Trouble()),
            "acks": "all",
            "enable.idempotence": True,
            # Messages given up here must not be produced later by a client that still exists.
            "message.timeout.ms": int(self._seconds * 1000),
            "message.max.bytes": _MOST_BYTES,
            "log_level": 0,
        }
        try:
            return Producer(options)
        except KafkaException as error:
            refusal = unusable_settings(self._pipeline.source, str(error))
            refusal.locate("", "No dead letter was copied; the next commit or tick tries again.")
            raise refusal from error

    def _copy(self, producer: Producer, topic: str, entry: LetterEntry) -> int:
        failed: list[tuple[str, KafkaError]] = []
        count = 0
        for letter in find_letters_of(self._storage, entry):
            self._send(producer, topic, letter, failed)
            count += 1
        unacknowledged = producer.flush(self._seconds)
        if unacknowledged or failed:
            reason = f"{unacknowledged} of {count} were not acknowledged within {self._seconds:g} s"
            remedy = "Check that the topic exists and that this user may write to it."
            if failed:
                place, error = failed[0]
                reason = f"{place}: {error.str()}"
                if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    remedy = f"Raise max.message.bytes of {topic}: a copy is its record and some headers."
            raise KafkaUnreachable(
                f"dead letters of {entry.transaction_id} could not be copied to topic {topic} at "
                f"{self._pipeline.source.bootstrap_servers}: {reason}. The letters are in the table; the next commit or tick "
                f"copies them. {remedy}",
                servers=self._pipeline.source.bootstrap_servers,
                topic=topic,
            )
        return count

    def _send(self, producer: Producer, topic: str, letter: DeadLetter, failed: list[tuple[str, KafkaError]]) -> None:
        place = f"{letter.topic}:{letter.partition}:{letter.offset}"

        def delivered(error: KafkaError | None, message: object) -> None:
            if error is not None:
                failed.append((place, error))

        message = {
            "key": letter.key,
            "value": letter.value,
            "headers": [*letter.headers, *connect_headers(self._pipeline.name, letter)],
            "on_delivery": delivered,
        }
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                producer.produce(topic, **message)
                break
            except BufferError:
                # The queue is full; acknowledged messages make room.
                if time.monotonic() > deadline:
                    failed.append((place, KafkaError(KafkaError._QUEUE_FULL, "the producer's queue is full")))
                    return
                producer.poll(0.1)
            except KafkaException as error:
                failed.append((place, error.args[0]))
                return
        producer.poll(0)

    def _copied(self) -> tuple[str, ...]:
        """The instants of the transactions whose letters were copied last, newest first."""
        try:
            return tuple(self._storage.read(COPIED_LETTERS).decode().split())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._unreachable("read", error) from error

    def _note(self, copied: Sequence[str]) -> None:
        try:
            self._storage.replace(COPIED_LETTERS, "\n".join(copied).encode())
        except OSError as error:
            raise self._unreachable("written", error) from error

    def _unreachable(self, done: str, error: OSError) -> TableUnreachable:
        return TableUnreachable(
            f"{COPIED_LETTERS} of the table at {self._storage.base_path}, which says how far dead letters are copied, cannot be {done}: "
            f"{error}. {advice(error)} The next commit or tick tries again."
        )


def behind(entries: Sequence[LetterEntry], copied: Sequence[str]) -> Sequence[LetterEntry]:
    """The entries, oldest first, after the newest one among the `copied` instants; all of them if none is.

    The order is that of the list: a clock that was set back gives later transactions lower instants.
    """
    instants = [entry.instant for entry in entries]
    # Another writer may have rolled back the newest copied one; then an earlier one says how far the copies go.
    newest = max((number for number, instant in enumerate(instants) if instant in copied), default=-1)
    return entries[newest + 1 :]


def connect_headers(pipeline: str, letter: DeadLetter) -> Iterator[tuple[str, bytes]]:
    """The headers of Kafka Connect's DeadLetterQueueReporter, as far as they apply here."""
    context = {
        "topic": letter.topic,
        "partition": str(letter.partition),
        "offset": str(letter.offset),
        "connector.name": pipeline,
        # There is one task per partition.
        "task.id": str(letter.partition),
        "stage": _STAGES.get(letter.stage, _LAST_STAGE),
        "exception.class.name": _EXCEPTION,
        "exception.message": letter.reason,
    }
    for name, text in context.items():
        yield f"{_CONTEXT}{name}", text.encode()
