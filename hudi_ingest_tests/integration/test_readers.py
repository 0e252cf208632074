"""The same two tables by every engine that can be had here, value by value: docs/readers.md says the outcomes, and for which versions.

Engines that need an environment of their own are in tier 2, and skipped where `make readers` has not prepared it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.hudi.storage.s3_access import client_of
from hudi_ingest.local.processes import free_port, stop
from hudi_ingest.records.hudi_keys import escape
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.catalog_sync import sync_catalog
from hudi_ingest_tests.lab.spark_servers import MetastoreSettings, start_metastore
from hudi_ingest_tests.readers.engines import duckdb, flink, hudi_rs, polars, pyiceberg, spark
from hudi_ingest_tests.readers.engines.trino import Trino, trino_server
from hudi_ingest_tests.readers.environments import (
    CLICKHOUSE,
    DAFT,
    DUCKDB_ICEBERG,
    FLINK,
    SPARK_ICEBERG,
    TRINO,
    Environment,
    ReaderFailed,
)
from hudi_ingest_tests.readers.rows import lines
from hudi_ingest_tests.readers.tables import ReadTable, write_append_table, write_keyed_table
from hudi_ingest_tests.support.ground import fresh_ground
from hudi_ingest_tests.support.java import QUICK, java_options
from hudi_ingest_tests.support.s3_table import BUCKET, SECRET, s3_tables

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(scope="module")
def append(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadTable]:
    with fresh_ground(bootstrap_servers, tmp_path_factory.mktemp("append")) as ground:
        yield write_append_table(ground)


@pytest.fixture(scope="module")
def keyed(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadTable]:
    with fresh_ground(bootstrap_servers, tmp_path_factory.mktemp("keyed")) as ground:
        yield write_keyed_table(ground)


@pytest.fixture(params=["append", "keyed"])
def table(request: pytest.FixtureRequest) -> ReadTable:
    found: ReadTable = request.getfixturevalue(request.param)
    return found


@pytest.mark.tier(1)
@pytest.mark.parametrize("engine", [hudi_rs, polars, duckdb], ids=["hudi_rs", "polars", "duckdb"])
def test_s25_what_reads_through_hudi_rs_reads_every_row(table: ReadTable, engine: Any) -> None:
    found = engine.hudi(table.path)
    same_rows(found if isinstance(found, list) else found.to_pylist(), table.rows)


@pytest.mark.tier(1)
def test_s25_spark_reads_every_row(table: ReadTable) -> None:
    session = current_session(table.ground.home)
    same_rows(spark.hudi(table.path, session), table.rows)
    same_rows(spark.hudi(table.path, session, "read_optimized"), table.in_base_files)


@pytest.mark.tier(1)
def test_s25_the_parquet_files_alone_are_not_the_table(append: ReadTable, keyed: ReadTable) -> None:
    """Those that a clustering replaced are still there, and a keyed table's newest changes are in its log files."""
    found = Counter(row["_kafka_offset"] for row in duckdb.parquet_files(append.path))
    assert sorted(found.values()) == [1] * (len(append.rows) - 2) + [2] * 2
    assert lines(duckdb.parquet_files(keyed.path)) == list(keyed.in_base_files)


@pytest.mark.tier(1)
def test_s25_polars_reads_every_row_of_iceberg(table: ReadTable) -> None:
    same_rows(polars.iceberg(table.iceberg), table.in_base_files)


@pytest.mark.tier(1)
def test_s25_pyiceberg_has_empty_lists_of_structs_where_there_are_none(table: ReadTable) -> None:
    def as_pyiceberg_has_it(row: dict[str, Any]) -> None:
        row["lines"] = row["lines"] or []

    same_rows(pyiceberg.iceberg(table.iceberg), changed(table.in_base_files, as_pyiceberg_has_it))


@pytest.mark.parametrize("environment", [DUCKDB_ICEBERG, SPARK_ICEBERG], ids=lambda each: each.name)
def test_other_readers_of_iceberg_read_every_row_of_base_files(table: ReadTable, environment: Environment) -> None:
    environment.require()
    jars = [str(environment.folder / artifact.file_name) for artifact in environment.artifacts]
    assert environment.run(*jars, table.iceberg) == list(table.in_base_files)


def test_flink_reads_every_row_of_iceberg(table: ReadTable) -> None:
    FLINK.require()
    same_rows(flink.iceberg(table.ground.home.root / "iceberg.db", table.ground.name), table.in_base_files)


def test_clickhouse_has_empty_lists_of_iceberg_where_there_are_none(table: ReadTable) -> None:
    CLICKHOUSE.require()
    assert CLICKHOUSE.run("iceberg", table.iceberg) == changed(table.in_base_files, as_clickhouse_has_it)


def as_clickhouse_has_it(row: dict[str, Any]) -> None:
    for name in ("tags", "counts", "lines"):
        row[name] = row[name] or []
    customer = row["customer"] or dict.fromkeys(("name", "addresses", "extra"))
    row["customer"] = {**customer, "addresses": customer["addresses"] or [], "extra": customer["extra"] or []}


def test_daft_refuses_files_without_ids_of_columns(table: ReadTable) -> None:
    DAFT.require()
    with pytest.raises(ReaderFailed, match="carries no parquet field IDs"):
        DAFT.run("iceberg", table.iceberg)


def test_trino_reads_every_row_of_iceberg(trino: Trino, append: ReadTable, keyed: ReadTable) -> None:
    for name, table in (("append", append), ("keyed", keyed)):
        same_rows(trino.iceberg(name, table.iceberg), table.in_base_files)


def test_daft_refuses_both_tables(append: ReadTable, keyed: ReadTable) -> None:
    DAFT.require()
    for table, words in ((append, "Only support table version 5 and 6"), (keyed, "Only support COPY_ON_WRITE table")):
        with pytest.raises(ReaderFailed, match=words):
            DAFT.run("hudi", table.path)


def test_clickhouse_reads_other_rows_without_an_error(append: ReadTable, keyed: ReadTable) -> None:
    """It takes files that a clustering replaced, or that no commit names, the columns of one of them, and of equal names the newest only."""
    CLICKHOUSE.require()
    with s3_tables() as store:
        found = {}
        for name, table in (("append", append), ("keyed", keyed)):
            client = client_of(store.options)
            upload(Path(table.path), client, name)
            if table is append:
                # As an attempt leaves it that died.
                late = next(Path(table.path, "dt=2026-01-01").rglob("*.parquet")).read_bytes()
                client.put_object(
                    Bucket=BUCKET, Key=f"{name}/dt=2026-01-01/f0000000-0-0_0-0-0_20260101000000000.parquet", Body=late
                )
            printed = CLICKHOUSE.run("hudi", f"{store.options.endpoint}/{BUCKET}/{name}/", "key", SECRET)
            found[name] = [json.loads(line) for line in printed]
    assert len(found["append"]) == len(append.rows) + 2 + 1
    assert all("note" not in row for row in found["append"])
    # A keyed table's files have the same names in all its partitions.
    assert len(found["keyed"]) < len(keyed.in_base_files)


@pytest.fixture(scope="module")
def trino(append: ReadTable, keyed: ReadTable, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    """A Trino whose metastore has both tables, by hudi-ingest's own sync."""
    TRINO.require()
    metastore = MetastoreSettings(tmp_path_factory.mktemp("metastore"), free_port())
    with java_options(QUICK):
        record = start_metastore(metastore, lambda line: None)
    try:
        for name, table in (("append", append), ("keyed", keyed)):
            catalog = {"type": "hms", "uris": metastore.uri, "table": name}
            sync_catalog(table.pipeline(catalog=catalog), home=table.ground.home)
        with trino_server(tmp_path_factory.mktemp("trino"), metastore.uri) as server:
            yield server
    finally:
        stop([record])


def test_trino_reads_base_files_once_the_table_has_an_archive(
    trino: Trino, append: ReadTable, keyed: ReadTable
) -> None:
    """Its Hudi is 1.0.2: it takes the archive's empty folder for none, has times without their zone, and partition values as folders do."""
    views = {"append": append.rows, **dict.fromkeys(("keyed", "keyed_ro", "keyed_rt"), keyed.in_base_files)}
    for name in views:
        with pytest.raises(ReaderFailed, match="Could not load archived commit timeline"):
            trino.rows(f"select * from hudi.default.{name}")
    for table in (append, keyed):
        # Any file will do for Trino.
        Path(table.path, ".hoodie", "timeline", "history", "archived").touch()
    for name, rows in views.items():
        assert lines(trino.rows(f"select * from hudi.default.{name}")) == changed(rows, as_trino_has_it), name


def as_trino_has_it(row: dict[str, Any]) -> None:
    for place, name in [(row, "at"), *((line, "at") for line in row["lines"] or ())]:
        if place[name] is not None:
            place[name] = {"time": place[name]["time"].replace("+00:00", " nowhere")}
    for name in ("dt", "place"):
        row[name] = "\\N" if row[name] is None else escape(row[name])


def changed(rows: Sequence[str], change: Callable[[dict[str, Any]], None]) -> list[str]:
    """Return rows as an engine has them that changes some of their values."""
    found = [json.loads(row) for row in rows]
    for row in found:
        change(row)
    return sorted(json.dumps(row, sort_keys=True) for row in found)


def same_rows(found: Sequence[Mapping[str, Any]], expected: Sequence[str]) -> None:
    assert lines(found) == list(expected)


def upload(folder: Path, client: Any, prefix: str) -> None:
    for file in folder.rglob("*"):
        if file.is_file() and file.suffix != ".crc":
            client.put_object(Bucket=BUCKET, Key=f"{prefix}/{file.relative_to(folder)}", Body=file.read_bytes())
