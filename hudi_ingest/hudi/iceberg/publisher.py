"""Publishes a table's commits as Iceberg snapshots, by pyiceberg. The catalog's compare-and-swap is the fence: of two publishers the one that
loses finds the other's snapshot, and goes on after it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
)
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.types import NestedField
from pyiceberg.utils.concurrent import ExecutorFactory

from hudi_ingest.exceptions import CatalogNotSynced, IngestError
from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.faults import reach
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.live_files import group_of
from hudi_ingest.hudi.iceberg.columns import (
    data_file,
    fields_by_path,
    iceberg_schema,
    name_mapping,
    partition_spec,
    refusal,
    widening_problems,
)
from hudi_ingest.hudi.iceberg.file_io import data_root, file_settings
from hudi_ingest.hudi.iceberg.producers import Append, Overwrite, expire
from hudi_ingest.hudi.iceberg.statistics import column_statistics
from hudi_ingest.hudi.iceberg.steps import (
    Change,
    Known,
    Publication,
    Published,
    archive_since,
    complete_with,
    expired,
    next_steps,
)
from hudi_ingest.hudi.storage.paths import ICEBERG
from hudi_ingest.hudi.storage.storage import reaching
from hudi_ingest.hudi.timeline.archived_commits import archived_commits
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Timeline
from hudi_ingest.model.report import BaseFile
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import columns_of

_logger = logging.getLogger(__name__)
INSTANT, COMPLETED, OLDEST = "hudi-ingest.instant", "hudi-ingest.completed", "hudi-ingest.oldest-active"
"""What each snapshot's summary has: the Hudi commit after which it is, its completion, and the oldest active one then."""
WHOLE = "hudi-ingest.whole"
"""In the summary of a snapshot that was made of all files that the table listed, whatever was there before."""
_PIPELINE, _BASE_PATH = "hudi-ingest.pipeline", "hudi-ingest.base-path"
_MAPPING = "schema.name-mapping.default"
_FIXED = {
    # A snapshot that is tried again on top of another's could bring its files a second time: the publisher looks instead.
    "commit.retry.num-retries": "0",
    # Hudi alone deletes data files.
    "gc.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "comment": "Written by hudi-ingest with each Hudi commit. Read only: a snapshot of another writer stops the publication.",
}
_TRIES = 5
"""A publisher that loses so often has others that do the work."""


class IcebergPublisher:
    """The Iceberg metadata of one pipeline's table. Safe to use by several processes at once."""

    def __init__(self, pipeline: Pipeline, timeline: Timeline, home: Home | None = None) -> None:
        self._pipeline = pipeline
        self._timeline = timeline
        self._home = home or Home.from_environment()
        self._root = data_root(self._pipeline.table.base_path)

    @property
    def place(self) -> str:
        """The table's full name and its catalog, without logins."""
        return f"Iceberg table {self._pipeline.iceberg_table}"

    def publish(self, reported: Mapping[str, BaseFile], at_once: bool = False) -> Publication | None:
        """Make the snapshots that Iceberg lacks; None if the table has no commit.

        `reported`: files by path whose statistics are known; of others the footers are read. `at_once`: one snapshot for all
        commits. Raises CatalogNotSynced, TableUnreachable.
        """
        made = 0
        with self._explained():
            for _ in range(_TRIES):
                # After a lost race the timeline is read again, too: the winner may have seen a restore.
                known = self._look()
                if not known.active:
                    return None
                iceberg = self._open()
                chain = self._chain(iceberg)
                since = archive_since(chain, known)
                if since is not None:
                    known = replace(known, archived=self._archived(since))
                keyed = self._pipeline.table.is_keyed
                steps = next_steps(chain, known, self._pipeline.transaction_key, keyed, at_once)
                if not steps:
                    return Publication(self._pipeline.iceberg_table, chain[0], made)
                columns = self._timeline.schema()
                try:
                    if steps.back_to is not None:
                        self._go_back(iceberg, steps.back_to)
                    for change in steps.changes:
                        self._publish(iceberg, change, known, columns, reported)
                        made += 1
                        reach("iceberg_published")
                    return Publication(self._pipeline.iceberg_table, self._chain(iceberg)[0], made)
                except CommitFailedException:
                    _logger.info("%s: another publisher was faster", self.place)
        raise CatalogNotSynced(
            f"{self.place}: other publishers were faster {_TRIES} times in a row. The next commit looks again; no need to act."
        )

    def newest(self) -> Published | None:
        """Read the newest snapshot; None if there is none, or no Iceberg table yet. Raises CatalogNotSynced."""
        with self._explained():
            found = self._found(open_catalog(self._pipeline, self._home))
            return next(iter(self._chain(found)), None) if found else None

    def table(self) -> Table:
        """Open the Iceberg table, which is made if there is none. Raises CatalogNotSynced."""
        with self._explained():
            return self._open()

    def _look(self) -> Known:
        with self._timeline.held():
            return Known(self._timeline.completed(), self._timeline.savepoints())

    def _archived(self, since: str) -> tuple[CommittedInstant, ...]:
        with reaching(self._timeline.storage, "read archived commits"):
            return tuple(archived_commits(self._timeline.storage, since))

    def _open(self) -> Table:
        catalog = open_catalog(self._pipeline, self._home)
        found = self._found(catalog)
        if found is None:
            try:
                self._create(catalog)
            except Exception:
                # Another publisher may have made it meanwhile.
                if not catalog.table_exists(self._pipeline.iceberg_table):
                    raise
            found = catalog.load_table(self._pipeline.iceberg_table)
        if any(found.metadata.properties.get(name) != value for name, value in _FIXED.items()):
            with found.transaction() as changes:
                changes.set_properties(_FIXED)
        return found

    def _found(self, catalog: Catalog) -> Table | None:
        try:
            found = catalog.load_table(self._pipeline.iceberg_table)
        except NoSuchTableError:
            return None
        owner = found.metadata.properties.get(_BASE_PATH)
        if owner != self._root:
            raise CatalogNotSynced(
                f"{self.place} is another table{f', of {owner}' if owner else ', not made by hudi-ingest'}. It is left alone. Set "
                "table.iceberg.namespace or table.iceberg.table to a name that is free."
            )
        return found

    def _create(self, catalog: Catalog) -> None:
        namespace, _, _ = self._pipeline.iceberg_table.rpartition(".")
        if not catalog.namespace_exists(namespace):
            catalog.create_namespace_if_not_exists(namespace)
        columns = self._timeline.schema()
        # Catalogs number the columns of a table that they create, but take the ids of a schema that is added.
        schema = iceberg_schema(columns, 1)
        creation = catalog.create_table_transaction(
            self._pipeline.iceberg_table,
            Schema(),
            location=f"{self._root}/{ICEBERG}",
            properties={**_FIXED, _PIPELINE: self._pipeline.name, _BASE_PATH: self._root, "format-version": "2"},
        )
        creation._apply((*self._columns_updates(schema, ""),))
        spec = partition_spec(schema, self._pipeline.table.partition_columns)
        if spec.fields:
            creation._apply((AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate()))
        reach("iceberg_table_staged")
        creation.commit_transaction()

    @staticmethod
    def _columns_updates(schema: Schema, known_names: str) -> tuple[Any, ...]:
        return (
            AddSchemaUpdate(schema=schema),
            SetCurrentSchemaUpdate(),
            SetPropertiesUpdate(updates={_MAPPING: name_mapping(schema, known_names)}),
        )

    def _chain(self, iceberg: Table) -> list[Published]:
        """The current snapshot and its ancestors, newest first, back to one that was made of all files. Raises CatalogNotSynced if one is
        another writer's."""
        chain: list[Published] = []
        snapshot = iceberg.current_snapshot()
        while snapshot is not None:
            chain.append(self._published(snapshot))
            parent = snapshot.parent_snapshot_id
            is_root = parent is None or (
                snapshot.summary is not None and WHOLE in snapshot.summary.additional_properties
            )
            snapshot = iceberg.snapshot_by_id(parent) if parent is not None and not is_root else None
        return chain

    def _published(self, snapshot: Snapshot) -> Published:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if INSTANT not in summary:
            raise CatalogNotSynced(
                f"{self.place}: snapshot {snapshot.snapshot_id} is another writer's, so nothing more is published. The Hudi table is not "
                "affected. Iceberg's side is read only: stop the other writer, and either set the current snapshot back to the newest one whose "
                f"summary has {INSTANT} (`CALL catalog.system.set_current_snapshot(…)` in Spark), or drop the table there without `PURGE`: it "
                "is made again from the Hudi table."
            )
        return Published(
            snapshot.snapshot_id, summary[INSTANT], datetime.fromisoformat(summary[COMPLETED]), summary[OLDEST]
        )

    def _go_back(self, iceberg: Table, to: Published) -> None:
        snapshot = iceberg.snapshot_by_id(to.snapshot_id)
        with iceberg.transaction() as changes:
            if snapshot is not None and snapshot.schema_id is not None:
                # The table has its columns of that time again, too.
                changes._apply((SetCurrentSchemaUpdate.model_validate({"schema-id": snapshot.schema_id}),))
            ManageSnapshots(changes).set_current_snapshot(snapshot_id=to.snapshot_id)
        reach("iceberg_went_back")

    def _publish(
        self, iceberg: Table, change: Change, known: Known, columns: pa.Schema, reported: Mapping[str, BaseFile]
    ) -> None:
        added: Iterable[str] = change.added
        removed: list[DataFile] = []
        if change.whole:
            added, removed = self._differences(iceberg, known)
        elif change.replaced:
            files = [task.file for task in iceberg.scan().plan_files()]
            removed = [file for file in files if group_of(self._path_of(file)) in change.replaced]
        with self._prepared(iceberg, columns, change.whole) as (changes, fields, spec):
            files = self._data_files(added, reported, columns, fields, spec)
            self._commit(iceberg, changes, self._summary(change, known), known, files, removed)

    def _differences(self, iceberg: Table, known: Known) -> tuple[tuple[str, ...], list[DataFile]]:
        """The files that the table lists and Iceberg lacks, and those that Iceberg has and the table does not list."""
        listed = frozenset(self._timeline.base_file_paths())
        if {commit.instant for commit in self._look().active} != {commit.instant for commit in known.active}:
            raise CommitFailedException("the table changed while its files were listed")
        there = {self._path_of(task.file): task.file for task in iceberg.scan().plan_files()}
        return tuple(sorted(listed - there.keys())), [file for path, file in there.items() if path not in listed]

    def _path_of(self, file: DataFile) -> str:
        """The file's path in the table."""
        return file.file_path.removeprefix(f"{self._root}/")

    @contextmanager
    def _prepared(
        self, iceberg: Table, columns: pa.Schema, anew: bool = False
    ) -> Iterator[tuple[Transaction, Mapping[str, NestedField], PartitionSpec]]:
        """A transaction of Iceberg that gives the table these columns, with their fields by path and the partition spec. Raises
        CatalogNotSynced if Iceberg cannot read older files as these columns. `anew`: there are no older files."""
        snapshot = iceberg.current_snapshot()
        number = snapshot.schema_id if snapshot is not None and not anew else None
        before = iceberg.schemas()[number] if number is not None else Schema()
        wanted = iceberg_schema(columns, 1 + max(iceberg.schemas()))
        if problems := widening_problems(before, wanted):
            raise CatalogNotSynced(f"{self.place}: {refusal(self._pipeline.name, problems, columns)}")
        with iceberg.transaction() as changes:
            if iceberg.schema().fields != wanted.fields:
                changes._apply(self._columns_updates(wanted, iceberg.metadata.properties.get(_MAPPING, "")))
            yield changes, fields_by_path(wanted), iceberg.spec()

    def _commit(
        self,
        iceberg: Table,
        changes: Transaction,
        summary: Mapping[str, str],
        known: Known,
        added: list[DataFile],
        removed: list[DataFile],
    ) -> None:
        producer = (Overwrite if removed else Append).of(changes, iceberg.io, dict(summary))
        with producer as snapshot:
            for file in removed:
                snapshot.delete_data_file(file)
            for file in added:
                snapshot.append_data_file(file)
        reach("iceberg_snapshot_staged")
        keep = self._pipeline.table.retain_commits
        current = iceberg.current_snapshot()
        expire(changes, expired(self._chain(iceberg), known, keep) if current is not None else ())

    def _data_files(
        self,
        paths: Iterable[str],
        reported: Mapping[str, BaseFile],
        columns: pa.Schema,
        fields: Mapping[str, NestedField],
        spec: PartitionSpec,
    ) -> list[DataFile]:
        def record(path: str) -> DataFile | None:
            file = reported.get(path)
            if file is None or not file.columns:
                footer = self._footer(path, columns)
                statistics = column_statistics(footer, self._pipeline.table.partition_columns)
                file = BaseFile("", "", path, footer.num_rows, self._timeline.storage.size(path), 0, 0, statistics)
            if not file.rows:
                return None
            return data_file(f"{self._root}/{path}", file.size_bytes, file.rows, file.columns, fields, spec)

        with reaching(self._timeline.storage, "read the statistics of base files"):
            return [file for file in ExecutorFactory.get_or_create().map(record, paths) if file is not None]

    def _footer(self, path: str, columns: pa.Schema) -> pq.FileMetaData:
        footer = self._timeline.storage.parquet_footer(path)
        written = iceberg_schema(columns_of(footer.schema.to_arrow_schema()))
        if problems := widening_problems(written, iceberg_schema(columns)):
            text = refusal(self._pipeline.name, problems, columns)
            raise CatalogNotSynced(f"{self.place}: in {path}, {text}")
        return footer

    def _summary(self, change: Change, known: Known) -> dict[str, str]:
        commit = change.commit
        summary = {
            INSTANT: commit.instant,
            COMPLETED: commit.completed_at.isoformat(),
            OLDEST: known.oldest,
            "hudi-ingest.operation": commit.operation,
            "hudi-ingest.commits": str(change.instants),
            **({WHOLE: "true"} if change.whole else {}),
        }
        pipeline = self._pipeline
        through = complete_with(commit, known, pipeline.complete_key)
        return summary | (offsets_of(through, pipeline.checkpoint_key, pipeline.complete_key) if through else {})

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (IngestError, CommitFailedException):
            raise
        except SchemaProblem as error:
            raise CatalogNotSynced(f"{self.place}: {error}") from error
        except Exception as error:
            text = " ".join(str(error).split())[:500]
            raise CatalogNotSynced(
                f"{self.place}: {type(error).__name__}: {text}. The Hudi table is not affected. If this persists, check that its catalog "
                "is up, and table.iceberg.catalog."
            ) from error


def offsets_of(commit: CommittedInstant, checkpoint_key: str, complete_key: str) -> dict[str, str]:
    """What a commit's metadata says of the topics, for a snapshot's summary: the next offsets, the number of the transaction, certificates,
    and the time through which the table is complete."""
    checkpoint = json.loads(commit.metadata.get(checkpoint_key, "{}"))
    complete = json.loads(commit.metadata.get(complete_key, "{}")).get("complete_through")
    known = {
        "hudi-ingest.transaction": checkpoint.get("transaction"),
        "hudi-ingest.sequence": checkpoint.get("sequence"),
        "hudi-ingest.offsets": checkpoint.get("offsets"),
        "hudi-ingest.certificates": checkpoint.get("certified"),
        "hudi-ingest.complete-through": complete,
    }
    return {
        key: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), sort_keys=True)
        for key, value in known.items()
        if value is not None
    }


def open_catalog(pipeline: Pipeline, home: Home) -> Catalog:
    """Open the catalog of the table's Iceberg metadata: by default a SQLite file of the home folder."""
    iceberg = pipeline.table.iceberg
    assert iceberg is not None, "only for tables with Iceberg metadata"
    settings = {name: secret.get_secret_value() for name, secret in iceberg.catalog.items()}
    if not settings:
        home.make()
        settings = {"type": "sql", "uri": f"sqlite:///{home.root / 'iceberg.db'}"}
    name = settings.pop("name", "hudi_ingest")
    options = pipeline.table
    return load_catalog(name, **{**file_settings(options.base_path, options.storage_options), **settings})
