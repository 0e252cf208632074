"""`table.iceberg` of a pipeline file: three lines are enough, and what is wrong is said with its remedy."""

from __future__ import annotations

from typing import Any

import pytest

from hudi_ingest.pipeline import extras
from hudi_ingest_tests.support.pipeline_files import Write, load, problem

pytestmark = pytest.mark.fast


def test_three_lines_are_enough_and_none_is_off(write: Write) -> None:
    assert load(write).table.iceberg is None
    pipeline = load(write, name="Orders", table__iceberg={"catalog": {"uri": "thrift://h:9083"}, "namespace": "lake"})
    assert pipeline.iceberg_table == "lake.orders"
    pipeline = load(write, table__iceberg={})
    assert pipeline.iceberg_table == "default.orders"


def test_logins_are_secrets(write: Write) -> None:
    catalog = {"uri": "https://h/api", "credential": "${CREDENTIAL}"}
    pipeline = load(write, {"CREDENTIAL": "id:hunter2"}, table__iceberg={"catalog": catalog})
    assert "hunter2" not in repr(pipeline)
    assert pipeline.table.iceberg is not None
    assert pipeline.table.iceberg.catalog["credential"].get_secret_value() == "id:hunter2"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"catalog": {"type": "unity"}}, "table.iceberg.catalog.type: not a kind of catalog that pyiceberg has; allowed: rest, hive, glue"),
        ({"catalog": {"warehouse": "x"}}, "table.iceberg.catalog: has neither `type` nor `uri`"),
        ({"catalog": {"type": "hive"}}, "table.iceberg.catalog.uri: missing; a catalog of type hive needs its address"),
        ({"catalog": {"uri": "h:9083"}}, "table.iceberg.catalog.uri: begins with 'h'; allowed: http://"),
        ({"namespace": "a b"}, "table.iceberg.namespace: "),
        ({"table": "a.b"}, "table.iceberg.table: found 'a.b', which has a dot; put what is before it into `namespace`"),
        ({"every_seconds": -1}, "table.iceberg.every_seconds: "),
        ({"timeout_seconds": 0}, "table.iceberg.timeout_seconds: "),
    ],
)
def test_sections_that_are_refused(write: Write, change: dict[str, Any], expected: str) -> None:
    assert expected in problem(write, table__iceberg=change)


def test_a_missing_library_is_named_with_its_extra(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "MODULES", {**extras.MODULES, "iceberg": ("pyiceberg_of_nobody",)})
    assert "install hudi-ingest[iceberg]" in problem(write, table__iceberg={})
