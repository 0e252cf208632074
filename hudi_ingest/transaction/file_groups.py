"""The file groups of a keyed table's transaction: found at its begin, checked and made at its commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.empty_base_file import write_empty_base_file
from hudi_ingest.hudi.file_groups import exceptional_ids, files_before, new_groups, require_current_ids
from hudi_ingest.hudi.options import OTHER_WRITERS_PROPERTY
from hudi_ingest.hudi.timeline import CommittedInstant
from hudi_ingest.model.report import BaseFile, LogFile
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.records.schema.columns import parse_spark_json
from hudi_ingest.transaction.ports import TransactionPorts

_KEEPS_FILE_GROUPS = frozenset({"COMPACT", "LOG_COMPACT", "INDEX", "ALTER_SCHEMA"})
"""Hudi's operations that neither make nor replace file groups."""


def file_ids_at_begin(ports: TransactionPorts, commits: Sequence[CommittedInstant]) -> Mapping[str, str]:
    """The file ids of the buckets that do not have the fixed one; see hudi/file_groups.py. Empty unless the table is keyed.
    `commits`: all on the active timeline.

    The table is asked only once another writer has committed to it, because all its table partitions are listed for that.
    The table's properties remember it, or it would be forgotten with the archived commit. Raises TableMismatch,
    TableUnreachable, EngineLost.
    """
    table = ports.pipeline.table
    if not table.is_keyed:
        return {}
    if OTHER_WRITERS_PROPERTY not in ports.timeline.properties():
        key = ports.pipeline.transaction_key
        if all(key in commit.metadata or commit.operation in _KEEPS_FILE_GROUPS for commit in commits):
            return {}
        with ports.kept():
            ports.instants.update_properties({OTHER_WRITERS_PROPERTY: "true"})
    return exceptional_ids(table.base_path, ports.instants.file_groups(None), table.buckets)


@dataclass(frozen=True, slots=True)
class ExtendedGroups:
    """The file groups that a commit's log files extend."""

    first_files: Sequence[BaseFile] = ()
    """The empty base files of new ones."""
    before: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """See `Publication.before`."""


def extended_groups(
    ports: TransactionPorts, transaction: OpenTransaction, log_files: Sequence[LogFile]
) -> ExtendedGroups:
    """Check that the log files are in their buckets' file groups, and write the empty base files of those that are new.

    Raises CommitRefused, TableMismatch, TableUnreachable, EngineLost.
    """
    if not log_files:
        return ExtendedGroups()
    table, storage = ports.pipeline.table, ports.timeline.storage
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
