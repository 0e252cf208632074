"""Prepares a table for the transaction that begins: takes it over or creates it, and sets its properties.

New columns arrive with the commit's schema; the one that is published keeps columns that other writers have added.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from hudi_ingest.exceptions import CommitRefused, PlanOutdated, TableMismatch, TransactionInFlight
from hudi_ingest.hudi.options import (
    METADATA_PARTITIONS_PROPERTY,
    STATISTICS_INDEXES,
    record_key_of,
    record_properties,
    statistics_properties,
    table_properties,
    take_over_properties,
)
from hudi_ingest.hudi.timeline.ownership import require_metadata_table, require_own_table, require_same_folders
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.hudi.timeline.take_over import find_take_over
from hudi_ingest.hudi.timeline.timeline import PIPELINE_PROPERTY
from hudi_ingest.ledger import Ledger, TransactionRow
from hudi_ingest.ledger.tables import normal_base_path
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import parse_spark_json, spark_json
from hudi_ingest.records.schema.evolution import evolve
from hudi_ingest.transaction.ports import TransactionPorts


def require_take_over(ports: TransactionPorts, plan: TransactionPlan, own: str = "") -> None:
    """Raises TransactionInFlight while any writer other than the instant `own` may still add rows; TableMismatch if the
    table belongs to another system, and PlanOutdated if the plan does not begin where that system ended."""
    # Before the commits are read: a writer that begins after this also completes after it, and the guard finds that.
    pending = [instant for instant in ports.timeline.pending_writes() if not own or not instant.startswith(own)]
    take_over = find_take_over(ports.pipeline, ports.timeline)
    if take_over is not None and pending:
        raise TransactionInFlight(
            f"table {ports.pipeline.table.base_path} is still being written: {', '.join(pending[:5])} open. Stop "
            f"{take_over.writer} after its open commits have ended; commits left open by a killed writer are rolled back at "
            "its next start. Then the table is taken over."
        )
    if take_over != plan.take_over:
        raise PlanOutdated(
            f"plan {plan.transaction_id} is no longer current: it was planned for '{plan.take_over or 'a new table'}', and "
            f"now there is '{take_over or 'nothing to be taken over'}'. Nothing was written. Plan again; the sensor does so "
            "automatically."
        )


def require_one_table(ports: TransactionPorts) -> TransactionRow | None:
    """Return the pipeline's newest commit that the ledger knows. Raises TableMismatch if it is in a table at another path, and the table at
    this path is no copy that has it: the same offsets would be written to both."""
    return _newest_commit_here(ports.pipeline, ports.table, ports.ledger)


def require_writable_table(pipeline: Pipeline, table: PipelineTable, ledger: Ledger) -> None:
    """Raise what the next begin would, without a transaction: TableMismatch if the table at the path is not this pipeline's to write, or
    its own is elsewhere; TableUnreachable, LedgerUnreachable."""
    _newest_commit_here(pipeline, table, ledger)
    if not table.timeline.exists():
        return
    properties = table.timeline.properties()
    if PIPELINE_PROPERTY in properties or (pipeline.table.take_over is None and not table.timeline.is_empty()):
        require_own_table(pipeline, properties)
    elif pipeline.table.take_over is not None:
        require_same_folders(pipeline, properties)


def _newest_commit_here(pipeline: Pipeline, table: PipelineTable, ledger: Ledger) -> TransactionRow | None:
    name, path = pipeline.name, pipeline.table.base_path
    last = ledger.transactions.newest_commit(name)
    if last is None or last.table == normal_base_path(path) or table.instant_of(last.transaction_id) is not None:
        return last
    raise TableMismatch(
        f"pipeline {name} writes to the table at {last.table}: its last commit there is {last.transaction_id}, of "
        f"{last.began_at:%Y-%m-%d %H:%M:%S} UTC. Now table.base_path is {path}, where that commit is missing, so records that {last.table} has "
        "would be written again. Nothing was written. If the path is not meant to differ, set the variables in "
        "table.base_path, such as HUDI_INGEST_TABLES, to the same values for Dagster and for this process. If the table was "
        f"moved, copy all of it, with .hoodie. If {name} is meant to write to another table from now on, run `hudi-ingest recover {name} "
        "--new-table`."
    )


def prepare_table(ports: TransactionPorts, committed: CommittedState, taking_over: bool) -> TransactionSchema:
    """Create the table or update its properties; returns the columns of the transaction that begins."""
    if not committed.exists:
        schema = ports.resolve_schema()
        with ports.kept():
            ports.instants.create_table(schema)
        return schema
    properties = ports.timeline.properties()
    if PIPELINE_PROPERTY not in properties and ports.timeline.is_empty():
        # A begin died between creating the table and writing its properties: the table has not been used yet.
        created = table_properties(ports.pipeline, record_key_of(properties))
        properties = {**properties, **created}
        with ports.kept():
            ports.instants.update_properties(created)
    if taking_over:
        require_same_folders(ports.pipeline, properties)
    else:
        require_own_table(ports.pipeline, properties)
    require_metadata_table(ports.timeline.storage, properties)
    _drop_statistics_of_restore(ports, properties, committed)
    schema = ports.resolve_schema()
    target = {**table_properties(ports.pipeline, schema.record_key), **record_properties(schema)}
    # Before any file has the new columns, so that no writer collects statistics of them.
    if taking_over:
        target |= take_over_properties(properties, ports.timeline.schema(), ports.timeline.statistics_columns())
    else:
        target |= statistics_properties(properties, schema)
    if any(properties.get(key) != value for key, value in target.items()):
        with ports.kept():
            ports.instants.update_properties(target)
    return schema


def _drop_statistics_of_restore(ports: TransactionPorts, properties: dict[str, str], committed: CommittedState) -> None:
    """Drop the statistics from the metadata table if the table was restored since the pipeline's last commit.

    Hudi 1.2's `rollback_to_savepoint` adds an empty index of column statistics to a table that had none. From it, the next commits
    derive partition statistics that know their own files only, and queries skip partitions whose rows they should return.
    """
    statistics = STATISTICS_INDEXES & set(properties.get(METADATA_PARTITIONS_PROPERTY, "").split(","))
    restored_at = ports.timeline.restored_at() if statistics else None
    if restored_at is None or (committed.last_committed_at is not None and restored_at < committed.last_committed_at):
        return
    with ports.kept():
        ports.instants.drop_indexes(statistics)


def with_columns_of_others(
    schema: TransactionSchema, table_columns: pa.Schema, transaction_id: str
) -> TransactionSchema:
    """The columns to publish if another writer may have changed the table's, now `table_columns`, since the begin.

    The newest commit's columns become the table's, so ours must not drop columns that another writer has added. Raises
    CommitRefused if the two are incompatible.
    """
    ours = parse_spark_json(schema.columns)
    if table_columns.equals(ours):
        return schema
    evolution = evolve(table_columns, ours, loose=True)
    if evolution.refusals:
        raise CommitRefused(
            f"transaction {transaction_id}: another writer has changed the table's columns since it began: "
            f"{'; '.join(map(str, evolution.refusals))}. Nothing was published; the next transaction sees the new columns."
        )
    return replace(schema, columns=spark_json(evolution.schema))
