from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import Home
from hudi_ingest.operations.validation import check_files, validate_text
from hudi_ingest.pipeline.folder import catalog_table_of_both
from hudi_ingest_tests.support.pipeline_files import Write, document, load

HMS = {"type": "hms", "uris": "thrift://h:9083"}


def test_a_table_is_called_like_its_pipeline_in_small_letters(write: Write) -> None:
    pipeline = load(write, name="Orders", catalog={**HMS, "uris": "thrift://a:1, thrift://b:2"})
    assert pipeline.catalog_place == "default.orders at thrift://a:1,thrift://b:2"
    pipeline = load(write, catalog={**HMS, "database": "Sales", "table": "Daily"})
    assert pipeline.catalog_table == "sales.daily"


def test_a_keyed_table_is_there_three_times_and_no_other_pipeline_has_one_of_them(write: Write) -> None:
    keyed: dict[str, Any] = {
        "table__mode": "upsert",
        "table__key": ["id"],
        "table__schema": "id string",
        "table__partition_by": [],
    }
    pipeline = load(write, name="orders", catalog=HMS, **keyed)
    assert pipeline.catalog_tables == ("default.orders", "default.orders_rt", "default.orders_ro")
    for uris, expected in ((HMS["uris"], "default.orders_ro at thrift://h:9083"), ("thrift://g:9083", "")):
        other = load(write, name="orders_ro", catalog={**HMS, "uris": uris})
        assert catalog_table_of_both(pipeline, other) == catalog_table_of_both(other, pipeline) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"uris": "h:9083"}, "catalog.uris: not a metastore's address; found 'h:9083'; allowed: thrift://host:port"),
        ({"uris": "thrift://h"}, "catalog.uris: not a metastore's address"),
        ({"database": "my-sales"}, "catalog.database: Hive refuses this name; found 'my-sales'"),
        ({"table": "1st"}, "catalog.table: Hive refuses this name; found '1st'"),
        ({"type": "glue"}, "catalog.type: "),
        ({"location_scheme": "s3"}, "catalog.location_scheme: found s3, but the table is at /"),
        ({"retries": 1}, "catalog.retries"),
    ],
)
def test_catalogs_that_are_refused(write: Write, change: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(write, catalog={**HMS, **change})
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("scheme", "more", "warned"),
    [("s3", {}, True), ("s3", {"table__iceberg": {"catalog": {"type": "glue"}}}, False), ("s3a", {}, False)],
)
def test_validate_warns_of_a_catalog_whose_engines_cannot_read_the_table(
    write: Write, tmp_path: Path, scheme: str, more: dict[str, Any], warned: bool
) -> None:
    home = Home(root=tmp_path, pipelines=tmp_path, ledger_url=f"sqlite:///{tmp_path}/ledger.db")
    catalog = {**HMS, "location_scheme": scheme}
    path = write(yaml.safe_dump(document(table__base_path="s3a://lake/orders", catalog=catalog, **more)))
    for warnings in (
        check_files(home, [path], online=False).warnings,
        validate_text(home, path, path.read_text()).warnings,
    ):
        found = [warning for warning in warnings if "catalog.location_scheme s3 is for Athena and EMR" in warning]
        assert len(found) == warned, warnings
        assert all("Set table.iceberg with a catalog that they know" in warning for warning in found)
