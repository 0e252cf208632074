"""`make many-topics TOPICS=100`: see the package. Prints what happens; exits 1 unless all is found, mended and complete."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from hudi import HudiReadOptions, HudiTable

from hudi_ingest_tests.many_topics.stage import Stage, elapsed_since, print_now
from hudi_ingest_tests.simulation.trace import read, violation
from hudi_ingest_tests.support.waiting import NotInTime, wait_for

RECORDS = 200
"""Of each topic, before anything is broken."""
ALL_SECONDS = 1800
ALERT_SECONDS = 300
POISON = "{this is no JSON"
_began = time.monotonic()


@dataclass(frozen=True, slots=True)
class Breakage:
    """Something that goes wrong with `topic`, the alert that tells of it, and what its text says to do."""

    title: str
    alert: str
    do: Callable[[Stage, str], None]
    mend: Callable[[Stage, str], None]
    subject: str = "pipeline {topic}"
    """What `hudi-ingest doctor` calls it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make many-topics", description=__doc__)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--keep", action="store_true", help="leave the folder with tables and logs")
    options = parser.parse_args()
    if shutil.which("prometheus") is None:
        print_now("error: no `prometheus` on the PATH; install it, on Debian with `apt-get install prometheus`")
        return 2
    root = Path(tempfile.mkdtemp(prefix="hudi-ingest-topics-"))
    topics = [f"shop_{number:03d}" for number in range(options.topics)]
    with Stage(root, say) as stage:
        findings = [*_perform(stage, topics)]
    for finding in findings:
        say(f"FINDING {finding}")
    say(f"topics={len(topics)} breakages={len(BREAKAGES)} findings={len(findings)}")
    if options.keep or findings:
        say(f"all of it is left in {root}")
    else:
        shutil.rmtree(root)
    return 1 if findings else 0


def _perform(stage: Stage, topics: list[str]) -> list[str]:
    findings: list[str] = []
    for topic in topics:
        stage.create_topic(topic)
        stage.produce(topic, RECORDS)
    say(f"{len(topics)} topics with {RECORDS} records each")
    for topic in topics:
        stage.rest("POST", "/pipelines", {"settings": pipeline_file(stage, topic)})
    say(f"{len(topics)} pipelines created by POST /api/v1/pipelines; their sensors are on")
    expected = len(topics) * RECORDS
    _await(
        lambda: _sum(stage, "sum(hudi_ingest_rows_total)") >= expected, f"{expected:,} rows in the metrics", ALL_SECONDS
    )
    say(f"Prometheus counts {expected:,} rows in {len(topics)} tables; firing: {_firing_text(stage)}")
    broken = topics[len(topics) // 2]
    for number, breakage in enumerate(BREAKAGES, 1):
        say(f"--- {number}. {breakage.title}")
        findings += _break_and_mend(stage, breakage, broken)
        for topic in topics[:5]:
            stage.produce(topic, 10)
    stage.produce(broken, 50)
    for topic in topics:
        _await_all_read(stage, topic)
    say(f"nothing waits any more; firing: {_firing_text(stage)}")
    findings += [finding for topic in topics for finding in _verify(stage, topic)]
    out_of_order = violation(read(stage.home.transactions_log))
    return [*findings, out_of_order] if out_of_order else findings


def _break_and_mend(stage: Stage, breakage: Breakage, topic: str) -> list[str]:
    breakage.do(stage, topic)
    broken_at = time.monotonic()
    about = f"{breakage.alert} {topic}.yaml" if breakage.subject.startswith("file") else f"{breakage.alert} {topic}"
    try:
        _await(lambda: about in stage.firing(), f"the alert {about} fires", ALERT_SECONDS)
    except NotInTime as late:
        firing = _firing_text(stage)
        breakage.mend(stage, topic)
        return [f"{breakage.title}: {late}; firing: {firing}"]
    alert = stage.firing()[about]["annotations"]
    say(f"alert after {time.monotonic() - broken_at:.0f} s: {alert['summary']}")
    say(f"  {alert['description']}")
    for line in stage.doctor(breakage.subject.format(topic=topic)):
        say(f"  doctor: {' '.join(line.split())}")
    breakage.mend(stage, topic)
    mended_at = time.monotonic()
    try:
        _await(lambda: about not in stage.firing(), f"the alert {about} is over", ALERT_SECONDS)
    except NotInTime as late:
        return [f"{breakage.title}: {late}"]
    say(f"over {time.monotonic() - mended_at:.0f} s after it was mended")
    return []


def pipeline_file(stage: Stage, topic: str) -> dict[str, object]:
    return {
        "name": topic,
        "enabled": True,
        "source": {"bootstrap_servers": stage.stack.bootstrap_servers, "topics": [topic]},
        "table": {
            "base_path": str(stage.home.tables / topic),
            "schema": "id string, amount double",
        },
        "transaction": {"interval_seconds": 10, "timeout_seconds": 120, "retries": 0},
    }


def _write_poison(stage: Stage, topic: str) -> None:
    stage.produce_text(topic, POISON)
    stage.produce(topic, 20)


def _keep_bad_records(stage: Stage, topic: str) -> None:
    say("  mended: PUT with on_bad_record: dead_letter")
    settings = {**pipeline_file(stage, topic), "on_bad_record": "dead_letter"}
    version = stage.rest("GET", f"/pipelines/{topic}")["version"]
    stage.rest("PUT", f"/pipelines/{topic}", {"settings": settings}, If_Match=f'"{version}"')


def _lose_records(stage: Stage, topic: str) -> None:
    """Retention deletes records that were not ingested, while the pipeline is paused."""
    _await_all_read(stage, topic)
    _pause(stage, topic)
    end = stage.end_offset(topic)
    before = len(stage.sent[topic])
    stage.produce(topic, 30)
    stage.delete_records(topic, end + 10)
    del stage.sent[topic][before : before + 10]
    stage.rest("POST", f"/pipelines/{topic}/resume")


def _accept_loss(stage: Stage, topic: str) -> None:
    say("  mended: POST accept-loss of the partition")
    stage.rest("POST", f"/pipelines/{topic}/accept-loss", {"partitions": [{"topic": topic, "partition": 0}]})


def _accept_new_topic(stage: Stage, topic: str) -> None:
    say("  mended: POST accept-loss of the topic")
    stage.rest("POST", f"/pipelines/{topic}/accept-loss", {"topics": [topic]})


def _edit_wrongly(stage: Stage, topic: str) -> None:
    file = stage.home.pipelines / f"{topic}.yaml"
    file.write_text(file.read_text().replace("interval_seconds: 10", "interval_seconds: ten"))


def _put_back(stage: Stage, topic: str) -> None:
    say("  mended: PUT with the right interval_seconds")
    settings = {**pipeline_file(stage, topic), "on_bad_record": "dead_letter"}
    stage.rest("PUT", f"/pipelines/{topic}", {"settings": settings}, If_Match="*")


def _pause(stage: Stage, topic: str) -> None:
    """Return when the metrics have it, too, as a tick that had begun may still take the records that come next."""
    stage.rest("POST", f"/pipelines/{topic}/pause")
    enabled = f'hudi_ingest_pipeline_enabled{{pipeline="{topic}"}}'
    _await(lambda: _sum(stage, enabled) == 0, f"{topic} is paused", ALERT_SECONDS)


def _pause_and_forget(stage: Stage, topic: str) -> None:
    _pause(stage, topic)
    stage.produce(topic, 40)


def _resume(stage: Stage, topic: str) -> None:
    say("  mended: POST resume")
    stage.rest("POST", f"/pipelines/{topic}/resume")


def _recreate(stage: Stage, topic: str) -> None:
    _await_all_read(stage, topic)
    stage.delete_topic(topic)
    stage.create_topic(topic)
    stage.produce(topic, 30)


def _await_all_read(stage: Stage, topic: str) -> None:
    """Wait until the metrics know that all records of the topic are committed."""
    end = stage.end_offset(topic)
    committed = f'sum(hudi_ingest_committed_offset{{pipeline="{topic}"}})'
    _await(lambda: _sum(stage, committed) >= end, f"{topic} is committed to offset {end}", ALERT_SECONDS)


BREAKAGES = (
    Breakage("a record that is no JSON", "HudiIngestRunsFail", _write_poison, _keep_bad_records),
    Breakage(
        "retention deletes records before they are read", "HudiIngestPartitionStopped", _lose_records, _accept_loss
    ),
    Breakage(
        "the pipeline file is edited wrongly",
        "HudiIngestPipelineFileBroken",
        _edit_wrongly,
        _put_back,
        "file {topic}.yaml",
    ),
    Breakage("the pipeline is paused and forgotten", "HudiIngestPausedWithLag", _pause_and_forget, _resume),
    Breakage("the topic is deleted and created again", "HudiIngestPartitionStopped", _recreate, _accept_new_topic),
)


def _verify(stage: Stage, topic: str) -> list[str]:
    columns = HudiReadOptions().with_projection(["id"])
    rows = pa.Table.from_batches(HudiTable(str(stage.home.tables / topic)).read(columns))
    seen, expected = Counter(rows["id"].to_pylist()), set(stage.sent[topic])
    missing, foreign = expected - seen.keys(), seen.keys() - expected
    twice = [identifier for identifier, count in seen.items() if count > 1]
    wrong = [f"{len(ids)} {what}" for ids, what in ((missing, "lost"), (twice, "twice"), (foreign, "foreign")) if ids]
    return [f"{topic}: {', '.join(wrong)}"] if wrong else []


def _sum(stage: Stage, expression: str) -> float:
    samples = stage.query(expression)
    return float(samples[0]["value"][1]) if samples else -1.0


def _firing_text(stage: Stage) -> str:
    return ", ".join(sorted(stage.firing())) or "nothing"


def _await(condition: Callable[[], bool], what: str, seconds: float) -> None:
    wait_for(condition, what, seconds, pause_seconds=1.0)


def say(line: str) -> None:
    print_now(f"{elapsed_since(_began)}  {line}")


if __name__ == "__main__":
    sys.exit(main())
