"""What one look at everything has found; the input of `exposition.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hudi_ingest.hudi.files.read_amplification import ReadAmplification
from hudi_ingest.ledger import ServiceRun
from hudi_ingest.model.finding import Finding
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.totals import Totals


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """One Kafka partition of a pipeline; what is unknown is None."""

    source: TopicPartition
    committed: int | None = None
    end: int | None = None
    lag: int | None = 0
    lag_seconds: float | None = None
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class TableRecord:
    """What a pipeline's table says."""

    sequence: int = 0
    totals: Totals = field(default_factory=dict)
    dead_letters: int = 0
    committed_at: datetime | None = None
    amplification: ReadAmplification | None = None
    """None of a table that is not keyed."""
    compaction_due: bool = False


@dataclass(frozen=True, slots=True)
class TableSize:
    """What a listing of the table's live files says."""

    size_bytes: int
    partitions: int
    small_files: int | None = None
    """Those that clustering would merge; None of a keyed table."""
    partition_ends: tuple[datetime, ...] = ()
    """When the table's partitions ended, as far as that is known."""


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """One pipeline. What could not be read is None or empty, and `error` says why."""

    name: str
    enabled: bool
    interval_seconds: float
    error: str = ""
    """The class of the error; "" if the pipeline is up."""
    partitions: tuple[PartitionRecord, ...] = ()
    table: TableRecord | None = None
    findings: tuple[Finding, ...] = ()
    size: TableSize | None = None
    base_path: str = ""
    ttl_days: int | None = None
    """`table.ttl`; None if data is kept for ever."""


@dataclass(frozen=True, slots=True)
class OpenRecord:
    """An open transaction of the ledger."""

    began_at: datetime
    overdue: bool


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """What the ledger says, by base path or by pipeline."""

    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    open: Mapping[str, OpenRecord] = field(default_factory=dict)
    ticked: Mapping[str, datetime] = field(default_factory=dict)
    requests: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By pipeline and kind."""
    rows: Mapping[str, int] = field(default_factory=dict)
    size_bytes: int | None = None
    services: tuple[ServiceRun, ...] = ()


@dataclass(frozen=True, slots=True)
class DagsterRecord:
    """What Dagster's instance says, by pipeline; one that it does not know is missing."""

    is_there: bool = True
    """Whether there is a Dagster."""

    running: Mapping[str, bool] = field(default_factory=dict)
    """Whether the sensor is on."""
    findings: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    """The checks that only Dagster can answer."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything, at one moment."""

    at: datetime
    took_seconds: float
    pipelines: tuple[PipelineRecord, ...] = ()
    broken_files: tuple[str, ...] = ()
    ledger: LedgerRecord | None = None
    """None if it did not answer."""
    dagster_up: bool | None = None
    """None without a Dagster."""
    versions: tuple[str, str] = ("", "")
    """Of hudi-ingest and Python."""
