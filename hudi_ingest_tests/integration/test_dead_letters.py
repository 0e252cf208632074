"""Bad records the whole way on a real broker, Spark and Hudi: dead letter, list and show, fix, retry, sweep."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from dagster import AssetCheckEvaluation, AssetCheckKey, AssetKey, DagsterInstance

from hudi_ingest.exceptions import BadRecord, IngestError
from hudi_ingest.faults import InjectedFault
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.verification import verify
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.requests.dead_letter_retry import RetryResult, survey_retry
from hudi_ingest.operations.requests.planning import new_request
from hudi_ingest.operations.requests.work import file_request, retry_result, work_off
from hudi_ingest.operations.upkeep.sweep import run_sweep
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.dead_letters.letter_file import read_letters
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog
from hudi_ingest.transaction.plan.planning import keep_letters_copied, observe
from hudi_ingest.transaction.write import job
from hudi_ingest_tests.integration.test_dagster_run import launch
from hudi_ingest_tests.support.command_line import answer, hudi_ingest
from hudi_ingest_tests.support.engine import own_spark_serves
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.requesting import coordinated, dagster_on_disk

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Place = tuple[int, int]
FIXED: dict[str, Any] = {
    "on_bad_record": "dead_letter",
    "table": {"schema": "id string, n string, dt string"},
    "transforms": [{"cast": {"n": "long"}}],
}
"""A pipeline that takes `n` as text, so that what was bad for that reason can become rows."""


def send_bad(ground: Ground, partition: int, value: bytes) -> Place:
    """Produces one record with a key and a header and returns its place."""
    places: list[Place] = []
    ground.producer.produce(
        ground.name,
        value,
        key=b"key-\xff",
        headers=[("source", b"\x00\x01")],
        partition=partition,
        on_delivery=lambda error, message: places.append((message.partition(), message.offset())),
    )
    assert ground.producer.flush(300) == 0
    return places[0]


def retried(ground: Ground, pipeline: Pipeline) -> RetryResult:
    """What a retry of all dead letters comes to; one that broke off before goes on."""
    request = file_request(new_request(pipeline, TransactionKind.RETRY), ground.home)
    for _ in work_off(pipeline, request, home=ground.home, report=lambda line: None):
        pass
    return retry_result(pipeline, ground.ledger, request.request_id)


def repairable(number: int) -> bytes:
    return json.dumps({"id": f"late-{number}", "n": str(number), "dt": "2026-01-01"}).encode()


def letters(ground: Ground, pipeline: Pipeline) -> dict[Place, dict[str, Any]]:
    """The pending dead letters by place, each once."""
    storage = LocalStorage(ground.base_path)
    checkpoint = observe(pipeline).committed.checkpoint
    assert checkpoint is not None
    found: dict[Place, dict[str, Any]] = {}
    for each in DeadLetterLog(storage).waiting(checkpoint.letters):
        for letter in read_letters(storage, each.file.path, None, each.without).to_pylist():
            place = (letter["partition"], letter["offset"])
            assert place not in found
            found[place] = letter
    assert len(found) == (checkpoint.letters.waiting if checkpoint.letters else 0)
    return found


def letter_files(ground: Ground) -> set[Path]:
    return set(Path(ground.base_path, ".hoodie/hudi_ingest/dead_letters").rglob("*.parquet"))


@pytest.mark.tier(1)
def test_d3_p1_p2_p5_bad_records_go_the_whole_way(
    ground: Ground, topic: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline(ground, on_bad_record="dead_letter")
    monkeypatch.setattr(job, "ROWS_PER_FILE", 4000)
    bad: dict[Place, bytes] = {}
    # More than one Arrow batch in partition 0, whose slice is longer than a file may be.
    for start in (0, 3000, 6000):
        for value in (repairable(start), b"{broken", b""):
            bad[send_bad(ground, 0, value)] = value
        ground.send_rows(0, 3000, start)
    bad[send_bad(ground, 1, repairable(1))] = repairable(1)
    ground.send_rows(1, 5)
    ground.send(1, [None])

    # A commit that dies after it has listed its letters.
    fault.arm("letters_listed", "kill")
    with own_spark_serves(ground.home):
        killed = hudi_ingest(ground.home, "run", pipeline.name)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = letter_files(ground)
    assert left, "what a killed commit had listed"
    receipt = ground.run(pipeline)

    assert verify(ground.base_path, ground.produced).exact
    found = letters(ground, pipeline)
    assert {place: letter["value"] for place, letter in found.items()} == bad
    assert {letter["key"] for letter in found.values()} == {b"key-\xff"}
    assert next(iter(found.values()))["headers"] == [{"key": "source", "value": b"\x00\x01"}]
    assert not left & letter_files(ground), "the next begin has cleared it"
    assert (receipt.rejected, sum(each.skipped for each in receipt.reports)) == (len(bad), 1)

    # As a user types it.
    shown = answer(
        ground.home, "dead-letters", "show", pipeline.name, "--partition", f"{topic}:1", "--error", "field n", "--json"
    )
    (one,) = json.loads(shown.stdout)
    assert (one["offset"], one["field"], base64.b64decode(one["value_base64"])) == (0, "n", repairable(1))
    assert '"id": "late-1"' in one["value"]

    # Nothing can become a row yet, so nothing changes.
    before = observe(pipeline).committed.checkpoint
    survey = survey_retry(pipeline)
    assert (survey.tried, survey.rows, survey.bad) == (10, 0, 10)
    nothing = retried(ground, pipeline)
    assert (nothing.tried, nothing.rows, nothing.waiting) == (10, 0, 10)
    assert observe(pipeline).committed.checkpoint == before
    assert letters(ground, pipeline).keys() == bad.keys()

    # After the fix: an attempt that fails, a commit that nobody is told of, and a retry that has nothing more to do.
    fixed = make_pipeline(ground, **FIXED)
    repaired = {place for place, value in bad.items() if value.startswith(b'{"id"')}
    planned = hudi_ingest(ground.home, "replay", fixed.name, "--dead-letters", "--dry-run", "--json")
    told = json.loads(planned.stdout)
    assert (told["tried"], told["rows"], told["bad"]) == (len(bad), len(repaired), len(bad) - len(repaired))
    assert told["transactions"] == 1
    assert observe(fixed).committed.checkpoint == before
    fault.arm("letters_closed", "raise")
    with pytest.raises((InjectedFault, IngestError)):
        retried(ground, fixed)
    fault.arm("commit_landed", "raise")
    with pytest.raises(InjectedFault):
        retried(ground, fixed)
    again = retried(ground, fixed)
    assert (again.rows, again.waiting) == (len(repaired), len(bad) - len(repaired))
    assert len(again.instants) == 1, "it was committed once, and found"
    for place in repaired:
        ground.produced[place] = f"late-{json.loads(bad[place])['n']}"
    assert verify(ground.base_path, ground.produced).exact
    rows = ground.rows().select(["_kafka_partition", "_kafka_offset", "_hoodie_record_key", "_kafka_topic"]).to_pylist()
    assert all(
        row["_hoodie_record_key"] == f"{topic}-{row['_kafka_partition']}-{row['_kafka_offset']}"
        and row["_kafka_topic"] == topic
        for row in rows
    )
    still = letters(ground, fixed)
    assert {place: letter["value"] for place, letter in still.items()} == {
        place: value for place, value in bad.items() if place not in repaired
    }
    assert {letter["timestamp"] for letter in still.values()} <= {letter["timestamp"] for letter in found.values()}

    # Ingestion goes on where it was, and the sweep takes what no commit lists, and nothing else.
    ground.send(0, [json.dumps({"id": "after", "n": "1", "dt": "d"}).encode()], ["after"])
    assert ground.run(fixed).rows == 1
    listed_files = letter_files(ground)
    stray = next(iter(listed_files))
    stray = stray.with_name(re.sub(r"_\d+-\d+-\d+_", "_9-9-9_", stray.name))
    shutil.copy(next(iter(listed_files)), stray)
    for path in Path(ground.base_path, ".hoodie/hudi_ingest/dead_letters").rglob("*.*"):
        os.utime(path, (0, 0))
    swept = run_sweep(fixed, timedelta(hours=6), delete=True, home=ground.home, report=lambda line: None)
    assert [each.file.path for each in swept.orphans] == [stray.relative_to(ground.base_path).as_posix()]
    assert letter_files(ground) == listed_files
    assert letters(ground, fixed).keys() == still.keys()


def test_d3_a_transaction_with_too_many_bad_records_is_refused_and_leaves_nothing(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, on_bad_record="dead_letter", max_bad_ratio=0.5)
    ground.send_rows(0, 2)
    ground.send(1, [b"{broken", b"[", b"{"])
    with pytest.raises(
        BadRecord, match=r"3 of 5 records \(60.00%\) cannot become rows, and max_bad_ratio is 0.5"
    ) as told:
        ground.run(pipeline)
    assert f"{topic}:1:0" in str(told.value)
    assert letter_files(ground) == set()
    assert observe(pipeline).committed.checkpoint is None
    skipping = make_pipeline(ground, on_bad_record="skip")
    assert ground.run(skipping).rejected == 3
    assert verify(ground.base_path, ground.produced).exact
    assert letter_files(ground) == set()


def test_p1_copies_for_kafka_follow_the_commits_at_least_once(ground: Ground, topic: str, fault: Fault) -> None:
    copies = f"{topic}.dead"
    create_topic(ground.bootstrap_servers, copies, 1)
    pipeline = make_pipeline(ground, on_bad_record="dead_letter", dead_letters={"topic": copies})
    ground.send_rows(0, 3)
    place = send_bad(ground, 1, repairable(1))
    fault.arm("ledger_told", "raise")
    with pytest.raises(InjectedFault):
        ground.run(pipeline)
    # The commit is durable and nobody has copied its letters: the next idle tick does.
    assert keep_letters_copied(pipeline, observe(pipeline)) == 1
    assert keep_letters_copied(pipeline, observe(pipeline)) == 0
    send_bad(ground, 1, b"{broken")
    fault.arm("letters_copied", "raise")
    (warning,) = ground.run(pipeline).warnings
    assert "its dead letters are not copied yet" in warning, "nothing after a durable commit may fail it"
    send_bad(ground, 0, b"[")
    # The broker does not have the topic: a warning, and the copies are made later.
    lost = make_pipeline(
        ground,
        on_bad_record="dead_letter",
        dead_letters={"topic": f"{copies}.none"},
        source={"request_timeout_seconds": 5},
    )
    (warning,) = ground.run(lost).warnings
    assert "its dead letters are not copied yet" in warning
    assert f"{copies}.none" in warning
    assert keep_letters_copied(pipeline, observe(pipeline)) == 2
    found = consumed(ground, copies, 4)
    assert [value for _, value, _ in found] == [repairable(1), b"{broken", b"{broken", b"["]
    key, _, headers = found[0]
    assert key == b"key-\xff"
    assert headers["source"] == b"\x00\x01"
    said = {
        name.removeprefix("__connect.errors."): value.decode() for name, value in headers.items() if "connect" in name
    }
    assert said.pop("exception.message").startswith('field n: expected int (64 bit), found "1"')
    assert said == {
        "topic": topic,
        "partition": str(place[0]),
        "offset": str(place[1]),
        "connector.name": pipeline.name,
        "task.id": "1",
        "stage": "VALUE_CONVERTER",
        "exception.class.name": "org.apache.kafka.connect.errors.DataException",
    }


def test_p5_a_letter_too_large_for_its_topic_is_copied_once_the_topic_takes_it(ground: Ground, topic: str) -> None:
    copies = f"{topic}.dead"
    create_topic(ground.bootstrap_servers, copies, 1)
    pipeline = make_pipeline(ground, on_bad_record="dead_letter", dead_letters={"topic": copies})
    options = {"compression.type": "zstd", "message.max.bytes": 3_000_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": ground.bootstrap_servers, **options})
    producer.produce(topic, b"[" * 2_000_000, partition=0)
    assert producer.flush(300) == 0
    (warning,) = ground.run(pipeline).warnings
    assert f"{topic}:0:0: Broker: Message size too large" in warning
    assert f"Raise max.message.bytes of {copies}" in warning
    larger = ConfigEntry("max.message.bytes", "3000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, copies, incremental_configs=[larger])
    # Kept until it has answered: its futures fail once it is gone.
    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(300)
    assert keep_letters_copied(pipeline, observe(pipeline)) == 1


def consumed(ground: Ground, topic: str, count: int) -> list[tuple[bytes, bytes, dict[str, bytes]]]:
    """Keys, values and headers of all records of a topic with one partition; there are `count`, and no more."""
    consumer = Consumer({"bootstrap.servers": ground.bootstrap_servers, "group.id": f"{topic}.test", "log_level": 0})
    source = TopicPartition(topic, 0, 0)
    try:
        consumer.assign([source])
        assert consumer.get_watermark_offsets(source, timeout=120) == (0, count)
        records = consumer.consume(count, timeout=120)
        return [(each.key(), each.value(), dict(each.headers() or ())) for each in records]
    finally:
        consumer.close()


def test_d1_the_ui_says_how_many_bad_records_there_were_and_which(
    ground: Ground, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hudi_ingest_tests.support.ticks import tick

    ground.set_environment(monkeypatch)
    pipeline = make_pipeline(ground, on_bad_record="dead_letter")
    ground.send_rows(0, 3)
    ground.send(1, [b'{"id": "x", "n": "seven", "dt": "d"}', b"["])
    with DagsterInstance.ephemeral() as instance:
        assert launch(pipeline, instance).success
        tick(pipeline, instance, datetime.now(timezone.utc))
        event = instance.get_latest_materialization_event(AssetKey([pipeline.name]))
        assert event is not None
        assert event.asset_materialization is not None
        metadata: Mapping[str, Any] = {k: v.value for k, v in event.asset_materialization.metadata.items()}
        check = instance.get_latest_asset_check_evaluation_record(
            AssetCheckKey(AssetKey([pipeline.name]), "dead_letters")
        )
    assert (metadata["bad records"], metadata["pending dead letters"]) == (2, 2)
    rows = [each.data for each in metadata["first bad records"].records]
    assert [(each["partition"], each["offset"]) for each in rows] == [(f"{topic}:1", 0), (f"{topic}:1", 1)]
    assert 'field n: expected int (64 bit), found "seven"' in str(rows[0]["reason"])
    assert check is not None
    assert check.status.value == "FAILED"


def test_d1_p2_the_job_retries_dead_letters_as_the_command_does(
    ground: Ground, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hudi_ingest.orchestration.definitions import build_definitions
    from hudi_ingest_tests.support.ticks import tick

    monkeypatch.setenv(HOME_VARIABLE, str(ground.home.root))
    monkeypatch.setenv(LEDGER_VARIABLE, ground.home.ledger_url)
    pipeline = make_pipeline(ground, on_bad_record="dead_letter")
    ground.send_rows(0, 3)
    place = send_bad(ground, 1, repairable(1))
    send_bad(ground, 1, b"[")
    ground.run(pipeline)
    fixed = make_pipeline(ground, **FIXED)
    definitions = build_definitions([fixed])
    job = definitions.resolve_job_def("hudi_ingest_retry_dead_letters")
    key = AssetCheckKey(AssetKey([fixed.name]), "dead_letters")
    with dagster_on_disk() as instance:

        def retry(**config: Any) -> dict[str, Any]:
            ops = {"ops": {"retry_dead_letters": {"config": config}}}
            result = job.execute_in_process(instance=instance, run_config=ops, partition_key=fixed.name)
            (output,) = [each.step_output_data for each in result.all_events if each.is_successful_output]
            return {name: each.value for name, each in output.metadata.items()}

        def check() -> dict[str, Any]:
            tick(fixed, instance, datetime.now(timezone.utc))
            record = instance.get_latest_asset_check_evaluation_record(key)
            assert record is not None
            assert isinstance(record.evaluation, AssetCheckEvaluation)
            return {name: each.value for name, each in record.evaluation.metadata.items()}

        before, planned = check(), retry(dry_run=True)
        assert len(letters(ground, fixed)) == 2
        with coordinated(fixed, definitions, instance):
            done = retry()
        after = check()
    assert (planned["dead letters"], planned["would become rows"], planned["would stay"]) == (2, 1, 1)
    assert (done["dead letters"], done["rows"], done["transactions"]) == (2, 1, 1)
    assert f"{topic}:1:1" in planned["why letters stay"] and f"{topic}:1:1" in done["why letters stay"]
    assert ground.ledger.transactions.history(fixed.name, 1)[0].owner.kind == "dagster"
    ground.produced[place] = "late-1"
    assert verify(ground.base_path, ground.produced).exact
    assert letters(ground, fixed).keys() == {(1, 1)}
    assert (before["pending dead letters"], after["pending dead letters"]) == (2, 1), "told at once"
