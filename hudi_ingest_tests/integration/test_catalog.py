"""Tables appear in a real Hive metastore, and another Spark session finds them there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hudi_ingest.hudi.catalog_state import read_state
from hudi_ingest.hudi.storage import TableStorage
from hudi_ingest.local.metastore import MetastoreSettings, start_metastore
from hudi_ingest.local.processes import ProcessRecord, free_port, stop
from hudi_ingest_tests.support.catalog_reader import CatalogReader
from hudi_ingest_tests.support.ground import Ground, make_pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@dataclass
class Metastore:
    settings: MetastoreSettings
    record: ProcessRecord

    @property
    def uri(self) -> str:
        return self.settings.uri

    def stop(self) -> None:
        stop([self.record])

    def start(self) -> None:
        self.record = start_metastore(self.settings, lambda line: None)


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    settings = MetastoreSettings(tmp_path_factory.mktemp("metastore"), free_port())
    server = Metastore(settings, start_metastore(settings, lambda line: None))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def reader(metastore: Metastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogReader]:
    process = CatalogReader(metastore.uri, tmp_path_factory.mktemp("reader"))
    yield process
    process.close()


def send(ground: Ground, partition: int, *records: dict[str, object]) -> None:
    ground.send(partition, [json.dumps(record).encode() for record in records])


def test_x(ground: Ground, topic: str, metastore: Metastore, reader: CatalogReader) -> None:
    catalog = {"type": "hms", "uris": metastore.uri}
    schema = "id string, dt string, at timestamp, place struct<lat: double, tags: array<string>>"
    pipeline = make_pipeline(ground, table={"schema": schema}, catalog=catalog)
    name = pipeline.catalog_table
    def row(i, dt, **more): return {"id": str(i), "dt": dt, "at": "2026-01-01T00:00:00Z", "place": {"lat": 1.5, "tags": ["a", "b"]}, **more}
    def go(p=pipeline):
        t = time.time(); r = ground.run(p); print("RUN", time.time() - t, r.seconds, r.warnings)
    send(ground, 0, row(1, "2026-01-01"), row(2, "2026-01-02"))
    go()
    print(Path(f"{ground.base_path}/.hoodie/hudi_ingest/catalog.json").read_text())
    print(reader.rows("show tables"), reader.rows(f"show create table {name}"), reader.rows(f"show partitions {name}"))
    print(reader.table(name, "*"))
    print(reader.rows(f"show tblproperties {name}"))
    send(ground, 0, row(3, "2026-01-02"))
    go()
    print(reader.table(name))
    print(reader.rows(f"show tblproperties {name}('last_commit_time_sync')"))
    send(ground, 0, row(4, "a:b c/d"), row(5, None))
    go()
    print(reader.table(name), reader.rows(f"show partitions {name}"))
    print(reader.rows(f"describe extended {name} partition (dt='a:b c/d')"))
    p2 = make_pipeline(ground, table={"schema": schema + ", extra long"}, catalog=catalog)
    send(ground, 0, row(6, "2026-01-02", extra=7))
    go(p2)
    print(reader.table(name, "id, extra, dt, place.tags"), reader.rows(f"describe {name}"))
    print(Path(f"{ground.base_path}/.hoodie/hudi_ingest/catalog.json").read_text())
