"""P1, P2, P5, P6: history is added beside live transactions, once, whatever breaks off; and what is gone is told first."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from dagster import AssetKey, EventLogEntry, Failure

from hudi_ingest.exceptions import EngineLost, NothingToDo, RangeRefused
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.ledger import RequestState
from hudi_ingest.local.verification import verify
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.operations.observation import look_at
from hudi_ingest.operations.requests.asked_ranges import in_time, of_transaction
from hudi_ingest.operations.requests.planning import known_state, new_request, what_is_missing
from hudi_ingest.operations.requests.work import file_request, fulfil
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction import run as ingest
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest.transaction.write.job import write_slices
from hudi_ingest_tests.support.command_line import answer, hudi_ingest
from hudi_ingest_tests.support.engine import own_spark_serves
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.observations import seen
from hudi_ingest_tests.support.requesting import coordinated, dagster_on_disk, requested

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture
def history(ground: Ground, topic: str) -> Pipeline:
    """A pipeline that began at the topic's end: 250 and 30 older records are not in its table, 20 newer ones are."""
    pipeline = make_pipeline(ground, source={"starting_offsets": "latest"}, transaction={"max_records": 100})
    ground.send_rows(0, 250)
    ground.send_rows(1, 30)
    ground.run(pipeline)
    ground.send_rows(0, 20, 250)
    ground.run(pipeline)
    return pipeline


@pytest.mark.tier(1)
def test_p1_p2_p5_x2_history_is_added_once_after_a_kill_and_between_live_transactions(
    ground: Ground, history: Pipeline, fault: Fault
) -> None:
    whole = (history.name, "--partition", f"{ground.name}:0", "--start", "0", "--end", "250")
    shown = answer(ground.home, "backfill", *whole, "--dry-run", "--json")
    assert json.loads(shown.stdout)["ranges"] == [{"topic": ground.name, "partition": 0, "start": 0, "end": 250}], (
        shown.stderr
    )
    fault.arm("commit_landed", "kill")
    with own_spark_serves(ground.home):
        killed = hudi_ingest(ground.home, "backfill", *whole)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (broken_off,) = ground.ledger.requests.active(history.name)
    before = observe(history)
    lines: list[str] = []
    asked = [Slice(ground.name, 0, 0, 250)]
    # The same again goes on with what broke off.
    going = requested(ground, history, TransactionKind.BACKFILL, asked, lines=lines)
    counts = []
    for receipt in going:
        counts.append(receipt.rows)
        assert receipt.checkpoint.offsets == {TopicPartition(ground.name, 0): 270 + 5 * (len(counts) - 1)} | {
            TopicPartition(ground.name, 1): 30
        }
        ground.send_rows(0, 5, 270 + 5 * (len(counts) - 1))
        assert ground.run(history).rows == 5
    assert counts == [100, 50]
    assert any(f"{broken_off.request_id}: 150 offsets to write" in line for line in lines), lines
    ended = ground.ledger.requests.find(broken_off.request_id)
    assert ended is not None and ended.state is RequestState.DONE
    assert sum(piece.count for piece in ground.ledger.requests.progress(broken_off.request_id).done) == 250
    again = answer(ground.home, "backfill", *whole)
    assert again.returncode == 1
    assert f"{ground.name}:0 [0,250) is already in the table" in again.stderr
    assert f"`hudi-ingest replay {history.name} --partition {ground.name}:0 --start 0 --end 250`" in again.stderr
    (hour,) = in_time(history, observe(history), *around_now())[1:]
    assert hour == Slice(ground.name, 1, 0, 30)
    for _ in requested(ground, history, TransactionKind.BACKFILL, [hour]):
        pass
    found = verify(ground.base_path, ground.produced)
    assert found.exact, found
    after = observe(history)
    assert after.committed.checkpoint is not None
    assert before.committed.checkpoint is not None
    ends = {TopicPartition(ground.name, 0): 280, TopicPartition(ground.name, 1): 30}
    assert after.committed.checkpoint.offsets == ends
    assert after.committed.checkpoint.covered == {source: ((0, end),) for source, end in ends.items()}
    assert KafkaCluster(history.source).group_offsets(history.group_id, ends) == ends
    assert [row.state for row in ground.ledger.transactions.history(history.name, 20)].count(TransactionState.OPEN) == 0
    with pytest.raises(NothingToDo):
        ground.run(history)
    with pytest.raises(RangeRefused, match=r"active timeline has no commit of it"):
        of_transaction(look_at(history), "never")
    assert what_is_missing(seen(history, after), asked, skip_covered=True) == {asked[0].source: ()}


def around_now() -> tuple[datetime, datetime]:
    now = datetime.now(timezone.utc)
    return now - timedelta(hours=1), now + timedelta(hours=1)


def test_p6_history_that_retention_took_is_refused_before_anything_is_written(
    ground: Ground, history: Pipeline
) -> None:
    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
    for each in admin.delete_records([KafkaTopicPartition(ground.name, 0, 40)]).values():
        each.result(300)
    files = ground.data_files()
    with pytest.raises(
        RangeRefused, match=r"\[0,40\) was deleted from Kafka by retention: its first offset is 40.*--start 40"
    ):
        list(requested(ground, history, TransactionKind.BACKFILL, [Slice(ground.name, 0, 0, 250)]))
    assert ground.data_files() == files
    receipts = list(requested(ground, history, TransactionKind.BACKFILL, [Slice(ground.name, 0, 40, 60)]))
    assert [each.plan.kind for each in receipts] == [TransactionKind.BACKFILL]
    assert sum(1 for n in ground.rows()["n"].to_pylist() if 40 <= n < 60) == 20


def test_a_table_whose_checkpoint_does_not_say_what_it_covers_is_asked_for_it(
    ground: Ground, history: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    situation = observe(history)
    checkpoint = situation.committed.checkpoint
    assert checkpoint is not None
    source = TopicPartition(ground.name, 0)

    object.__setattr__(checkpoint, "covered", {})
    monkeypatch.setattr(PipelineTable, "committed", lambda self: situation.committed)
    known = known_state(seen(history, situation), [source, TopicPartition(ground.name, 1)])
    assert known.covered == {source: ((250, 270),), TopicPartition(ground.name, 1): ()}
    # By the files alone: as if archival had taken the commits.
    bare = replace(situation, committed=replace(situation.committed, commits=()))
    assert known_state(seen(history, bare), [source]).covered == {source: ((250, 270),)}


def test_d1_hours_are_backfilled_and_ranges_are_replayed_from_dagster(
    ground: Ground, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hudi_ingest.orchestration.definitions import build_definitions

    monkeypatch.setenv(HOME_VARIABLE, str(ground.home.root))
    monkeypatch.setenv(LEDGER_VARIABLE, ground.home.ledger_url)
    pipeline = make_pipeline(ground, source={"starting_offsets": "latest"})
    hour = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    for number in range(30):
        at = hour - timedelta(minutes=10) + timedelta(minutes=number)
        value = json.dumps({"id": str(number), "n": number, "dt": "d"}).encode()
        ground.producer.produce(ground.name, value, partition=1, timestamp=int(at.timestamp() * 1000))
    assert ground.producer.flush(300) == 0
    ground.run(pipeline)
    found = build_definitions([pipeline])
    with dagster_on_disk() as instance, coordinated(pipeline, found, instance) as runs:

        def run(job: str, **how: Any) -> dict[str, Any]:
            of_job = found.resolve_job_def(f"hudi_ingest_{job}")
            how = {"partition_key": pipeline.name, **how}
            result = of_job.execute_in_process(instance=instance, **how)
            (output,) = [each.step_output_data for each in result.all_events if each.is_successful_output]
            return {key: each.value for key, each in output.metadata.items()}

        for turn in range(2):
            told = run("backfill_hours", partition_key=f"{pipeline.name}|{hour:%Y-%m-%d-%H}:00")
            assert told["rows"] == (0 if turn else 20)
            assert sorted(ground.rows()["n"].to_pylist()) == list(range(10, 30))
        ranges = [{"topic": ground.name, "partition": 1, "start": 5, "end": 10}]
        told = run("backfill", run_config=config("backfill", ranges=ranges))
        assert (told["rows"], told["transactions"]) == (5, 1)
        (transaction,) = {each.data["transaction"] for each in told["partitions"].records}
        told = run("replay", run_config=config("replay", transaction=transaction, dry_run=True))
        assert (told["files replaced"], told["files rewritten"], told["deleted rows"]) == (1, 0, 0)
        told = run("replay", run_config=config("replay", transaction=transaction))
        assert told["rows"] == 5
        row = ground.ledger.transactions.history(pipeline.name, 1)[0]
        assert (row.owner.kind, row.request_id) == ("dagster", told["request"])
        shown = [
            materialized(each.event_log_entry)
            for each in instance.fetch_materializations(AssetKey(pipeline.name), 9).records
        ]
        figures = [(each.get("replay/rows"), each.get("backfill/rows"), each.get("rows")) for each in shown]
        assert figures[:3] == [(5, None, None), (None, 5, None), (None, 20, None)]
        assert (shown[0]["transaction"], shown[0]["instant"]) == (row.transaction_id, row.instant)
        with pytest.raises(Failure, match="give one of: `ranges`; `from_time`"):
            run("replay", run_config=config("replay"))
    assert runs == ["backfill", "backfill", "replay"]
    assert sorted(ground.rows()["n"].to_pylist()) == list(range(5, 30))


def test_x5_live_transactions_and_a_backfill_take_turns_and_a_failed_op_of_it_is_retried_alone(
    ground: Ground, history: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hudi_ingest.orchestration.definitions import build_definitions

    monkeypatch.setenv(HOME_VARIABLE, str(ground.home.root))
    monkeypatch.setenv(LEDGER_VARIABLE, ground.home.ledger_url)
    ground.send_rows(1, 250, 30)
    real, lost = write_slices, list[str]()

    def lose_once(*arguments: Any) -> Any:
        reports = real(*arguments)
        plan, slices = arguments[2].plan, arguments[3]
        if plan.request and slices[0].partition == 1 and not lost:
            lost.append(plan.transaction_id)
            raise EngineLost("the engine went away")
        return reports

    monkeypatch.setattr(ingest, "write_slices", lose_once)
    asked = [Slice(ground.name, 0, 0, 150), Slice(ground.name, 1, 0, 30)]
    request = new_request(history, TransactionKind.BACKFILL, asked)
    with dagster_on_disk() as instance:
        ground.ledger.requests.note_tick(history.name, datetime.now(timezone.utc))
        commits = fulfil(history, file_request(request, ground.home), home=ground.home, report=lambda line: None)
        with coordinated(history, build_definitions([history]), instance) as runs:
            offsets = sum(piece.count for commit in commits for piece in commit.slices)
    assert offsets == 180
    assert runs[:4] == ["backfill", "ingest", "backfill", "ingest"], "250 live records are three transactions"
    tried = [(each.source.partition, each.attempt) for each in ground.ledger.attempts.of_transaction(lost[0])]
    assert sorted(tried) == [(0, 0), (1, 0), (1, 1)]
    cancelled = ground.ledger.requests.file(
        new_request(history, TransactionKind.BACKFILL, [Slice(ground.name, 0, 150, 250)])
    )
    told = answer(ground.home, "requests", "cancel", cancelled.request_id)
    assert "is cancelled" in told.stdout
    listed = json.loads(answer(ground.home, "requests", "list", history.name, "--json").stdout)
    assert [(each["state"], each["offsets"]) for each in listed] == [("cancelled", 0), ("done", 180)]


def materialized(entry: EventLogEntry) -> dict[str, Any]:
    assert entry.asset_materialization is not None
    return {key: each.value for key, each in entry.asset_materialization.metadata.items()}


def config(job: str, **found: Any) -> dict[str, Any]:
    return {"ops": {job: {"config": found}}}
