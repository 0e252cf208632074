"""The demo: the embedded stack, a producer of sample orders, and the coordinator turned on."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.resources import files

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from hudi_ingest.cli.views import status_view
from hudi_ingest.exceptions import EnvironmentProblem, IngestError, KafkaUnreachable, TableUnreachable
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.progress import Report, one_interrupt
from hudi_ingest.local.samples import PARTITIONS, TOPIC, OrderProducer
from hudi_ingest.local.stack import Stack, StackSettings, bring_down, bring_up
from hudi_ingest.local.verification import Verification, verify
from hudi_ingest.operations.state import PipelineState, state_now
from hudi_ingest.orchestration.switch import switch
from hudi_ingest.pipeline.folder import find_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline

RECORDS_ONCE = 200_000
PER_SECOND = 2_000
ONCE_SECONDS = 900
_REFRESH_SECONDS = 2.0
_REPORT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class OnceResult:
    """The outcome of `demo --once`."""

    verification: Verification
    commits: int
    seconds: float


def run_demo(home: Home, settings: StackSettings, console: Console, report: Report) -> None:
    """Run until Ctrl-C, SIGTERM or the end of the terminal, then stop everything it started. A terminal shows a live view, a file
    or a pipe a line for each commit. Raises EnvironmentProblem."""
    _refuse_running(home)
    stopping = threading.Event()
    with one_interrupt() as ignore_further:
        try:
            stack, pipeline = _begin(home, settings, report)
            producer = OrderProducer(stack.bootstrap_servers, seed=int(time.time()))
            thread = threading.Thread(target=producer.keep_producing, args=(PER_SECOND, stopping), daemon=True)
            thread.start()
            with (
                Ledger.open(home.ledger_url) as ledger,
                Live(console=console, screen=False, auto_refresh=False)
                if console.is_terminal
                else nullcontext() as live,
            ):
                reported = 0
                while True:
                    status = _status(pipeline, ledger)
                    if live is not None:
                        live.update(_view(status, stack, producer), refresh=True)
                    elif isinstance(status, PipelineState) and (status.sequence or 0) > reported:
                        reported = status.sequence or 0
                        committed = sum(partition.committed or 0 for partition in status.partitions)
                        report(f"transaction {reported}: {committed:,} of {producer.count:,} orders committed")
                    time.sleep(_REFRESH_SECONDS)
        except KeyboardInterrupt:
            report("stopping everything")
        finally:
            ignore_further()
            stopping.set()
            bring_down(home, report)
            report("stopped")


def run_once(home: Home, settings: StackSettings, report: Report) -> OnceResult:
    """Ingest RECORDS_ONCE new orders into an empty home by sensor-launched runs, read them back and stop everything.

    Raises EnvironmentProblem, also if they are not all committed within ONCE_SECONDS.
    """
    bring_down(home, report)
    shutil.rmtree(home.root, ignore_errors=True)
    began = time.monotonic()
    with one_interrupt() as ignore_further:
        try:
            stack, pipeline = _begin(home, settings, report)
            producer = OrderProducer(stack.bootstrap_servers, seed=1)
            producer.produce(RECORDS_ONCE)
            report(f"{producer.count:,} orders produced; waiting for sensor-launched runs to commit them")
            commits = _await_all_committed(pipeline, home, began, report)
            report("reading the table back with hudi-rs")
            return OnceResult(
                verify(pipeline.table.base_path, producer.acknowledged), commits, time.monotonic() - began
            )
        finally:
            ignore_further()
            bring_down(home, report)


def _begin(home: Home, settings: StackSettings, report: Report) -> tuple[Stack, Pipeline]:
    _provide_pipeline(home, report)
    stack = bring_up(home, settings, report)
    create_topic(stack.bootstrap_servers, TOPIC, PARTITIONS)
    pipeline = find_pipeline(home.pipelines, TOPIC, stack.environment)
    switch(home, pipeline, True)
    report(f"pipeline {pipeline.name} is on; the Dagster UI is at {stack.url}")
    return stack, pipeline


def _provide_pipeline(home: Home, report: Report) -> None:
    """Write the sample pipeline's file if the pipelines folder is missing or empty, as it is outside of a clone."""
    home.pipelines.mkdir(parents=True, exist_ok=True)
    if not any(home.pipelines.iterdir()):
        file = home.pipelines / "orders.yaml"
        file.write_text(files("hudi_ingest.local").joinpath("orders.yaml").read_text("utf-8"), "utf-8")
        report(f"wrote {file}, the pipeline of this demo")


def _await_all_committed(pipeline: Pipeline, home: Home, began: float, report: Report) -> int:
    reported, reported_at = -1, began
    with Ledger.open(home.ledger_url) as ledger:
        while True:
            status = _status(pipeline, ledger)
            if isinstance(status, PipelineState):
                committed = sum(partition.committed or 0 for partition in status.partitions)
                if committed != reported or time.monotonic() - reported_at > _REPORT_SECONDS:
                    reported, reported_at = committed, time.monotonic()
                    report(f"{reported_at - began:.0f} s: {committed:,} of {RECORDS_ONCE:,} committed")
                if committed == RECORDS_ONCE:
                    return status.sequence or 0
            if time.monotonic() - began > ONCE_SECONDS:
                raise EnvironmentProblem(
                    f"not all records were committed within {ONCE_SECONDS} s. Look for the runs' errors in {home.logs} and {home.dagster}."
                )
            time.sleep(_REFRESH_SECONDS)


def _status(pipeline: Pipeline, ledger: Ledger) -> PipelineState | IngestError:
    try:
        return state_now(pipeline, ledger)
    except (KafkaUnreachable, TableUnreachable) as error:
        return error


def _view(status: PipelineState | IngestError, stack: Stack, producer: OrderProducer) -> RenderableType:
    body = status_view(status) if isinstance(status, PipelineState) else Text(str(status), style="yellow")
    foot = Text(
        f"{producer.count:,} orders produced in this session   Dagster UI {stack.url}   Ctrl-C stops everything"
    )
    return Group(body, foot)


def _refuse_running(home: Home) -> None:
    if Stack.read(home) is not None:
        raise EnvironmentProblem(
            f"a stack is already running in {home.root}, or was left behind there. Stop it first with `hudi-ingest down`."
        )
