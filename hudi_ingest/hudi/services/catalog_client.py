"""Hudi's own sync of a table to a Hive metastore, in the Spark driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa

from hudi_ingest.exceptions import CatalogNotSynced
from hudi_ingest.hudi.java_errors import java_errors
from hudi_ingest.hudi.services.catalog_state import CatalogState
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.model.storage_options import is_s3
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.asset import Catalog

CALL_SECONDS = 10
"""How long the metastore may take for an answer."""
SYNC_SECONDS = 45
"""How long a sync may take. The first one in a JVM loads Hive's classes."""
COMPLETE_PROPERTY = "hudi_ingest.complete_through"
"""The table's property in the catalog, as of the last sync: a later time may be true by now."""
_OURS = "hudi-ingest catalog:"


class CatalogClient(HudiWriter):
    """Syncs one pipeline's table to its catalog."""

    def sync(
        self, catalog: Catalog, columns: pa.Schema, state: CatalogState, *, full: bool, complete_through: str = ""
    ) -> None:
        """Bring the catalog's table up to the newest commit. `columns`: the table's; `state`: what the catalog is known to
        have; `full`: compare all partitions, not only those of newer commits; `complete_through`: the time through which the table is
        complete, which becomes a property there, "" if there is none.

        Two syncs at once are harmless, but the one that began first may end last. Raises CatalogNotSynced, EngineLost.
        """
        instant, completed = ("", "") if full else (state.instant, _instant_text(state.completed_at))
        sync, hive = sync_options(self._pipeline, columns, full, complete_through), hive_settings(catalog)
        with java_errors(f"sync {self._base_path} to its catalog"):
            syncer = self._java_object(
                "CatalogSync", json.dumps(sync), json.dumps(hive), str(SYNC_SECONDS), instant, completed
            )
            causes: str = self._apply(syncer, self._context.hadoopConfiguration())
        if causes:
            raise CatalogNotSynced(not_synced_text(self._pipeline, catalog, causes.splitlines()))


def sync_options(pipeline: Pipeline, columns: pa.Schema, full: bool, complete_through: str = "") -> dict[str, str]:
    """Build the options of Hudi's sync tool. `complete_through`: as of `CatalogClient.sync`."""
    catalog, table = pipeline.catalog, pipeline.table
    assert catalog is not None
    database, _, name = pipeline.catalog_table.partition(".")
    partitions = table.partition_columns
    # Hudi 1.2 has none that undoes the escaping of folders' names.
    extractor = "MultiPartKeysValueExtractor" if partitions else "NonPartitionedExtractor"
    texts = all(columns.field(column).type == pa.string() for column in partitions if column in columns.names)
    hive_sync = "hoodie.datasource.hive_sync."
    return {
        "hoodie.datasource.meta.sync.base.path": location(pipeline, catalog),
        "hoodie.table.name": pipeline.name,
        f"{hive_sync}mode": "hms",
        f"{hive_sync}metastore.uris": catalog.uris,
        f"{hive_sync}database": database,
        f"{hive_sync}table": name,
        f"{hive_sync}partition_fields": ",".join(partitions),
        f"{hive_sync}partition_extractor_class": f"org.apache.hudi.hive.{extractor}",
        # Otherwise a timestamp is a number there.
        f"{hive_sync}support_timestamp": "true",
        # The metastore filters only texts on every database; without a filter Hudi reads all its partitions.
        f"{hive_sync}filter_pushdown_enabled": str(texts).lower(),
        "hoodie.meta.sync.incremental": str(not full).lower(),
        # Of a keyed table not only <name>_ro and <name>_rt.
        "hoodie.meta.sync.sync_snapshot_with_table_name": "true",
        **({f"{hive_sync}table_properties": f"{COMPLETE_PROPERTY}={complete_through}"} if complete_through else {}),
    }


def location(pipeline: Pipeline, catalog: Catalog) -> str:
    """Return the table's path as the catalog shows it."""
    path = pipeline.table.base_path
    return f"{catalog.location_scheme}://{path.split('://', 1)[1]}" if is_s3(path) else path


def hive_settings(catalog: Catalog) -> Mapping[str, str]:
    """Build the settings of the metastore's client. By default it waits ten minutes for an answer."""
    return {
        "hive.metastore.uris": catalog.uris,
        "hive.metastore.client.socket.timeout": f"{CALL_SECONDS}s",
        "hive.metastore.connect.retries": "1",
        "hive.metastore.failure.retries": "0",
        "hive.metastore.client.connect.retry.delay": "1s",
    }


def not_synced_text(pipeline: Pipeline, catalog: Catalog, causes: list[str]) -> str:
    """Say why the table could not be synced, and what to do. `causes`: Java's messages, the outermost first."""
    where = f"table {pipeline.table.base_path} could not be synced to {pipeline.catalog_table} at {catalog.uris}"
    own = next((cause.split(_OURS, 1)[1].strip() for cause in causes if _OURS in cause), None)
    if own is not None and own.startswith("no answer"):
        return (
            f"{where}: {own}, so it was given up. Check the metastore's log and the load of its database; if it is well, "
            "look at the Spark driver's log."
        )
    if own is not None:
        return f"{where}: {own}. Nothing was changed there. Set catalog.table to another name, or drop that table."
    if any("Could not connect to meta store" in cause for cause in causes):
        return f"{where}: no metastore answers there ({causes[-1]}). Start it, or correct catalog.uris."
    return f"{where}: {' <- '.join(reversed(causes[-3:]))}. The metastore's log says more."


def _instant_text(completed_at: str) -> str:
    return datetime.fromisoformat(completed_at).strftime("%Y%m%d%H%M%S%f")[:17] if completed_at else ""
