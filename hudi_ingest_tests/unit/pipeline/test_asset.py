"""The block `asset`: what it may hold, and that Dagster takes all that it lets pass."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from dagster import AssetKey, FreshnessPolicy

from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest_tests.support.pipeline_files import Write, load, problem, problems


def test_the_block_is_optional_and_changes_no_row(write: Write) -> None:
    plain, shown = load(write), load(write, asset={"owners": ["team:orders"], "max_lag": 5})
    assert (plain.asset.owners, plain.asset.tags, plain.asset.group) == ((), {}, None)
    assert (plain.max_lag, shown.max_lag) == (10_000_000, 5)
    assert plain.rows_digest == shown.rows_digest


def test_d1_what_the_file_says_is_what_dagster_has(write: Write) -> None:
    from hudi_ingest.orchestration.asset_keys import topic_assets
    from hudi_ingest.orchestration.jobs.table_asset import table_asset

    pipeline = load(
        write,
        asset={
            "description": "All **orders**.",
            "owners": ["team:orders", "on-call@example.com"],
            "tags": {"domain": "sales", "example.com/tier": "1"},
            "group": "sales/orders",
            "fresh_within_seconds": 900,
        },
    )
    (spec,) = table_asset(pipeline).specs
    assert spec.key == AssetKey(["orders"])
    assert spec.description == "All **orders**."
    assert list(spec.owners) == ["team:orders", "on-call@example.com"]
    assert spec.group_name == "sales/orders"
    assert {"domain": "sales", "example.com/tier": "1"}.items() <= spec.tags.items()
    assert spec.kinds == {"kafka", "hudi", "spark"}
    assert isinstance(spec.freshness_policy, FreshnessPolicy)
    columns = spec.metadata["dagster/column_schema"].columns
    assert [each.name for each in columns][:2] == ["id", "dt"]
    assert spec.metadata["dagster/uri"] == "/data/orders"
    assert "dagster/table_name" not in spec.metadata
    catalog = {"type": "hms", "uris": "thrift://hive:9083", "database": "Shop"}
    (synced,) = table_asset(load(write, catalog=catalog)).specs
    assert synced.metadata["dagster/table_name"] == "shop.orders"
    assert [each.group_name for each in topic_assets(pipeline, pipeline.source.topics)] == ["sales/orders"]


def test_the_assets_key_may_be_another_than_the_name(write: Write) -> None:
    assert table_key(load(write, asset={"key": ["lake", "orders-1"]})) == AssetKey(["lake", "orders-1"])
    assert problem(write, asset={"key": []}).startswith("asset.key: not an asset's key; found ''")
    assert problem(write, asset={"key": ["lake", "a/b"]}).startswith("asset.key: not an asset's key; found 'lake/a/b'")


@pytest.mark.parametrize("owner", ["orders", "team:", "a@b", "a b@example.com", "a@example.technology"])
def test_a_wrong_owner_is_refused_as_dagster_refuses_it(write: Write, owner: str) -> None:
    from dagster._core.definitions.utils import is_valid_owner

    assert not is_valid_owner(owner)
    found = problem(write, asset={"owners": ["team:orders", owner]})
    assert found.startswith(f"asset.owners[1]: not an owner; found {owner!r}")


def test_each_wrong_tag_is_named(write: Write) -> None:
    found = problems(write, asset={"tags": {"a b": "x", "tier": 1, "ok": "yes-1"}, "group": "sales orders"})
    assert found[0].startswith("asset.tags.a b: not a tag's name")
    assert found[1].startswith("asset.tags.tier: not a tag's value; found 1; allowed:")
    assert found[2].startswith("asset.group: not a group's name; found 'sales orders'")
    assert problem(write, asset={"tags": ["a"]}).startswith("asset.tags: must be a mapping")


def test_dagsters_shortest_freshness_is_a_minute(write: Write) -> None:
    assert "asset.fresh_within_seconds: too small; found 59" in problem(write, asset={"fresh_within_seconds": 59})


def test_hours_are_offered_from_a_day_that_is_not_years_ago(write: Write) -> None:
    from hudi_ingest.orchestration.jobs.request_jobs import BACKFILL_HOURS

    by_default, by_hand = load(write), load(write, asset__backfill_from="2026-01-31")
    assert timedelta(days=28) <= date.today() - by_default.asset.backfill_from <= timedelta(days=63)
    hours = BACKFILL_HOURS.partitions([by_hand])
    assert hours.get_first_partition_key() == "orders|2026-01-31-00:00"
    assert problem(write, asset__backfill_from="soon").startswith("asset.backfill_from: ")


def test_comments_of_columns_are_shown(write: Write) -> None:
    from hudi_ingest.orchestration.jobs.table_asset import table_asset

    schema = "id string COMMENT 'It''s the order', s struct<x:int COMMENT 'inner'>, dt string"
    (spec,) = table_asset(load(write, table__schema=schema, table__partition_by=["dt"])).specs
    shown = {each.name: each.description for each in spec.metadata["dagster/column_schema"].columns}
    assert (shown["id"], shown["s"], shown["dt"]) == ("It's the order", None, "Partition column")


def test_docs_of_an_avro_file_are_shown(write: Write) -> None:
    from hudi_ingest.orchestration.jobs.table_asset import table_asset

    fields = '[{"name": "id", "type": "string", "doc": "The order"}, {"name": "dt", "type": "string"}]'
    file = write(f'{{"type": "record", "name": "Order", "fields": {fields}}}', name="order.avsc")
    pipeline = load(write, table__schema=None, table__schema_file=file.name, table__partition_by=["dt"])
    (spec,) = table_asset(pipeline).specs
    shown = {column.name: column.description for column in spec.metadata["dagster/column_schema"].columns}
    assert (shown["id"], shown["dt"]) == ("The order", "Partition column")
