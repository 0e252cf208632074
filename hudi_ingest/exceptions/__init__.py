"""Every error a user can meet. Each message says what happened, where, why, and what to do next.

Two mix-ins decide what an orchestrator does: `Transient` errors are worth another attempt of the same
step, `Terminal` ones are not (another attempt would meet the same fact again).
"""

from __future__ import annotations

from collections.abc import Sequence


class IngestError(Exception):
    """Base of all errors raised on purpose by hudi_ingest."""


class Transient(IngestError):
    """A later attempt of the same step may succeed."""


class Terminal(IngestError):
    """Another attempt of the same step cannot succeed; a person or a new transaction must act."""


class ConfigError(Terminal):
    """A pipeline file is wrong. Carries all problems at once, one line each."""

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        self.where = where
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(f"{where}: {count}\n{lines}")

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, tuple[str, ...]]]:
        return (ConfigError, (self.where, self.problems))


class KafkaUnreachable(Transient):
    """No broker answered in time."""


class KafkaRefused(Terminal):
    """A broker refused the login or the certificate, or its own certificate is not one to trust."""


class TopicMissing(Terminal):
    """The broker answered, and the topic is not there."""


class OffsetsLost(Terminal):
    """Records between the committed offset and the broker's first offset are gone, or the topic is another one."""


class NoSuchOffset(Terminal):
    """The pipeline has no such topic, the topic no such partition, or the broker does not hold the offset."""


class RegistryUnreachable(Transient):
    """The schema registry did not answer in time, or could not answer just now."""


class RegistryRefused(Terminal):
    """The schema registry refused the login or the certificate, or its own certificate is not one to trust."""


class SchemaMissing(Terminal):
    """The schema registry answered, and has no such subject, or none whose schema a table can have."""


class SchemaRefused(Terminal):
    """The columns of the records are not there to be had, or the table cannot take them over."""


class SchemaOutdated(Terminal):
    """A record has a newer schema than its transaction. The next transaction reads it again, with the new schema."""


class TableMismatch(Terminal):
    """The table path holds a table that this pipeline must not write to."""


class TableUnreachable(Transient):
    """The table's storage could not be read or written just now."""


class ClockBehind(Transient):
    """The Spark driver's clock is behind the newest instant of the table, or behind one that it gave itself."""


class LedgerUnreachable(Transient):
    """The ledger's database could not be read or written just now."""


class BadRecord(Terminal):
    """Records that cannot become rows, under `on_bad_record: fail` or beyond the pipeline's limits."""


class TransformFailed(Terminal):
    """A user's own function is not there, or does not give what the pipeline file declares."""


class WriteIncomplete(Transient):
    """A slice's rows, skips and gaps do not add up to its offset range."""


class EngineLost(Transient):
    """The Spark engine went away while an op was using it."""


class DeadlineExceeded(Terminal):
    """The transaction's timeout has passed; its instant will be rolled back."""


class TransactionInFlight(Transient):
    """Another transaction of the same table is open."""


class PlanOutdated(Terminal):
    """The plan does not start at the table's committed offsets any more."""


class RangeRefused(Terminal):
    """A range of offsets cannot be backfilled or replayed as it was asked for. Carries all problems at once, one line each."""

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        self.where = where
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"{where}:\n{lines}")

    def __reduce__(self) -> tuple[type[RangeRefused], tuple[str, tuple[str, ...]]]:
        return (RangeRefused, (self.where, self.problems))


class Fenced(Terminal):
    """This transaction was superseded: its instant is no longer open."""


class CommitRefused(Terminal):
    """The commit is proved not to have landed."""


class CommitOutcomeUnknown(Transient):
    """The commit may or may not have landed, and the timeline could not be read to find out."""


class NothingToDo(IngestError):
    """There is nothing to ingest now; `reason` says why."""

    def __init__(self, pipeline: str, reason: str) -> None:
        super().__init__(pipeline, reason)
        self.reason = reason

    def __str__(self) -> str:
        pipeline, reason = self.args
        return f"pipeline {pipeline}: {reason}."


class EnvironmentProblem(Terminal):
    """The machine lacks something: Java, disk space, a free port, a reachable registry."""
