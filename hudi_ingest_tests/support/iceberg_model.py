"""A table whose timeline is a list: its files are written by the product's own writer, what Iceberg must show is known."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Collection, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.base_file import BaseFileWriter
from hudi_ingest.hudi.files.file_groups import RowSource
from hudi_ingest.hudi.files.live_files import group_of, live_files
from hudi_ingest.hudi.files.new_files import BaseFileLayout
from hudi_ingest.hudi.iceberg.publisher import IcebergPublisher
from hudi_ingest.hudi.storage.open import storage_at
from hudi_ingest.hudi.storage.paths import heartbeat_path
from hudi_ingest.hudi.timeline.epoch import TableEpoch
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Timeline, instant_time
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import BaseFile
from hudi_ingest.pipeline.file import pipeline_from
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest_tests.support.pipeline_files import document

DDL = (
    "id string, dt string, n int, price decimal(12,2), big decimal(30,4), f float, d double, ok boolean, raw binary, day date, "
    "at timestamp, customer struct<id: string, tags: array<string>>, "
    "lines array<struct<sku: string, n: int, at: timestamp>>, attrs map<string, long>"
)
DAYS = ("2026-01-31", None, "", "a%b/c", "é ü", "x" * 40)


class ModelTimeline(Timeline):
    """Commits of a test, oldest first. What is taken out of `commits` and not put into `archived` was rolled back."""

    def __init__(self, pipeline: Pipeline, columns: pa.Schema) -> None:
        super().__init__(pipeline.table.base_path, pipeline.table.storage_options)
        self.commits: list[CommittedInstant] = []
        self.archived: list[CommittedInstant] = []
        self.saved: set[str] = set()
        self.columns = columns
        """Those of the next commit."""
        self.columns_at: dict[str, pa.Schema] = {}

    def completed(self) -> tuple[CommittedInstant, ...]:
        return tuple(sorted(self.commits, key=lambda commit: (commit.completed_at, commit.instant), reverse=True))

    def savepoints(self) -> frozenset[str]:
        return frozenset(self.saved)

    def schema(self) -> pa.Schema:
        return self.columns_at[max(commit.instant for commit in self.commits)]

    def base_file_paths(self) -> list[str]:
        return sorted(live_files((*self.archived, *self.commits)))


class ModelPublisher(IcebergPublisher):
    """Reads the model's archive; see test_archived_commits.py for Hudi's."""

    def _archived(self, since: str) -> tuple[CommittedInstant, ...]:
        timeline = self._timeline
        assert isinstance(timeline, ModelTimeline)
        return tuple(commit for commit in timeline.archived if commit.instant >= since)


class IcebergModel:
    """An append table at `path`, its model and its publisher."""

    def __init__(self, path: Path, ddl: str = DDL, on_s3: Mapping[str, Any] | None = None, **iceberg: Any) -> None:
        """`on_s3`: `base_path` and `storage` of a table that is not below `path`."""
        place = {"base_path": str(path / "orders"), **(on_s3 or {})}
        table = {**place, "schema": ddl, "iceberg": iceberg, "partition_by": ["dt"]}
        content = document(**{f"table__{key}": value for key, value in table.items()})
        self.pipeline = pipeline_from(content, Path(), "here", os.environ)
        self.storage = storage_at(self.pipeline.table.base_path, self.pipeline.table.storage_options)
        kafka = [pa.field("_kafka_partition", pa.int32(), False), pa.field("_kafka_offset", pa.int64(), False)]
        self.kafka = kafka
        self.timeline = ModelTimeline(self.pipeline, pa.schema([*parse_ddl(ddl), *kafka]))
        self.home = Home.from_environment({"HUDI_INGEST_HOME": str(path / "home")})
        self.publisher = self.another_publisher()
        self.rows: dict[str, list[dict[str, Any]]] = {}
        """Of each file that was ever written."""
        self.reported: dict[str, BaseFile] = {}
        self.clock = 0
        self.offset = 0

    def another_publisher(self) -> IcebergPublisher:
        return ModelPublisher(self.pipeline, self.timeline, self.home)

    def tick(self) -> str:
        self.clock += 1
        return f"20260101{self.clock // 3600:02}{self.clock // 60 % 60:02}{self.clock % 60:02}000"

    def write(self, rows: list[dict[str, Any]], instant: str) -> list[BaseFile]:
        """Write base files of these rows as a transaction does."""
        self.storage.write(heartbeat_path(instant), b"")
        epoch = TableEpoch(self.storage).advance(self.clock, f"t-{self.clock}")
        layout = BaseFileLayout(
            instant,
            epoch,
            self.pipeline.table.partition_columns,
            rows_per_file=1000,
            target_file_bytes=1 << 30,
            compression="zstd",
            statistics=True,
        )
        table = pa.Table.from_pylist(rows, schema=self.timeline.columns)
        with BaseFileWriter(self.storage, layout) as writer:
            if rows:
                writer.write(RowSource(TopicPartition("orders", 0), f"0-{rows[0]['_kafka_offset']}-0"), table)
            writer.close()
        files = [file for each in writer.files.values() for file in each]
        for file in files:
            self.reported[file.path] = file
            with self.storage.parquet_file(file.path) as found:
                self.rows[file.path] = found.read(columns=table.column_names).select(table.column_names).to_pylist()
        return files

    def new_rows(self, count: int, days: Collection[str | None] = DAYS) -> list[dict[str, Any]]:
        rows = []
        for _ in range(count):
            self.offset += 1
            rows.append(row(self.offset, [*days][self.offset % len(days)], self.timeline.columns))
        return rows

    def commit(
        self, rows: list[dict[str, Any]], replaced: Collection[str] = (), own: bool = True, operation: str = "INSERT"
    ) -> CommittedInstant:
        """Publish rows, in the place of the files `replaced`."""
        instant = self.tick()
        files = self.write(rows, instant)
        metadata = {}
        if own:
            metadata = {
                self.pipeline.transaction_key: "{}",
                self.pipeline.checkpoint_key: f'{{"sequence":{self.clock},"transaction":"t{self.clock}","offsets":{{"orders":{{"0":{self.offset}}}}}}}',
                self.pipeline.complete_key: '{"complete_through":"2026-01-01T00:00:00.000+00:00"}',
            }
        commit = CommittedInstant(
            instant,
            metadata,
            instant_time(self.tick()),
            {file.path: file.size_bytes for file in files},
            rows=len(rows),
            operation=operation,
            replaced=frozenset(group_of(path) for path in replaced),
        )
        self.timeline.commits.append(commit)
        self.timeline.columns_at[instant] = self.timeline.columns
        return commit

    def append(self, count: int = 6) -> CommittedInstant:
        return self.commit(self.new_rows(count))

    def cluster(self, files: Collection[str]) -> CommittedInstant:
        """Write the rows of these files anew, as a service does."""
        rows = [row for path in files for row in self.rows[path]]
        return self.commit(sorted(rows, key=lambda row: row["_kafka_offset"]), files, own=False, operation="CLUSTER")

    def archive(self, count: int) -> None:
        commits = [each for each in self.timeline.commits if each.instant not in self.timeline.saved]
        for commit in sorted(commits, key=lambda each: each.instant)[:count]:
            self.timeline.commits.remove(commit)
            self.timeline.archived.append(commit)

    def restore(self, instant: str) -> None:
        """Take back all that began after this instant."""
        self.timeline.commits = [commit for commit in self.timeline.commits if commit.instant <= instant]
        if self.timeline.commits:
            self.timeline.columns = self.timeline.schema()

    @property
    def live(self) -> list[str]:
        return self.timeline.base_file_paths()

    def expected(self) -> list[dict[str, Any]]:
        names = self.timeline.schema().names
        rows = [{name: row.get(name) for name in names} for path in self.live for row in self.rows[path]]
        return sorted(rows, key=lambda row: int(row["_kafka_offset"]))

    def found(self, snapshot: int | None = None) -> list[dict[str, Any]]:
        """What pyiceberg reads."""
        rows: list[dict[str, Any]] = self.publisher.table().scan(snapshot_id=snapshot).to_arrow().to_pylist()
        return sorted(rows, key=lambda row: int(row["_kafka_offset"]))


def row(offset: int, day: str | None, columns: pa.Schema) -> dict[str, Any]:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(seconds=offset, microseconds=offset)
    none = offset % 4 == 0
    return {
        "id": f"o-{offset}" + "ü" * (offset % 20),
        "dt": day,
        "n": None if none else offset,
        "price": None if none else Decimal(offset * 25) / 100,
        "big": Decimal(10) ** 20 * (-1) ** offset + offset,
        "f": offset / 4,
        "d": None if none else offset / 3,
        "ok": offset % 2 == 0,
        "raw": bytes([offset % 256, 255]) * (offset % 12),
        "day": at.date(),
        "at": at,
        "customer": None if none else {"id": str(offset), "tags": ["a", None]},
        "lines": [{"sku": "s", "n": offset, "at": at}] * (offset % 3),
        "attrs": [("k", offset)],
        "_kafka_partition": 0,
        "_kafka_offset": offset,
    }
