"""Tables on S3, in Glue and in a SQL catalog, on a store in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.report import SliceReport
from hudi_ingest.transaction.iceberg_sync import IcebergSync
from hudi_ingest_tests.support.iceberg_model import IcebergModel
from hudi_ingest_tests.support.s3_table import S3Tables, s3_tables

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def tables() -> Iterator[S3Tables]:
    with s3_tables() as found:
        yield found


def on_s3(tables: S3Tables) -> dict[str, Any]:
    options = tables.options
    login = {key: reference.text for key, reference in options.secrets}
    return {
        "base_path": tables.table().base_path,
        "storage": {"endpoint": options.endpoint, "region": options.region, **login},
    }


def test_a_table_on_s3_is_read_back_by_names_that_need_escapes(tmp_path: Path, tables: S3Tables) -> None:
    model = IcebergModel(tmp_path, on_s3=on_s3(tables))
    for _ in range(2):
        model.append()
        model.publisher.publish(model.reported)
    assert model.found() == model.expected()


def test_a_table_is_in_glue_as_athena_looks_for_it(tmp_path: Path, tables: S3Tables) -> None:
    glue = {
        "type": "glue",
        "glue.endpoint": tables.options.endpoint,
        "glue.region": "us-east-1",
        "glue.access-key-id": "k",
        "glue.secret-access-key": "s",
    }
    model = IcebergModel(tmp_path, on_s3=on_s3(tables), catalog=glue, namespace="sales")
    for _ in range(2):
        model.append()
        model.publisher.publish(model.reported)
    assert model.found() == model.expected()
    client = botocore.session.Session().create_client(
        "glue",
        endpoint_url=tables.options.endpoint,
        region_name="us-east-1",
        aws_access_key_id="k",
        aws_secret_access_key="s",
    )
    entry = client.get_table(DatabaseName="sales", Name="orders")["Table"]
    assert entry["Parameters"]["table_type"] == "ICEBERG"
    assert entry["Parameters"]["metadata_location"].startswith("s3://lake/")


def test_a_commit_on_s3_is_published_in_six_requests(tmp_path: Path, tables: S3Tables) -> None:
    model = IcebergModel(tmp_path, on_s3=on_s3(tables))
    sync = IcebergSync(model.pipeline, model.timeline, model.home)
    for _ in range(3):
        model.commit(model.new_rows(6, ("2026-01-31", "2026-02-01")))
        commits = model.timeline.completed()
        reports = [SliceReport(Slice("orders", 0, 0, 1), 0, files=tuple(model.reported.values()))]
        tables.proxy.requests.clear()
        assert sync.if_due(commits, reports)
        asked = [(request.kind, request.key.rpartition("/")[2]) for request in tables.proxy.requests]
    assert len(asked) <= 6, asked
    assert model.found() == model.expected()
