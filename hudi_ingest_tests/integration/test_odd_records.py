"""Records that nobody expects, in number or in kind, become rows or bad records and stop no pipeline."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from hudi_ingest.dead_letters.log import DeadLetterLog
from hudi_ingest.dead_letters.reading import find_letters
from hudi_ingest.exceptions import BadRecord
from hudi_ingest.storage import TableStorage
from hudi_ingest_tests.support.ground import Ground, make_pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NOON = 1_767_268_800_000
TIMES = (NOON, NOON * 1_000_000 + 1, NOON * 1000, 2**63 - 1, NOON + 1)


def accept_any_time(ground: Ground) -> None:
    """As brokers before 4.0 do."""
    changes = [
        ConfigEntry("message.timestamp.after.max.ms", str(2**63 - 1), incremental_operation=AlterConfigOpType.SET)
    ]
    resource = ConfigResource(ResourceType.TOPIC, ground.name, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def test_d3_p1_a_kafka_timestamp_of_any_number_is_a_row_or_a_bad_record_by_the_policy(
    ground: Ground, topic: str
) -> None:
    accept_any_time(ground)
    for number, time in enumerate(TIMES):
        value = json.dumps({"id": f"a{number}", "n": number, "dt": "2026-01-01"})
        ground.producer.produce(topic, value.encode(), partition=0, timestamp=time)
    assert ground.producer.flush(30) == 0
    ground.send_rows(1, 4)
    with pytest.raises(BadRecord) as raised:
        ground.run(make_pipeline(ground))
    assert f"{topic}:0:1 field _kafka_timestamp" in str(raised.value)
    assert "2026-01-01 12:00:00 UTC in nanoseconds: the producer sets the wrong unit" in str(raised.value)

    letters = {"on_bad_record": "dead_letter", "dead_letters": {"topic": f"{topic}.dead"}}
    receipt = ground.run(make_pipeline(ground, **letters))
    assert (receipt.rows, sum(each.rejected for each in receipt.reports)) == (6, 3)
    assert receipt.warnings == (), "the letters were copied, too"
    rows = [row for row in ground.rows().to_pylist() if row["_kafka_partition"] == 0]
    assert {row["id"]: int(row["_kafka_timestamp"].timestamp() * 1000) for row in rows} == {"a0": NOON, "a4": NOON + 1}
    log = DeadLetterLog(TableStorage(ground.base_path))
    found = [*find_letters(TableStorage(ground.base_path), log.waiting(receipt.checkpoint.letters))]
    assert [(each.offset, each.timestamp) for each in found] == [*enumerate(TIMES)][1:4]


def test_h5_records_of_a_megabyte_in_a_first_transaction_and_after_small_ones(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, table={"schema": "id string, n long, note string, dt string"})
    producer = Producer(
        {
            "bootstrap.servers": ground.bootstrap_servers,
            "compression.type": "zstd",
            "message.max.bytes": 2_000_000,
            "log_level": 0,
        }
    )
    # Arrow's buffer of a batch would have to be of 2 GiB for more than half of that.
    for number in range(1100):
        value = json.dumps({"id": f"b{number}", "n": number, "note": "x" * 1_000_000, "dt": "2026-01-01"})
        producer.produce(topic, value.encode(), partition=0)
        producer.poll(0)
        if number % 20 == 19:
            assert producer.flush(30) == 0
    assert ground.run(pipeline).rows == 1100
    found = ground.rows()
    assert found.num_rows == 1100
    assert set(found["note"].to_pylist()) == {"x" * 1_000_000}
