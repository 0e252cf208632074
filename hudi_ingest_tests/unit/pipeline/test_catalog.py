from __future__ import annotations

from typing import Any

import pytest

from hudi_ingest.exceptions import ConfigError
from hudi_ingest_tests.support.pipeline_files import Write, load

HMS = {"type": "hms", "uris": "thrift://h:9083"}


def test_a_table_is_called_like_its_pipeline_in_small_letters(write: Write) -> None:
    pipeline = load(write, name="Orders", catalog={**HMS, "uris": "thrift://a:1, thrift://b:2"})
    assert pipeline.catalog_place == "default.orders at thrift://a:1,thrift://b:2"
    pipeline = load(write, catalog={**HMS, "database": "Sales", "table": "Daily"})
    assert pipeline.catalog_table == "sales.daily"


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
