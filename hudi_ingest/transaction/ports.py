"""The table, broker, ledger and Spark that a pipeline's transactions work with, as ports that tests can replace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

import hudi_ingest
from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.storage.storage import Durability, StoredFile
from hudi_ingest.hudi.timeline.epoch import TableEpoch
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.publication import Publication
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Timeline
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead
from hudi_ingest.model.complete_through import Mark
from hudi_ingest.model.offsets import Offsets, Slice, TopicPartition
from hudi_ingest.model.plan import OffsetLoss, TransactionPlan
from hudi_ingest.model.report import SliceReport
from hudi_ingest.model.transaction import LineageListener, OpenInstant, OpenTransaction, TransactionSchema, unheard
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog


class InstantWriter(Protocol):
    """What the protocol needs from Hudi's write client; see hudi/write_client.py."""

    def create_table(self, schema: TransactionSchema) -> None: ...
    def update_properties(self, properties: dict[str, str]) -> None: ...
    def drop_indexes(self, names: Collection[str]) -> None: ...
    def rebuild_metadata_table(self) -> None: ...
    def begin(self, plan: TransactionPlan, schema: TransactionSchema) -> str: ...
    def commit(self, publication: Publication) -> None: ...
    def roll_back(self, instant: str) -> bool: ...
    def roll_back_expired(self) -> None: ...
    def file_groups(self, partition_paths: Collection[str] | None, files: bool = False) -> tuple[FileGroup, ...]: ...
    def open_instants(self) -> tuple[OpenInstant, ...]: ...


class ConsumerGroups(Protocol):
    """Where committed offsets are acknowledged; see kafka/cluster.py."""

    def commit_group_offsets(self, group: str, offsets: Offsets) -> None: ...
    def group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...


LossFinder = Callable[[Checkpoint | None], tuple[OffsetLoss, ...]]
"""Asks the broker which committed offsets it cannot honour now; see plan/planning.py. Raises KafkaUnreachable, KafkaRefused."""

MarkConfirmer = Callable[[Mapping[TopicPartition, Mark]], dict[TopicPartition, Mark]]
"""Asks the broker which of a plan's marks are true when it is committed; see plan/planning.py. Raises nothing."""

LetterCopier = Callable[[LettersHead | None], int]
"""Copies listed dead letters to their topic and returns how many; see dead_letters/copies.py."""

CatalogSyncer = Callable[[Sequence[CommittedInstant]], object]
"""Syncs the table to its catalog if these commits, newest first, bring something new to it; see catalog_sync.py."""

IcebergSyncer = Callable[[Sequence[CommittedInstant], Sequence[SliceReport]], object]
"""Publishes the table's commits, newest first, as Iceberg snapshots, with the newest one's reports; see iceberg_sync.py."""

SliceWriter = Callable[[OpenTransaction, Sequence[Slice], dict[TopicPartition, int], int], tuple[SliceReport, ...]]
"""Writes slices: (transaction, slices, attempt of each partition, mean record bytes) → a report of each slice."""

SchemaResolver = Callable[[], TransactionSchema]
"""Finds the columns of the next transaction; see columns/schema_change.py."""


def listener_of(pipeline: Pipeline) -> LineageListener:
    """Return the listener that the steps of the pipeline's transactions are reported to."""
    module, _, name = hudi_ingest.LISTENER.partition(":")
    return cast("LineageListener", getattr(import_module(module), name)(pipeline))


@dataclass(frozen=True, slots=True)
class TransactionPorts:
    """One pipeline's ports, and what all steps of its transactions do with them."""

    pipeline: Pipeline
    resolve_schema: SchemaResolver
    table: PipelineTable
    epoch: TableEpoch
    durability: Durability
    ledger: Ledger
    instants: InstantWriter
    write_files: SliceWriter
    groups: ConsumerGroups
    find_losses: LossFinder
    confirm_marks: MarkConfirmer
    letters: DeadLetterLog
    copy_letters: LetterCopier
    sync_catalog: CatalogSyncer
    note_step: Callable[[Mapping[str, object]], None]
    tell_lineage: LineageListener = unheard
    publish_iceberg: IcebergSyncer = lambda commits, reports: None

    @property
    def timeline(self) -> Timeline:
        return self.table.timeline

    @contextmanager
    def step(self, name: str, transaction_id: str, **known: object) -> Iterator[dict[str, Any]]:
        """Log that a step begins and how it ends: with the block's error, else as the block says."""
        where = {"pipeline": self.pipeline.name, "table": self.pipeline.table.base_path}
        step = {"step": name, "transaction": transaction_id, **known, **where}
        self.note_step({**step, "outcome": "started"})
        ended: dict[str, Any] = {"outcome": "done"}
        try:
            yield ended
        except BaseException as error:
            ended = {"outcome": type(error).__name__}
            raise
        finally:
            self.note_step({**step, **ended})

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Make the block's changes below .hoodie known and survive a power cut. Raises TableUnreachable."""
        before = self.look()
        try:
            yield
        finally:
            self.timeline.forget()
        with self.flushing():
            self.durability.sync_changes(before)

    def look(self) -> frozenset[StoredFile]:
        """List the files below .hoodie, to sync what changes after. Raises TableUnreachable."""
        with self.flushing():
            return self.durability.look()

    def flush_all(self) -> None:
        """Flush all below .hoodie, for a process that died before it could flush its changes. Raises TableUnreachable."""
        with self.flushing():
            self.durability.sync_changes(frozenset())

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Raises TableUnreachable for an OSError of the block, which only uses `durability`."""
        try:
            yield
        except OSError as error:
            raise TableUnreachable(
                f"files of the table at {self.pipeline.table.base_path} could not be flushed to disk: {error}. Check the disk, its "
                "free space and the machine's log. If the file system cannot flush at all, set table.fsync: false."
            ) from error
