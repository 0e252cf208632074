"""The bodies and answers of the REST API. What a command prints as JSON is answered in the same shape."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.operations.requests.asked_ranges import Names, Selection, iso_time, select
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.rest.problems import PlacedProblem

PIPELINE_EXAMPLE = """\
name: payments
source:
  bootstrap_servers: ${KAFKA_BOOTSTRAP_SERVERS}
  topics: [payments]
table:
  base_path: /data/payments
  schema: id string not null, paid_at timestamp, amount decimal(12,2)
"""
Topic = Annotated[str, StringConstraints(min_length=1, max_length=249)]
Partition = Annotated[int, Field(ge=0, examples=[0])]
Offset = Annotated[int, Field(ge=0)]

Time = Annotated[AwareDatetime, BeforeValidator(iso_time)]


class Body(BaseModel):
    """A request's body: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class PipelineText(Body):
    """A pipeline file: its text, which is stored as it is, comments too, or its settings."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": PIPELINE_EXAMPLE}]})

    text: str | None = Field(default=None, description="YAML.")
    settings: dict[str, Any] | None = Field(default=None, description="Instead of `text`; stored as YAML.")

    @model_validator(mode="after")
    def _either(self) -> PipelineText:
        if (self.text is None) == (self.settings is None):
            raise ValueError("give either text or settings")
        return self


class PipelineSummary(BaseModel):
    """A pipeline, or a pipeline file that cannot be loaded."""

    name: str | None = Field(description="None if the file is so broken that it has none.", examples=["payments"])
    file: str = Field(description="Name of the file in the pipelines folder.", examples=["payments.yaml"])
    state: Literal["on", "paused", "broken", "waiting"] = Field(
        description="Whether the coordinator begins its transactions; `broken`: the file cannot be loaded; `waiting`: it makes a pipeline "
        "of each topic, and there is none yet."
    )
    enabled: bool | None = Field(default=None, description="The default in the file, until the pipeline is switched.")
    topics: list[str] = Field(default=[], examples=[["payments"]])
    topics_pattern: str | None = Field(default=None, description="Instead of `topics`: all whose names match.")
    format: str | None = Field(default=None, examples=["json"])
    base_path: str | None = Field(default=None, examples=["/data/payments"])
    mode: str | None = Field(default=None, examples=["append"])
    problems: list[PlacedProblem] = Field(default=[], description="Why the file is broken.")


class PipelineFile(BaseModel):
    """A pipeline file as it is stored. Secrets that are written into it are masked; references to secrets are not filled in."""

    name: str = Field(examples=["payments"])
    file: str = Field(examples=["payments.yaml"])
    version: str = Field(description="The ETag without its quotes: give it back as `If-Match` to change the file.")
    text: str | None = Field(description="None if it is not YAML, because then it is unknown where its secrets are.")
    settings: dict[str, Any] = Field(description="The text's values as written, without defaults.")
    masked: list[str] = Field(default=[], description="Keys whose secrets are masked.")
    problems: list[PlacedProblem] = Field(default=[], description="Why it cannot be loaded, if so.")
    warnings: list[str] = Field(default=[], description="What may be wrong nevertheless.")


class ValidationResult(BaseModel):
    """What is wrong with a pipeline file, all at once."""

    valid: bool
    name: str | None = Field(default=None, examples=["payments"])
    problems: list[PlacedProblem] = []
    warnings: list[str] = []
    columns: str | None = Field(default=None, description="Where the table's columns come from.")


class Switched(BaseModel):
    """Whether the coordinator begins a pipeline's transactions."""

    pipeline: str
    on: bool
    changed: bool = Field(description="False if it was so already.")


class PartitionState(BaseModel):
    """One Kafka partition."""

    topic: str
    partition: int
    committed: int | None = Field(description="The next offset to read; None before the first commit.")
    end: int | None = Field(
        description="Where the broker's records end; None if it no longer has the partition, or the partition has no leader."
    )
    lag: int | None = Field(
        description="Offsets that wait; None while the broker is away, or the partition has no leader."
    )
    undecided: int = Field(
        default=0, description="Offsets after the end that wait until a producer ends its transaction."
    )
    covered: list[tuple[int, int]] | None = Field(description="Ranges of offsets that are in the table.")
    complete_through: datetime | None = Field(
        default=None, description="No record with an earlier Kafka timestamp can still be committed."
    )
    observed_through: datetime | None = Field(
        default=None, description="The greatest Kafka timestamp of a committed record, which proves nothing."
    )


class Loss(BaseModel):
    """Committed offsets that the broker no longer has."""

    model_config = ConfigDict(extra="allow")

    topic: str
    partition: int
    reason: str
    text: str | None = Field(default=None, description="What happened, and what to do.")


class TransactionState(BaseModel):
    """A transaction in the ledger."""

    model_config = ConfigDict(extra="allow")

    transaction_id: str
    state: str
    instant: str | None = Field(description="Of its commit in the table.")
    began_at: datetime
    ended_at: datetime | None
    rows: int | None
    files: int | None
    bytes: int | None
    reason: str | None = Field(description="Why it was aborted.")
    dead: bool = Field(default=False, description="Whether the next begin clears it.")


class PipelineState(BaseModel):
    """A pipeline's offsets and recent transactions, or why they cannot be told now."""

    model_config = ConfigDict(extra="allow")

    pipeline: str
    error: str | None = Field(default=None, description="Why the rest, or the broker's part of it, is missing.")
    on: bool | None = Field(
        default=None, description="Whether the coordinator begins its transactions; None if there is no Dagster here."
    )
    activity: str | None = Field(
        default=None,
        description="The same in words with the next step, or why Dagster cannot be asked.",
        examples=["on"],
    )
    base_path: str | None = Field(default=None, description="As in the file, with references.")
    sequence: int | None = Field(default=None, description="Number of the last transaction.")
    lag: int | None = Field(
        default=None, description="Offsets that wait, of all partitions; None while that of one is unknown."
    )
    lag_seconds: float | None = Field(default=None, description="Age of the oldest waiting record; None if unknown.")
    last_committed_at: datetime | None = None
    complete_through: datetime | None = Field(
        default=None,
        description="No record with an earlier Kafka timestamp can still be committed; None if that is known of no time.",
    )
    observed_through: datetime | None = Field(
        default=None,
        description="The Kafka timestamp that every partition with records has reached; it proves nothing.",
    )
    holding_back: list[str] = Field(
        default=[], description="The partitions without which the table would be complete through a later time."
    )
    dead_letters: int | None = Field(default=None, description="Dead letters that wait for a retry.")
    violations: dict[str, int] = Field(
        default={}, description="How many records of all commits violate each expectation, by its name."
    )
    table: dict[str, Any] | None = Field(
        default=None,
        description="Whether the table has and lists all that its commits and the ledger say: `whole`, `text`.",
    )
    catalog: dict[str, Any] | None = None
    iceberg: dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None
    schema_change: dict[str, Any] | None = Field(
        default=None,
        description="The change of columns that waits for `hudi-ingest approve-schema`; no transaction begins meanwhile.",
    )
    partitions: list[PartitionState] = []
    stopped: list[Loss] = Field(default=[], description="Partitions that a person has to restart, by accept-loss.")
    transactions: list[TransactionState] = []


class OffsetSlice(BaseModel):
    """Offsets of one Kafka partition, without `end`."""

    topic: str
    partition: int
    start: int
    end: int


class Plan(BaseModel):
    """What the next transaction would read, or why there is none now."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    skip: str | None = Field(default=None, description="Why there is nothing to do.")
    transaction_id: str | None = None
    sequence: int | None = None
    kind: str | None = None
    slices: list[OffsetSlice] = []
    resets: list[Loss] = []
    stopped: list[Loss] = []
    buckets: str | None = Field(default=None, description="Whether a keyed table has as many as its size asks for.")
    # Not `schema`, which pydantic's models have already.
    record_schema: dict[str, Any] | None = Field(
        default=None, alias="schema", description="Columns of the records, and how the table's change."
    )
    columns: list[dict[str, Any]] | None = Field(default=None, description="Columns of the table after it.")


class Offsets(Body):
    """Offsets of one Kafka partition."""

    topic: Topic
    partition: Partition
    start: Offset = Field(description="First offset.")
    end: Offset | None = Field(
        default=None, description="End offset, exclusive. A keyed table needs none: it reads up to the committed one."
    )


class Times(Body):
    """Kafka timestamps, in all partitions, with a time zone."""

    start: Time = Field(examples=["2026-01-31T00:00:00Z"])
    end: Time | None = Field(default=None, description="Exclusive. A keyed table needs none.")


_NAMES = Names(
    choice="`offsets`; `times`; `transaction` (replay only)",
    partition="partition",
    start="start",
    end="end",
    from_time="start",
    to_time="end",
)


class SelectionBody(Body):
    """The offsets of a backfill or replay."""

    offsets: Offsets | None = None
    times: Times | None = None

    def selection(self, pipeline: Pipeline, transaction: str | None = None) -> Selection:
        """Return the offsets that the body selects. Raises WrongSelection."""
        asked, times = self.offsets, self.times
        return select(
            _NAMES,
            pipeline,
            ranges=[(TopicPartition(asked.topic, asked.partition), asked.start, asked.end)] if asked else [],
            from_time=times.start if times else None,
            to_time=times.end if times else None,
            read_by=transaction,
        )


class BackfillBody(SelectionBody):
    """Either `offsets` or `times`: what to add to the table."""

    skip_covered: bool = Field(default=False, description="Skip offsets that are in the table already.")


class ReplayBody(SelectionBody):
    """One of `offsets`, `times` and `transaction`: what to rewrite in the table."""

    transaction: str | None = Field(default=None, description="Id of the transaction whose records to rewrite.")
    respect_deletes: bool = Field(default=False, description="Write only offsets that have a row in the table.")


class RequestState(BaseModel):
    """A backfill, a replay or a retry that was requested."""

    request: str = Field(description="Its id.")
    pipeline: str
    kind: Literal["backfill", "replay", "retry"]
    state: Literal["active", "done", "failed", "cancelled"]
    filed_at: datetime
    ended_at: datetime | None = None
    ranges: list[OffsetSlice] = Field(
        description="What was requested; empty for a retry, which takes all dead letters."
    )
    transactions: int = Field(description="How many have been committed for it.")
    offsets: int = Field(description="How many offsets these have read.")
    rows: int = Field(description="How many rows these have written.")
    failed_tries: int
    reason: str | None = Field(default=None, description="Why it failed or is delayed.")
    worked_on: bool | None = Field(
        default=None, description="Whether a coordinator or a process is at work on it; False: resume the pipeline."
    )


class Survey(BaseModel):
    """What a request would do."""

    model_config = ConfigDict(extra="allow")

    pipeline: str
    ranges: list[OffsetSlice] = Field(default=[], description="The offsets that would be read.")
    transactions: int | None = None
    rows: int | None = Field(default=None, description="Of a retry: letters that would become rows.")
    reasons: list[str] = Field(default=[], description="Of a retry: why letters would stay, a few examples.")


class Cancelled(BaseModel):
    """Whether a request was cancelled."""

    request: str
    cancelled: bool = Field(description="False if it had ended before.")
    state: str


class LetterGroup(BaseModel):
    """Dead letters of one transaction and Kafka partition with the same error."""

    instant: str
    transaction_id: str
    topic: str
    partition: int
    stage: str
    field: str
    expected: str
    letters: int
    first_offset: int
    last_offset: int
    withheld: bool = Field(description="Their bytes were not kept, so they cannot be retried.")


class LetterHeader(BaseModel):
    """A header of a record."""

    key: str
    value: str | None
    value_base64: str | None


class Letter(BaseModel):
    """A record that could not become a row. Bytes are text if they are UTF-8, else hexadecimal digits; and base64."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    timestamp_ms: int
    instant: str
    transaction_id: str
    stage: str
    field: str
    expected: str
    found: str
    withheld: bool
    key: str | None
    key_base64: str | None
    value: str | None
    value_base64: str | None
    headers: list[LetterHeader]


class LossBody(Body):
    """The stopped partitions and recreated topics whose lost offsets are given up."""

    partitions: list[StoppedPartition] = []
    topics: list[Topic] = Field(default=[], description="Topics that were deleted and recreated.")

    @model_validator(mode="after")
    def _some(self) -> LossBody:
        if not self.partitions and not self.topics:
            raise ValueError("name at least one partition or topic")
        return self


class StoppedPartition(Body):
    """A Kafka partition."""

    topic: Topic
    partition: Partition
    resume_at: Offset | Literal["first", "end", "divergence"] = Field(
        default="first",
        description="Where it goes on: an offset, the broker's first or its end, or where a log that was cut parts from the one that was read.",
    )


class Receipt(BaseModel):
    """A commit."""

    model_config = ConfigDict(extra="allow")

    transaction_id: str
    instant: str
    rows: int
    bad_records: int
    files: int
    bytes: int
    resets: list[Loss] = []
    stopped: list[Loss] = []


class TemplateTopic(BaseModel):
    """A topic of a template, and the pipeline that it has."""

    topic: str
    pipeline: str
    seen_at: datetime | None = Field(description="When it first matched the pattern; None if the file lists it.")
    missing: bool | None = Field(
        description="Whether it is not on the broker, so that its pipeline fails; None if that is unknown."
    )


class SchemaChange(BaseModel):
    """How the next transaction would change the table's columns."""

    pipeline: str
    skip: str | None = Field(default=None, description="Why nothing would change.")
    origin: str | None = Field(default=None, description="Where the columns come from.")
    changes: list[str] = Field(default=[], description="One line each.")
    fingerprint: str | None = Field(default=None, description="Identifies the change; approve it by this.")
    approved: bool = Field(default=True, description="Whether the transaction may begin.")


class ApprovalBody(Body):
    """The schema change to approve."""

    fingerprint: str = Field(min_length=1, description="As the change has it; any other change is not approved.")


class Savepoint(BaseModel):
    """A commit to which the table can be restored."""

    instant: str = Field(description="Of the commit.")
    by: str
    comment: str


class SavepointBody(Body):
    """What to write into the savepoint."""

    comment: str = Field(default="by REST", max_length=1_000, description="Why it was made.")


class ExpiredPartition(BaseModel):
    """A table partition that is older than `table.ttl` allows."""

    partition: str = Field(description="Its path in the table.")
    ended_at: datetime | None
    file_groups: int
    bytes: int


class TtlPlan(BaseModel):
    """Which table partitions the retention would drop."""

    model_config = ConfigDict(extra="ignore")

    pipeline: str
    base_path: str | None = Field(description="As in the file, with references.")
    days: int = Field(description="How long data is kept.")
    expired: list[ExpiredPartition]
    bytes: int = Field(description="Of all expired partitions.")
    unknown: list[str] = Field(description="Partitions of unknown age; they are kept.")
    kept: int = Field(description="Number of partitions that stay.")


class Diagnosis(BaseModel):
    """What is well or wrong with one part of the installation."""

    subject: str = Field(examples=["pipeline payments"])
    state: Literal["ok", "warning", "problem"]
    text: str
    remedy: str = Field(description="What to do, if the text does not say it.")


class Examination(BaseModel):
    """What is known about the installation."""

    state: Literal["ok", "warning", "problem"] = Field(description="The most urgent of the diagnoses.")
    diagnoses: list[Diagnosis]


class SampleStart(Body):
    """Where to read in one Kafka partition."""

    topic: Topic
    partition: Partition
    offset: Offset


class SampleBody(Body):
    """Which records to look at; by default those that the next transaction would read first or, if none wait, the newest."""

    starts: list[SampleStart] = []
    limit: int = Field(default=20, ge=1, le=1_000, description="Maximum number of records, in total.")


class SampledRecord(BaseModel):
    """A record, and what a transaction would make of it."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    timestamp_ms: int
    tombstone: bool
    outcome: Literal["row", "delete", "bad", "filtered", "skipped"]
    row: dict[str, Any] | None = Field(default=None, description="Its values by column, bytes as base64.")
    moved_from: dict[str, Any] | None = Field(
        default=None, description="Where the row was before, if the record moves it to another key or table partition."
    )
    stage: str | None = Field(default=None, description="Where a bad record was refused.")
    field: str | None = None
    expected: str | None = None
    found: str | None = None


class Sample(BaseModel):
    """A few records, and what a transaction would make of them."""

    pipeline: str
    columns: list[dict[str, Any]] = Field(description="The table's, without the Kafka columns.")
    partitions: list[OffsetSlice] = Field(description="Where the records were taken from.")
    counts: dict[str, int] = Field(description="Number of records by outcome.")
    fields: dict[str, Any] | None = Field(
        default=None, description="`absent`: columns without a value in any record; `others`: fields without a column."
    )
    records: list[SampledRecord]


LossBody.model_rebuild()
