"""Whose a table is: the pipeline's, with the folders and keys it was created with; and which process may commit its services.

The claim of a table service (compaction, clustering) is a file in the table. A service writes it before it begins, and Hudi's
client checks it inside its lock before it commits (TableService.java). So a process that was taken for dead cannot commit after
another has taken over, and after a crash the claim says which instant was ours.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Literal

from hudi_ingest.exceptions import TableMismatch, TransactionInFlight
from hudi_ingest.hudi.options import (
    BUCKETS_PROPERTY,
    CDC_PROPERTY,
    HIVE_STYLE_PROPERTY,
    METADATA_PARTITIONS_PROPERTY,
    ORDERING_PROPERTY,
    RECORD_KEY_PROPERTY,
    TYPE_PROPERTY,
)
from hudi_ingest.hudi.storage.paths import METADATA_TABLE, OWN_FILES
from hudi_ingest.hudi.storage.storage import TableStorage, WriteConflict
from hudi_ingest.hudi.timeline.timeline import PIPELINE_PROPERTY
from hudi_ingest.pipeline.pipeline import Pipeline


def require_own_table(pipeline: Pipeline, properties: dict[str, str]) -> None:
    """Raises TableMismatch unless the table at the path is this pipeline's, with its partition columns and folder names."""
    path = pipeline.table.base_path
    owner = properties.get(PIPELINE_PROPERTY)
    if owner != pipeline.name:
        whose = f"pipeline {owner}" if owner else "another writer"
        raise TableMismatch(
            f"the table at {path} belongs to {whose}, not to pipeline {pipeline.name}. Choose another table.base_path, or "
            f"{f'name this pipeline {owner}' if owner else 'move that table away'}."
        )
    require_same_folders(pipeline, properties)
    require_same_keys(pipeline, properties)


def require_metadata_table(storage: TableStorage, properties: Mapping[str, str]) -> None:
    """Raises TableMismatch if the table's properties name a metadata table whose folder is gone. On a local disk only, where the look costs
    nothing: Hudi itself finds out once it has begun an instant, and after some 25 s."""
    if storage.is_local and properties.get(METADATA_PARTITIONS_PROPERTY) and not storage.exists(METADATA_TABLE):
        raise metadata_table_gone(f"begin a transaction on {storage.base_path}")


def metadata_table_gone(operation: str) -> TableMismatch:
    return TableMismatch(
        f"could not {operation}: the table's metadata table, the folder .hoodie/metadata, is gone, but "
        "hoodie.properties still names it. Nothing was written. Put the folder back, or let Hudi build it from the files "
        "in the table's folders: in Spark SQL, `create table t using hudi location '<base path>'; call "
        "delete_metadata_table(table => 't')`; the next transaction then builds it. Files of dead transactions that no "
        "sweep removed before may then show as rows: compare the counts (docs/operations.md, Orphans). `hudi-ingest recover "
        "<pipeline> --metadata-table` does all of that: it refuses while there are such files, and compares."
    )


def require_same_keys(pipeline: Pipeline, properties: Mapping[str, str]) -> None:
    """Raises TableMismatch unless the table at the path has the pipeline's mode and, if keyed, its key, ordering and buckets."""
    table = pipeline.table
    is_keyed = properties.get(TYPE_PROPERTY) == "MERGE_ON_READ"
    if is_keyed != table.is_keyed:
        made_with, mode = ("upsert", "append") if is_keyed else ("append", "upsert")
        raise TableMismatch(
            f"the table at {table.base_path} was created with `mode: {made_with}`, and pipeline {pipeline.name} says {mode}: "
            "its file groups cannot be converted. Restore table.mode, or choose another table.base_path and read the topic "
            "again from its start."
        )
    if not is_keyed:
        return
    settings = {
        # A key that was found in the records when the table was made stays the table's.
        **({} if table.finds_key else {"key": (properties.get(RECORD_KEY_PROPERTY, ""), ",".join(table.key_columns))}),
        "ordering": (properties.get(ORDERING_PROPERTY, ""), ",".join(table.ordering_fields)),
        "buckets": (properties.get(BUCKETS_PROPERTY, ""), str(table.buckets)),
        "cdc": (properties.get(CDC_PROPERTY, "false"), str(table.cdc).lower()),
    }
    for name, (created_with, wanted) in settings.items():
        if created_with != wanted:
            raise TableMismatch(
                f"the table at {table.base_path} was created with table.{name} {created_with or 'unset'}, and pipeline "
                f"{pipeline.name} says {wanted}: its files and commits were written with the old value. Restore "
                f"table.{name}, or choose another table.base_path and read the topic again from its start."
            )


def require_same_folders(pipeline: Pipeline, properties: Mapping[str, str]) -> None:
    """Raises TableMismatch unless the table at the path has the pipeline's partition columns and folder names."""
    path = pipeline.table.base_path
    columns = ",".join(pipeline.table.partition_columns)
    partitioned_by = properties.get("hoodie.table.partition.fields", "")
    if partitioned_by != columns:
        raise TableMismatch(
            f"the table at {path} is partitioned by ({partitioned_by or 'nothing'}), pipeline {pipeline.name} says "
            f"({columns or 'nothing'}). Change table.partition_by to match the table, or choose another table.base_path."
        )
    hive_style = properties.get(HIVE_STYLE_PROPERTY, "false") == "true"
    if columns and hive_style != pipeline.table.hive_style:
        raise TableMismatch(
            f"the table at {path} names its folders {'column=value' if hive_style else 'by values alone'}, and a table's folders "
            f"are never renamed. Set table.hive_style to {str(hive_style).lower()} in the file of pipeline "
            f"{pipeline.name}, or choose another table.base_path."
        )


Service = Literal["compaction", "clustering"]


class ServiceClaim:
    """The claim of one table's service. Every method raises OSError."""

    def __init__(self, storage: TableStorage, service: Service) -> None:
        self._storage = storage
        self._service = service
        self.path = f"{OWN_FILES}/{service}"

    def take(self, instant: str) -> str:
        """Make this try the only one that can commit `instant`; returns what the file says from now on.

        Raises TransactionInFlight if another process takes the claim at this moment.
        """
        return self._write({self._service: instant, "try": uuid.uuid4().hex})

    def plan(self, newest: str) -> None:
        """Say that a plan is being made, with an instant after `newest`. Raises TransactionInFlight like `take`."""
        self._write({"planning_after": newest, "try": uuid.uuid4().hex})

    def drop(self) -> None:
        """Say that nothing is planned or executed. Raises TransactionInFlight like `take`."""
        self._write({"try": uuid.uuid4().hex})

    def owns(self, instant: str) -> bool:
        """Whether the last try of the pipeline's services was at this instant."""
        return self._read().get(self._service) == instant

    def planned(self, instant: str) -> bool:
        """Whether the pipeline's services may have made this plan: they were planning, and did not get further."""
        after = self._read().get("planning_after")
        return after is not None and instant > after

    def _read(self) -> dict[str, str]:
        content = self._storage.read_versioned(self.path).content
        try:
            claim: dict[str, str] = json.loads(content)
        except ValueError:
            # No file yet, or not one that proves anything.
            return {}
        return claim

    def _write(self, claim: dict[str, str]) -> str:
        text = json.dumps(claim, separators=(",", ":"))
        try:
            self._storage.put_if(self.path, text.encode(), self._storage.read_versioned(self.path))
        except WriteConflict:
            raise TransactionInFlight(
                f"table {self._storage.base_path}: another run of services is beginning a {self._service}. Nothing was changed; "
                "try again later."
            ) from None
        return text
