"""`make replay-proof RECORDS=1000000`: see the package. Prints what happens and a summary; exits 1 on any finding."""

from __future__ import annotations

import argparse
import bisect
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.sites import LOCAL, SITES
from hudi_ingest.spark.session import EngineConnection, attached_session
from hudi_ingest_tests.replay_proof.judge import Transaction, Verdict, judge_polls, turns
from hudi_ingest_tests.replay_proof.poll import Poll
from hudi_ingest_tests.replay_proof.stage import INTERVAL_SECONDS, NAME, Stage
from hudi_ingest_tests.support.command_line import COMMAND, environment
from hudi_ingest_tests.support.launching import await_end, launch

MOST_SECONDS = 3600
START_SECONDS = 120
"""How long a tick and the start of a run may take on a busy machine."""
_began = time.monotonic()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make replay-proof", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="in the replayed range")
    parser.add_argument("--transactions", type=int, default=10, help="that each replay takes")
    parser.add_argument("--per-second", type=int, default=200, help="live records meanwhile")
    parser.add_argument(
        "--on", choices=SITES, default=LOCAL, help="cluster: the table on S3, a Spark cluster with two workers"
    )
    parser.add_argument("--keep", action="store_true", help="leave the folder with the table, the polls and the logs")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="hudi-ingest-replay-"))
    _say(f"{options.records:,} records, {options.per_second} live ones a second, in {root}")
    with Stage(root, options.on, -(-options.records // options.transactions), _say) as stage:
        asked, spans = _perform(stage, options.records, options.per_second)
        polls, transactions = stage.polls(), stage.transactions()
        spark_says = _read_by_spark(stage)
    findings = _summary(stage, asked, spans, polls, transactions, spark_says)
    if options.keep or findings:
        _say(f"all of it is left in {root}")
    else:
        shutil.rmtree(root)
    return 1 if findings else 0


def _perform(stage: Stage, records: int, per_second: int) -> tuple[dict[int, int], list[tuple[str, float, float]]]:
    """The range, partition → offset behind its last; and of each replay how it was launched, when it began and ended."""
    asked = stage.produce_range(records)
    _say(f"{records:,} records of {stage.from_time:%H:%M} to {stage.to_time:%H:%M} UTC are produced")
    stage.begin_live(per_second)
    stage.begin_reading()
    stage.begin_ticks()
    stage.await_rows(asked, MOST_SECONDS)
    _say("all of them are in the table, a hundred times too large; live records go on")
    stage.convert_by(2)
    spans = [("hudi-ingest replay", *_replay_by_command(stage))]
    _say("now they are a tenth of what they should be")
    stage.convert_by(3)
    spans.append(("the job hudi_ingest_replay", *_replay_by_dagster(stage)))
    stage.end_live()
    stage.await_rows({partition: stage.produced_to(partition) for partition in asked}, MOST_SECONDS)
    stage.end_ticks()
    stage.end_reading()
    return asked, spans


def _replay_by_command(stage: Stage) -> tuple[float, float]:
    window = ("--from-time", _iso(stage.from_time), "--to-time", _iso(stage.to_time))
    _say(f"hudi-ingest replay {NAME} {' '.join(window)}")
    began = time.time()
    running = subprocess.Popen(
        [*COMMAND, "replay", NAME, *window],
        env=environment(stage.home, stage.stack.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    for line in running.stdout:
        _say(f"  {line.rstrip()}")
    assert running.wait(MOST_SECONDS) == 0, f"the command ended with {running.returncode}"
    return began, time.time()


def _replay_by_dagster(stage: Stage) -> tuple[float, float]:
    config = {"from_time": _iso(stage.from_time), "to_time": _iso(stage.to_time)}
    _say(f"the job hudi_ingest_replay of {NAME} with {config}")
    began = time.time()
    run = launch(stage.stack.url, "hudi_ingest_replay", {"ops": {"replay": {"config": config}}}, partition=NAME)
    status = await_end(stage.stack.url, run, MOST_SECONDS)
    assert status == "SUCCESS", f"run {run} ended with {status}; see {stage.home.dagster}"
    return began, time.time()


def _read_by_spark(stage: Stage) -> str:
    """What Spark's own reader of Hudi says of the table, which ends as hudi-rs has seen it."""
    connection = EngineConnection.read(stage.home.engine_file)
    assert connection is not None
    rows = attached_session(connection).read.format("hudi").load(stage.table.base_path)
    (found,) = rows.selectExpr(
        "count(*) AS rows", "count(DISTINCT _kafka_partition, _kafka_offset) AS places"
    ).collect()
    wanted = stage.produced
    return "" if (found.rows, found.places) == (wanted, wanted) else f"{found} and not {wanted} rows of as many places"


def _summary(
    stage: Stage,
    asked: dict[int, int],
    spans: Sequence[tuple[str, float, float]],
    polls: Sequence[Poll],
    transactions: Sequence[Transaction],
    spark_says: str,
) -> int:
    replays = [
        replace(each, version=2 if each.began < spans[1][1] else 3) for each in transactions if each.kind == "replay"
    ]
    complete = next(place for place, each in enumerate(polls) if _has(each, asked))
    verdict = judge_polls(polls[complete:], asked, replays)
    _judge_end(verdict, polls[-1], asked, stage, spark_says)
    for how, began, ended in spans:
        mine = [each for each in replays if began < each.began < ended]
        rows = sum(end - start for each in mine for start, end in each.slices.values())
        if rows != sum(asked.values()):
            verdict.find("not replayed", f"{how} wrote {rows:,} rows anew, not {sum(asked.values()):,}")
        _judge_turns(verdict, stage, how, began, ended, transactions, polls)
        seconds = [each.ended - each.began for each in mine]
        _say(
            f"{how}: {rows:,} rows in {ended - began:.0f} s, {len(mine)} transactions of {min(seconds):.1f} to "
            f"{max(seconds):.1f} s"
        )
    _say(f"the reader polled {verdict.polls} times, and saw of the range's rows (hundredfold, a tenth, right):")
    for state, times in verdict.states.items():
        _say(f"  {times:4} times {state[0]:,}, {state[1]:,}, {state[2]:,}")
    for kind, text in verdict.first.items():
        _say(f"FOUND {kind}, {verdict.findings[kind]} times; first {text}")
    count = verdict.findings.total()
    _say(
        f"records={sum(asked.values())} live={stage.produced - sum(asked.values())} polls={verdict.polls} findings={count}"
    )
    return count


def _judge_end(verdict: Verdict, last: Poll, asked: dict[int, int], stage: Stage, spark_says: str) -> None:
    if last.rows != stage.produced:
        verdict.find("hole", f"the last poll saw {last.rows:,} rows, and {stage.produced:,} were produced")
    right = sum(max(0, min(each.end, asked[each.partition]) - each.start) for each in last.runs if each.version == 3)
    if right != sum(asked.values()):
        verdict.find("wrong value", f"in the end {right:,} of {sum(asked.values()):,} rows are right")
    if spark_says:
        verdict.find("read by Spark", spark_says)


def _judge_turns(
    verdict: Verdict,
    stage: Stage,
    how: str,
    began: float,
    ended: float,
    transactions: Sequence[Transaction],
    polls: Sequence[Poll],
) -> None:
    """The rule (request_planning.request_goes_first): after each range transaction a live one that is due goes first. It may become due
    while the next one is planned, or be due again when the one before it ends, so one may still begin before it."""
    during = [each for each in transactions if began < each.began < ended]
    first = max(
        (each for each in transactions if each.kind == "ingest" and each.began < began), key=lambda each: each.began
    )
    after = min(
        (each for each in transactions if each.kind == "ingest" and each.began > ended), key=lambda each: each.began
    )
    found = turns([first, *during, after], INTERVAL_SECONDS)
    longest = {
        kind: max(e.ended - e.began for e in (*during, after) if e.kind == kind) for kind in ("replay", "ingest")
    }
    for each in found:
        if each.overtaken > 1:
            verdict.find("unfair", f"{how}: {each.overtaken} replays began while {each.name} was due")
        most = longest["ingest"] + longest["replay"] + START_SECONDS
        if each.waited > most:
            verdict.find("unfair", f"{how}: {each.name} waited {each.waited:.0f} s, more than {most:.0f} s")
    waits = sorted(each.waited for each in found)
    lags = [(lag, poll) for poll in polls if began < poll.at < ended and not poll.error for lag in [_lag(stage, poll)]]
    lag, worst = max(lags, key=lambda pair: pair[0])
    live = sum(1 for each in during if each.kind == "ingest")
    _say(
        f"{how}: {live} live transactions took turns with it, due ones waited {waits[len(waits) // 2]:.0f} s (median) and "
        f"{waits[-1]:.0f} s at most; the reader's lag was {lag:,} records at most, read in {worst.until - worst.at:.1f} s"
    )


def _lag(stage: Stage, poll: Poll) -> int:
    """How many records the broker had acknowledged when the poll began that it did not see."""
    times = [at for at, _ in stage.acknowledged]
    place = bisect.bisect_right(times, poll.at) - 1
    return stage.acknowledged[place][1] - poll.rows if place >= 0 else 0


def _has(poll: Poll, ends: dict[int, int]) -> bool:
    return not poll.error and all(poll.ends.get(partition, 0) >= end for partition, end in ends.items())


def _iso(at: object) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _say(line: str) -> None:
    sys.stdout.write(f"{time.monotonic() - _began:6.0f} s  {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
