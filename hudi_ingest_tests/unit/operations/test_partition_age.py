"""Which table partitions `table.ttl` lets go, and which settings it takes."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
import yaml

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.operations.upkeep.partition_ttl import aged_partitions, end_of_time, expired, ttl_column
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.sections.table import Table
from hudi_ingest_tests.support.pipeline_files import Write

pytestmark = pytest.mark.fast

NOW = datetime(2026, 3, 10, 12, tzinfo=timezone.utc)


@pytest.fixture
def table(write: Write) -> Any:
    def made(**settings: Any) -> Table:
        block = {"base_path": "/data/t", "schema": "id string, ts timestamp, region string, dt string", **settings}
        source = {"bootstrap_servers": "b:9092", "topics": ["t"]}
        return load_pipeline(write(yaml.safe_dump({"name": "t", "source": source, "table": block}))).table

    return made


@pytest.mark.parametrize(
    ("text", "zone", "end"),
    [
        ("2025", "UTC", "2026-01-01 00:00"),
        ("2025-12", "UTC", "2026-01-01 00:00"),
        ("2024-02-28", "UTC", "2024-02-29 00:00"),
        ("2026-01-31", "Europe/Berlin", "2026-01-31 23:00"),
        ("2026-01-31", "+02:00", "2026-01-31 22:00"),
        ("2026-01-31-23", "-01:30", "2026-02-01 01:30"),
        ("9999-12-31", "UTC", None),
        ("2026-02-30", "UTC", None),
        ("2026-13", "UTC", None),
        ("late", "UTC", None),
        ("20260131", "UTC", None),
    ],
)
def test_a_partition_ends_with_its_time(text: str, zone: str, end: str | None) -> None:
    found = end_of_time(text, zone)
    assert (f"{found:%Y-%m-%d %H:%M}" if found else None) == end


def test_only_what_ended_long_enough_ago_expires(table: Any) -> None:
    made: Table = table(partition_by=["region", "day=day(ts)"], ttl={"days": 30})
    days = ("2026-02-07", "2026-02-08", "2026-02-09", "late", "__HIVE_DEFAULT_PARTITION__")
    groups = [FileGroup(f"region=a%2Fb/day={day}", f"f{place}", True, "", 100) for day in days for place in range(2)]
    groups.append(FileGroup("region=x/day=2020-01-01", "gone", live=False))
    partitions = aged_partitions(made, groups)
    assert [partition.path[-10:] for partition in expired(partitions, 30, NOW)] == ["2026-02-07"]
    assert [(partition.file_groups, partition.size_bytes) for partition in partitions] == [(2, 200)] * 5
    assert sum(partition.ended_at is None for partition in partitions) == 2


@pytest.mark.parametrize(
    ("partition_by", "ttl", "expires"),
    [
        (["shop"], {"days": 30}, False),
        (["shop"], {"days": 30, "column": "shop"}, True),
        (["shop=year(ts)"], {"days": 30}, True),
    ],
)
def test_a_number_of_four_digits_is_a_year_only_if_somebody_says_so(
    table: Any, partition_by: list[str], ttl: dict[str, Any], expires: bool
) -> None:
    columns = "id string, ts timestamp" + (", shop int" if partition_by == ["shop"] else "")
    partitions = aged_partitions(
        table(schema=columns, partition_by=partition_by, ttl=ttl), [FileGroup("shop=1024", "1")]
    )
    assert bool(expired(partitions, 30, NOW)) is expires


def test_by_commit_the_newest_commit_counts(table: Any) -> None:
    made: Table = table(partition_by=["region"], ttl={"days": 30, "by": "commit"})
    groups = [
        FileGroup("region=a", "1", True, "20260101000000000", 1),
        FileGroup("region=a", "2", True, "20260301000000000", 1),
        FileGroup("region=b", "3", True, "20260101000000000", 1),
    ]
    assert [partition.path for partition in expired(aged_partitions(made, groups), 30, NOW)] == ["region=b"]


def test_folders_without_column_names_have_the_same_times(table: Any) -> None:
    made: Table = table(partition_by=["dt"], hive_style=False, ttl={"days": 30})
    assert [
        partition.path for partition in expired(aged_partitions(made, [FileGroup("2026-01-01", "1")]), 30, NOW)
    ] == ["2026-01-01"]


def test_the_column_is_the_finest_time_or_the_only_one_or_as_named(table: Any) -> None:
    assert ttl_column(table(partition_by=["region", "year(ts)", "day(ts)"], ttl={"days": 1})) == "ts_day"
    assert ttl_column(table(partition_by=["dt"], ttl={"days": 1})) == "dt"
    assert ttl_column(table(partition_by=["region", "dt"], ttl={"days": 1, "column": "dt"})) == "dt"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"ttl": {"days": 9}}, "table.ttl: only for tables with `partition_by`; remove it, or set that"),
        ({"partition_by": ["region", "dt"], "ttl": {"days": 9}}, "it says which of region, dt is the time"),
        ({"partition_by": ["dt"], "ttl": {"days": 9, "column": "id"}}, "ttl.column: not in `partition_by`; found 'id'"),
        (
            {"partition_by": ["dt"], "ttl": {"days": 9, "by": "commit", "column": "dt"}},
            "ttl.column: only with `by: time`",
        ),
        ({"partition_by": ["dt"], "ttl": {"days": 0}}, "ttl.days: too small; found 0"),
        ({"partition_by": ["dt"], "ttl": {"days": 9, "by": "rows"}}, "ttl.by:"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(table: Any, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        table(**settings)
    assert problem in "\n".join(raised.value.problems).replace('"', "'")
