"""H4, K5: tables by hours of a zone in folders of values alone, with late records apart, as other readers see them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hudi import HudiReadOptions, HudiTable

from hudi_ingest.exceptions import BadRecord, TableMismatch
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.support.ground import Ground, make_pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

UTC = timezone.utc
BERLIN = ZoneInfo("Europe/Berlin")
LAYOUT: dict[str, Any] = {
    "schema": "id string, ts long, shop string",
    "partition_by": ["hour(ts)", "shop"],
    "partition_zone": "Europe/Berlin",
    "hive_style": False,
    "event_time": {"field": "ts", "late_after_seconds": 40 * 365 * 86400, "action": "route"},
}
STEPS = [{"timestamp": {"fields": ["ts"], "format": "epoch_millis"}}]
STATEMENT = """
  SELECT * EXCLUDE (dt), n * 1000000000000000000 AS large, upper(id) || '-' || _kafka_partition AS label
  FROM records WHERE n % 2 = 1
"""


@pytest.mark.tier(1)
def test_h4_k5_s13_hours_of_a_zone_in_folders_of_values_alone_are_read_by_spark_and_hudi_rs(
    ground: Ground, topic: str
) -> None:
    pipeline = make_pipeline(ground, table=LAYOUT, transforms=STEPS, on_tombstone="row")
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    times = {
        "a": noon,
        "b": noon + timedelta(minutes=59),
        "c": noon + timedelta(hours=1),
        "old": datetime(1970, 1, 2, tzinfo=UTC),
    }
    values: list[bytes | None] = [
        json.dumps({"id": name, "ts": int(at.timestamp() * 1000), "shop": "a/b=c"}).encode()
        for name, at in times.items()
    ]
    ground.send(0, [*values, None])
    receipt = ground.run(pipeline)
    berlin = {name: at.astimezone(BERLIN).strftime("%Y-%m-%d-%H") for name, at in times.items()}
    assert berlin["a"] == berlin["b"] == "2026-06-01-14"
    null = "__HIVE_DEFAULT_PARTITION__"
    assert {file.partition_path for file in receipt.written} == {
        f"{berlin['a']}/a%2Fb%3Dc",
        f"{berlin['c']}/a%2Fb%3Dc",
        "late/a%2Fb%3Dc",
        f"{null}/{null}",
    }
    expected = {"a": berlin["a"], "b": berlin["b"], "c": berlin["c"], "old": "late", None: None}
    by_rust = ground.rows().to_pylist()
    assert {row["id"]: row["ts_hour"] for row in by_rust} == expected
    assert {row["id"]: row["ts"] for row in by_rust if row["id"]} == times
    chosen = HudiTable(ground.base_path).read(HudiReadOptions(filters=[("ts_hour", "=", berlin["a"])]))
    assert sorted(each for found in chosen for each in found["id"].to_pylist()) == ["a", "b"]

    table = current_session(ground.home).read.format("hudi").load(ground.base_path)
    assert {row.id: row.ts_hour for row in table.select("id", "ts_hour").collect()} == expected
    hour = table.where(f"ts_hour = '{berlin['a']}' and shop = 'a/b=c'")
    assert sorted(row.id for row in hour.select("id").collect()) == ["a", "b"]
    assert len(hour.inputFiles()) == 1 or len(set(hour.select("_hoodie_file_name").collect())) == 1
    later = table.where(f"ts_hour > '{berlin['a']}' and ts_hour < 'a'")
    assert [row.id for row in later.select("id").collect()] == ["c"]

    changed = make_pipeline(ground, table={**LAYOUT, "hive_style": True}, transforms=STEPS)
    ground.send(0, values[:1])
    with pytest.raises(TableMismatch, match=r"names its folders by values alone.*Set table\.hive_style to false"):
        ground.run(changed)
    ground.run(pipeline)
    assert ground.rows().num_rows == 6
    assert Timeline(ground.base_path).properties()["hoodie.datasource.write.hive_style_partitioning"] == "false"


@pytest.mark.tier(1)
def test_k4_p1_sql_makes_rows_filters_others_and_names_the_record_that_it_cannot_compute(
    ground: Ground, topic: str
) -> None:
    pipeline = make_pipeline(ground, table={"partition_by": []}, transforms=[{"sql": STATEMENT}])
    ground.send_rows(0, 6)
    ground.send_rows(1, 3)
    receipt = ground.run(pipeline)
    assert [(each.rows, each.filtered, each.gaps) for each in receipt.reports] == [(3, 3, 0), (1, 2, 0)]
    rows = ground.rows().to_pylist()
    assert {(row["n"], row["large"], row["label"], row["_kafka_offset"]) for row in rows} == {
        *((n, n * 10**18, f"0-{n}-0", n) for n in (1, 3, 5)),
        (1, 10**18, "1-1-1", 1),
    }
    assert "dt" not in rows[0]
    ground.send_rows(0, 1, 1)
    ground.send_rows(0, 1, 11)
    with pytest.raises(BadRecord) as raised:
        ground.run(pipeline)
    assert f"{topic}:0:7 field n: expected what column large can be computed of, by transforms[0].sql, found 11" in str(
        raised.value
    )
    checkpoint = observe(pipeline).committed.checkpoint
    assert checkpoint is not None and sorted(checkpoint.offsets.values()) == [3, 6]
