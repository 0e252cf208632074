"""Every error a user can meet. Each message says what happened, where, why, and what to do next.

Two base classes tell the orchestrator what to do: it retries a step after a `Transient` error, but not after a
`Terminal` one, because another attempt would fail the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from hudi_ingest.exceptions.problems import counted


class IngestError(Exception):
    """Base of all errors that hudi_ingest raises on purpose. Pickling keeps the class, the attributes and the text.

    `topic`, `partition` and `offset` say where in Kafka, as far as that is known. `offset` is the record's, or the first
    one of the records being processed.
    """

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    _operation = ""
    _outcome = ""

    def locate(self, operation: str, outcome: str = "") -> None:
        """Put the failed operation before the message, and the outcome for that operation after it."""
        self._operation, self._outcome = operation, outcome

    def __str__(self) -> str:
        sentence = " ".join(filter(None, (super().__str__(), self._outcome)))
        return f"{self._operation}: {sentence}" if self._operation else sentence

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (type(self), self.args, self.__dict__))


def _restored(kind: type[IngestError], args: tuple[object, ...], attributes: dict[str, object]) -> IngestError:
    # Skips __init__, which takes facts, not the message built from them.
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


@contextmanager
def concerning(topic: str, partition: int, offset: int | None = None) -> Iterator[None]:
    """Add this place in Kafka to errors raised inside, unless they already have one."""
    try:
        yield
    except IngestError as error:
        if error.topic is None:
            error.topic, error.partition, error.offset = topic, partition, offset
        raise


class Transient(IngestError):
    """A later attempt of the same step may succeed."""


class Terminal(IngestError):
    """Another attempt of the same step cannot succeed; it takes a person or a new transaction."""


class ConfigError(Terminal):
    """A pipeline file is invalid. Lists all problems at once, one per line."""

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        self.where = where
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"{where}: {counted(len(self.problems), 'problem')}\n{lines}")


class NoSuchPipeline(ConfigError):
    """No pipeline file has this name."""


class FileExists(Terminal):
    """There is a pipeline file in the place of a new one."""


class FileChanged(Terminal):
    """A pipeline file is not what it was when a change of it was made."""


class FileNotWritable(Terminal):
    """A pipeline file cannot be written or deleted."""


class _AtKafka(IngestError):
    """`servers`: the bootstrap servers that were asked, as far as known, beside the place in Kafka."""

    servers: str | None = None

    def __init__(
        self,
        message: str,
        *,
        servers: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.servers = servers
        self.topic, self.partition, self.offset = topic, partition, offset


class KafkaUnreachable(_AtKafka, Transient):
    """No broker answered in time."""


class LeaderMissing(KafkaUnreachable):
    """The broker answered, but a partition has no leader that knows its offsets."""


class KafkaRefused(_AtKafka, Terminal):
    """A broker refused the login or the client certificate, or its own certificate is not trusted."""


class TopicMissing(Terminal):
    """The broker answered, but the topic does not exist."""


class OffsetsLost(_AtKafka, Terminal):
    """Records between the committed offset and the broker's first offset are gone, or the topic was recreated."""


class LogTruncated(OffsetsLost):
    """The broker cut a partition's log before the committed offset: other records have the offsets of some that were read.
    `diverges_at`: where the logs part, if that is known."""

    diverges_at: int | None = None


class NoSuchOffset(_AtKafka, Terminal):
    """The pipeline has no such topic, the topic has no such partition, or the broker does not have the offset."""


class _AtRegistry(IngestError):
    """`url`: the registry's; `subject` or `schema_id`: what it was asked for; `status`: the HTTP status of its answer."""

    url: str | None = None
    subject: str | None = None
    schema_id: int | None = None
    status: int | None = None

    def __init__(
        self,
        message: str,
        *,
        url: str | None = None,
        subject: str | None = None,
        schema_id: int | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.url, self.subject, self.schema_id, self.status = url, subject, schema_id, status


class RegistryUnreachable(_AtRegistry, Transient):
    """The schema registry did not answer in time, or is temporarily unable to."""


class RegistryRefused(_AtRegistry, Terminal):
    """The schema registry refused the login or the client certificate, or its own certificate is not trusted."""


class SchemaMissing(_AtRegistry, Terminal):
    """The schema registry answered, but has no such subject, or no schema that a table can have."""


class SchemaRefused(Terminal):
    """The records' columns cannot be determined, the table cannot adopt them, or no record has a field for any of them."""


class SchemaNotApproved(SchemaRefused):
    """The table's columns would change, and that is not approved."""

    def __init__(self, *, pipeline: str, origin: str, changes: Sequence[str], fingerprint: str) -> None:
        self.pipeline = pipeline
        self.origin = origin
        self.changes = tuple(changes)
        self.fingerprint = fingerprint
        lines = "\n".join(f"  - {change}" for change in changes)
        super().__init__(
            f"pipeline {pipeline}: the columns of its records, {origin}, would change the table, and table.on_schema_change is "
            f"refuse:\n{lines}\nNothing was written. Approve this change with `hudi-ingest approve-schema {pipeline} "
            f"--fingerprint {fingerprint}`, undo it where it was made, or set table.on_schema_change to ignore."
        )


class SchemaOutdated(Terminal):
    """A record has a newer schema than its transaction. The next transaction reads it again with the new schema.

    `changes`: what the columns lack. Of a registered schema: its id, and the subjects looked up when the transaction began. Of a
    schema in the record itself: its `columns`, as the JSON of a Spark StructType.
    """

    def __init__(
        self, *, changes: Sequence[str], schema_id: int | None = None, subjects: str = "", columns: str = ""
    ) -> None:
        self.schema_id = schema_id
        self.subjects = subjects
        self.changes = tuple(changes)
        self.columns = columns
        if schema_id is None:
            super().__init__(
                f"a record brings a schema that neither the table nor the newest records had when the transaction began: "
                f"{'; '.join(changes)}. Nothing is visible; the next transaction reads the same offsets, and begins with this schema "
                "as table.on_schema_change says."
            )
            return
        super().__init__(
            f"a record was written with schema id {schema_id}, which was not registered under {subjects} when the "
            f"transaction began, and the transaction's columns do not fit it: {'; '.join(changes)}. Nothing is visible; the "
            "next transaction reads the same offsets with the new schema. If it fails the same way, the id belongs to "
            "another subject: correct `subject` in source.schema_registry, or declare table.schema."
        )


class TableMismatch(Terminal):
    """The table at this path is not one that this pipeline may write to."""


class TableUnreachable(Transient):
    """The table's storage is temporarily unreadable or unwritable."""


class TableMissing(Terminal):
    """There is no table at the path yet."""


class QueryFailed(Terminal):
    """A query of a table is wrong, or takes more than it may."""


class CatalogNotSynced(Transient):
    """The table's newest commits are not in its catalog yet. The commits themselves are not affected."""


class ClockBehind(Transient):
    """The Spark driver's clock is behind the newest instant of the table, or behind one that the driver itself created."""


class LedgerUnreachable(Transient):
    """The ledger's database is temporarily unreadable or unwritable."""


class RefusedRecord(Protocol):
    """A record that cannot become a row. Its text contains all of these fields."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def field(self) -> str: ...
    @property
    def expected(self) -> str: ...
    @property
    def found(self) -> str: ...


class BadRecord(Terminal):
    """Records that cannot become rows, under `on_bad_record: fail` or beyond the pipeline's limits.

    `records`: the first few of `count`; `topic`, `partition`, `offset`, `field`, `expected` and `found` describe the
    very first one.
    """

    field: str | None = None
    expected: str | None = None
    found: str | None = None

    def __init__(
        self, *, pipeline: str, limit: str, count: int, records: Sequence[RefusedRecord], alternative: str
    ) -> None:
        self.pipeline = pipeline
        self.limit = limit
        self.count = count
        self.records = tuple(records)
        self.alternative = alternative
        for first in self.records[:1]:
            self.topic, self.partition, self.offset = first.topic, first.partition, first.offset
            self.field, self.expected, self.found = first.field, first.expected, first.found
        super().__init__(
            f"pipeline {pipeline}: {limit}, so the transaction is refused and none of it is visible:\n"
            + "\n".join(f"  - {text}" for text in _texts(self.records))
            + ("" if count <= len(self.records) else f"\n  - and {count - len(self.records)} more")
            + "\nCorrect the producer and the records, or change table.schema, transforms or table.partition_by to fit them"
            + f", or {alternative}. Then try again: Materialize on the asset's page, or `hudi-ingest run {pipeline}`."
        )


_LONG = 80
"""Characters from which on a sentence about a record is not repeated for the next one."""


def _texts(records: Sequence[RefusedRecord]) -> Iterator[str]:
    before = ""
    for record in records:
        text = str(record)
        is_same = len(record.expected) > _LONG and record.expected == before
        yield text.replace(f"expected {record.expected}", "expected the same") if is_same else text
        before = record.expected


class ExpectationViolated(Terminal):
    """A record violates an expectation whose severity is fail."""


class TransformFailed(Terminal):
    """A user-defined function is missing, or does not return what the pipeline file declares."""


class WriteIncomplete(Transient):
    """A slice's rows, skips and gaps do not add up to its offset range."""


class EngineLost(Transient):
    """The Spark engine went away while an op was using it."""


class DeadlineExceeded(Terminal):
    """The transaction's timeout has passed; its instant will be rolled back."""


class TransactionInFlight(Transient):
    """Another transaction of the same table is open."""


class PlanOutdated(Terminal):
    """The plan no longer starts at the table's committed offsets."""


class ServiceRefused(Terminal):
    """The table's mode does not have the table service that was asked for."""


class NoSuchSavepoint(ServiceRefused):
    """The table has no savepoint of this instant."""


class RestoreUnfinished(Terminal):
    """A restore to a savepoint was cut short, so the table is in an intermediate state."""


class RangeRefused(Terminal):
    """A range of offsets cannot be backfilled or replayed as requested. Lists all problems at once, one per line."""

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        self.where = where
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"{where}:\n{lines}")


class Fenced(Terminal):
    """The transaction was superseded: its instant is no longer open, or its epoch is over.

    `transaction_id` and `instant` are of the transaction that must not continue, as far as known.
    """

    transaction_id: str | None = None
    instant: str | None = None

    def __init__(self, message: str, *, transaction_id: str | None = None, instant: str | None = None) -> None:
        super().__init__(message)
        self.transaction_id, self.instant = transaction_id, instant


class CommitRefused(Terminal):
    """The commit provably did not land."""


class CommitOutcomeUnknown(Transient):
    """The commit may or may not have landed, and the timeline could not be read to find out which."""


class NothingToDo(IngestError):
    """There is nothing to ingest right now; `reason` says why."""

    def __init__(self, pipeline: str, reason: str) -> None:
        super().__init__(f"pipeline {pipeline}: {reason}.")
        self.pipeline = pipeline
        self.reason = reason


class ChannelFailed(Transient):
    """An alert could not be sent to a channel of alerts.yaml."""

    def __init__(self, channel: str, reason: str) -> None:
        self.channel = channel
        super().__init__(
            f"the channel {channel} of alerts.yaml was not reached: {reason}. The next tick tries again; `hudi-ingest test-alerts` "
            "tries at once."
        )


class EnvironmentProblem(Terminal):
    """The machine lacks something: Java, disk space, a free port, a reachable registry."""
