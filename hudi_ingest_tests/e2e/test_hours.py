"""How soon after its end an hour is a materialized partition in the embedded Dagster: of an idle table, and of one whose topic never rests.

The declared lateness moves the hours' end to where the test wants it.
"""

from __future__ import annotations

import sys
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
from dagster import AssetKey

from hudi_ingest.home.folder import Home
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import free_port
from hudi_ingest.local.stack import StackSettings, bring_down, bring_up
from hudi_ingest.orchestration.home_instance import DAGSTER_VARIABLE, home_instance
from hudi_ingest_tests.support.ground import Ground, fresh_ground, write_pipeline
from hudi_ingest_tests.support.java import QUICK, java_options
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.e2e, pytest.mark.tier(3)]

INTERVAL_SECONDS = 5
MOST_SECONDS = INTERVAL_SECONDS + 2
BUSY_MACHINE = 10
"""So many times slower a machine may be; a quiet one keeps to MOST_SECONDS, see docs/measurements.md."""
SECONDS_TO_END = 90


def test_an_hour_is_declared_within_an_interval_and_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DAGSTER_VARIABLE, raising=False)
    settings = StackSettings(free_port(), free_port(), master="local[2]", driver_memory="1g")
    with fresh_ground(f"127.0.0.1:{settings.kafka_port}", tmp_path) as ground, java_options(QUICK):
        ground.home.pipelines.mkdir()
        over = threading.Event()
        try:
            bring_up(ground.home, settings, lambda line: None)
            tables = [f"{ground.name}_{kind}" for kind in ("idle", "busy")]
            for topic in tables:
                create_topic(ground.bootstrap_servers, topic, 2)
                ground.producer.produce(topic, b'{"id": "first"}')
            assert ground.producer.flush(120) == 0
            busy = threading.Thread(target=produce, args=(ground, tables[1], over))
            busy.start()
            end = int(time.time()) + SECONDS_TO_END
            for topic in tables:
                write_pipeline(
                    ground,
                    topic,
                    enabled=True,
                    source={"topics": [topic], "lateness_seconds": end % 3600},
                    table={"base_path": str(tmp_path / topic), "partition_by": []},
                    transaction={"interval_seconds": INTERVAL_SECONDS},
                    asset={"complete": "hourly"},
                )
            before, ended = hour(end, 2), hour(end, 1)
            wait_for(
                lambda: all(before in declared(ground.home, name) for name in tables), "an hour that is over", 300, 1
            )
            assert time.time() < end, "or nothing would be measured"
            wait_for(lambda: all(ended in declared(ground.home, name) for name in tables), "the hour's end", 300, 1)
            for name in tables:
                hours = declared(ground.home, name)
                assert [*hours] == [before, ended]
                seconds = hours[ended] - end
                sys.stderr.write(f"{name}: declared {seconds:.2f} s after its end\n")
                assert 0 <= seconds < MOST_SECONDS * BUSY_MACHINE
        finally:
            over.set()
            bring_down(ground.home, lambda line: None)
        busy.join()


def produce(ground: Ground, topic: str, over: threading.Event) -> None:
    """Produces 100 records a second."""
    while not over.wait(0.1):
        for _ in range(10):
            ground.producer.produce(topic, b'{"id": "more"}')
        ground.producer.poll(0)


def hour(end: int, back: int) -> str:
    """The partition that was `back` hours long before the declared end of an hour."""
    return f"{datetime.fromtimestamp((end // 3600 - back) * 3600, timezone.utc):%Y-%m-%d-%H:00}"


def declared(home: Home, name: str) -> dict[str, float]:
    """When each hour was materialized, oldest first."""
    with home_instance(home) as instance:
        records = instance.fetch_materializations(AssetKey([f"{name}_hours"]), limit=99).records
    return {str(record.partition_key): record.timestamp for record in reversed(records)}
