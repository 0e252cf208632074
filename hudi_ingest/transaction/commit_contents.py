"""The parts of a commit besides its files: its metadata, and the file groups of a keyed table, which are found at the transaction's
begin, checked and made at its commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.files.base_file import write_empty_base_file
from hudi_ingest.hudi.files.file_groups import (
    exceptional_ids,
    files_before,
    new_groups,
    published_groups,
    require_current_ids,
)
from hudi_ingest.hudi.options import OTHER_WRITERS_PROPERTY
from hudi_ingest.hudi.timeline.other_writers import STREAMER_KEY, streamer_text
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.complete_through import of_table
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import BaseFile, LogFile, SliceReport
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import parse_spark_json
from hudi_ingest.records.times import as_datetime
from hudi_ingest.transaction.ports import TransactionPorts

_KEEPS_FILE_GROUPS = frozenset({"COMPACT", "LOG_COMPACT", "INDEX", "ALTER_SCHEMA"})
"""Hudi's operations that neither make nor replace file groups."""


def file_ids_at_begin(ports: TransactionPorts, commits: Sequence[CommittedInstant]) -> Mapping[str, str]:
    """The file ids of the buckets that do not have the fixed one; see hudi/files/file_groups.py. Empty unless the table is keyed.
    `commits`: all on the active timeline.

    The table is asked only once another writer has committed to it, because all its table partitions are listed for that.
    The table's properties remember it, or it would be forgotten with the archived commit. Raises TableMismatch,
    TableUnreachable, EngineLost.
    """
    table = ports.pipeline.table
    if not table.is_keyed:
        return {}
    if OTHER_WRITERS_PROPERTY not in ports.timeline.properties():
        if _are_ours(ports, commits):
            return {}
        with ports.kept():
            ports.instants.update_properties({OTHER_WRITERS_PROPERTY: "true"})
    return exceptional_ids(table.base_path, ports.instants.file_groups(None), table.buckets)


def _are_ours(ports: TransactionPorts, commits: Iterable[CommittedInstant]) -> bool:
    """Whether none of the commits is one of another writer that may have made or replaced file groups."""
    key = ports.pipeline.transaction_key
    return all(key in commit.metadata or commit.operation in _KEEPS_FILE_GROUPS for commit in commits)


@dataclass(frozen=True, slots=True)
class ExtendedGroups:
    """The file groups that a commit's log files extend."""

    first_files: Sequence[BaseFile] = ()
    """The empty base files of new ones."""
    before: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """See `Publication.before`."""


def extended_groups(
    ports: TransactionPorts,
    transaction: OpenTransaction,
    log_files: Sequence[LogFile],
    commits: Sequence[CommittedInstant],
) -> ExtendedGroups:
    """Check that the log files are in their buckets' file groups, and write the empty base files of those that are new.
    `commits`: all on the active timeline; the guard refuses if another writer commits after them.

    Raises CommitRefused, TableMismatch, TableUnreachable, EngineLost.
    """
    if not log_files:
        return ExtendedGroups()
    table, storage = ports.pipeline.table, ports.timeline.storage
    if not table.cdc and _are_known(ports, log_files, commits):
        # Listing them takes a tenth of a small transaction.
        require_current_ids(log_files, {}, transaction.plan.transaction_id)
        return ExtendedGroups()
    groups = ports.instants.file_groups(sorted({file.partition_path for file in log_files}), files=table.cdc)
    ids = exceptional_ids(table.base_path, groups, table.buckets)
    require_current_ids(log_files, ids, transaction.plan.transaction_id)
    columns = parse_spark_json(transaction.schema.columns)
    try:
        files = [
            write_empty_base_file(storage, transaction.instant, partition_path, file_id, columns, table.compression)
            for partition_path, file_id in new_groups(log_files, groups)
        ]
    except OSError as error:
        raise TableUnreachable(
            f"transaction {transaction.plan.transaction_id}: base files of new file groups of {table.base_path} cannot be "
            f"written: {error}. Nothing was published; the commit is retried."
        ) from error
    with ports.flushing():
        ports.durability.sync_files([file.path for file in files])
    return ExtendedGroups(files, files_before(log_files, groups, files) if table.cdc else {})


def _are_known(ports: TransactionPorts, log_files: Iterable[LogFile], commits: Sequence[CommittedInstant]) -> bool:
    """Whether the commits alone say that the file groups exist, and that no other writer has ever made or replaced any."""
    if OTHER_WRITERS_PROPERTY in ports.timeline.properties() or not _are_ours(ports, commits):
        return False
    published = published_groups(path for commit in commits for path in commit.files)
    return {(file.partition_path, file.file_id) for file in log_files} <= published


def complete_text(checkpoint: Checkpoint) -> str:
    """Return through which Kafka timestamps the table and its Kafka partitions are complete, as JSON for readers: ISO 8601 in UTC. The
    table's is null, and a partition is left out, if that is known of no time."""
    times = {str(source): _iso(state.through) for source, state in sorted(checkpoint.complete.items())}
    partitions = {source: time for source, time in times.items() if time is not None}
    return json.dumps({"complete_through": _iso(of_table(checkpoint.complete)), "partitions": partitions})


def _iso(milliseconds: int | None) -> str | None:
    time = None if milliseconds is None else as_datetime(milliseconds)
    return time.isoformat(timespec="milliseconds") if time else None


def commit_metadata(
    pipeline: Pipeline, plan: TransactionPlan, checkpoint: Checkpoint, reports: Sequence[SliceReport]
) -> dict[str, str]:
    """The commit's extra metadata: the checkpoint, this transaction's accounting, the time through which the table is complete, and
    Hudi Streamer's checkpoint for a pipeline of one topic (`topic,0:123,1:456`, next offsets), so that users can move to Hudi
    Streamer and back."""
    metadata = {
        pipeline.checkpoint_key: checkpoint.to_json(),
        pipeline.transaction_key: Accounting.of(plan, reports).to_json(),
        pipeline.complete_key: complete_text(checkpoint),
    }
    if len(pipeline.source.topics) == 1:
        topic = pipeline.source.topics[0]
        # The pipeline may have read other topics before.
        offsets = {source.partition: offset for source, offset in checkpoint.offsets.items() if source.topic == topic}
        metadata[STREAMER_KEY] = streamer_text(topic, offsets)
    return metadata
