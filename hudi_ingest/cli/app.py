"""The command line: its panels, the options that several commands share, the parsing of their values, and the printing of results.

Results go to standard output, progress and errors to standard error. Exit codes: 0 success, 1 failure, 2 usage error.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
from typer.core import TyperGroup

import hudi_ingest
from hudi_ingest.exceptions import NothingToDo
from hudi_ingest.home.folder import Home
from hudi_ingest.model.offsets import TopicPartition

if TYPE_CHECKING:
    from hudi_ingest.model.plan import IngestPlan, OffsetLoss
    from hudi_ingest.model.report import CommitReceipt
    from hudi_ingest.model.transaction import TransactionSchema
    from hudi_ingest.pipeline.pipeline import Pipeline


def _open_what_is_closed() -> None:
    """Let closed standard streams lead nowhere, as daemons start programs (`up >&-`): the next file that is opened would take their place,
    and get what others print."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115 - for good


_open_what_is_closed()
PIPED_WIDTH = 140
"""Width of tables that go into a file or a pipe."""


class _Sign:
    """A line on a terminal that says that the command is at work, until its first output: imports alone take seconds on a busy machine."""

    def __init__(self) -> None:
        self._shown = False

    def show(self, text: str) -> None:
        if sys.stderr.isatty():
            self._shown = True
            sys.stderr.write(f"\x1b[2m· {text}\x1b[0m")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            self._shown = False
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


sign = _Sign()


class _Console(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        sign.clear()
        super().print(*objects, **options)


out = _Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
err = _Console(stderr=True, soft_wrap=True, highlight=False)
PANELS = {
    "A stack on this machine": ("demo", "up", "down", "engine"),
    "Pipelines": (
        *("new", "validate", "plan", "sample", "run", "status", "head", "query"),
        *("pause", "resume", "topics", "approve-schema"),
    ),
    "When something is wrong": ("doctor", "accept-loss", "dead-letters", "recover", "test-alerts"),
    "History": ("backfill", "replay", "requests"),
    "Tables": ("files", "audit", "services", "sweep", "ttl", "savepoints", "sync-catalog"),
    "Servers and upkeep": ("serve", "code-server", "housekeeping"),
}
"""How `--help` lists the commands."""
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


class _InPanels(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=[*_PANEL_OF].index)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None:
            # Typer's help groups by this attribute, and breaks lines where a docstring does.
            command.rich_help_panel = _PANEL_OF[cmd_name]
            command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help or ""))
        return command


app = typer.Typer(
    cls=_InPanels,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Ingest Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster.",
)
letters = typer.Typer(no_args_is_help=True, help="List, show and retry dead letters: bad records that were kept.")
app.add_typer(letters, name="dead-letters")
requests = typer.Typer(no_args_is_help=True, help="List and cancel backfills, replays and dead-letter retries.")
app.add_typer(requests, name="requests")


def _show_version(requested: bool) -> None:
    if requested:
        say(hudi_ingest.__version__)
        raise typer.Exit()


@app.callback()
def top_level(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Ingest Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster."""
    # Before the command's own imports.
    sign.show(f"{context.invoked_subcommand} …")
    context.call_on_close(sign.clear)


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def names_beginning(incomplete: str) -> list[str]:
    """Return the files' own names, for the shell, because loading them takes longer than a person waits for a completion."""
    files = Home.from_environment().pipelines.glob("*.y*ml")
    return sorted(file.stem for file in files if file.stem.startswith(incomplete))


PipelineName = Annotated[
    str,
    typer.Argument(metavar="PIPELINE", help="Name of a pipeline, or path of its file.", autocompletion=names_beginning),
]
KAFKA_PORT = typer.Option(min=1, max=65535, help="Kafka broker port on 127.0.0.1.")
UI_PORT = typer.Option(min=1, max=65535, help="Dagster UI port on 127.0.0.1.")
MASTER = typer.Option(help="Spark master of the engine, like local[*] or spark://host:7077.")
MEMORY = typer.Option(help="Driver memory of the engine, like 2g.")
DRIVER_HOST = typer.Option(help="Name or address by which a cluster's executors reach the engine.")
KafkaPort = Annotated[int, KAFKA_PORT]
UiPort = Annotated[int, UI_PORT]

RangePartition = Annotated[
    str | None,
    typer.Option(
        "--partition",
        metavar="TOPIC:PARTITION",
        help="Kafka partition; requires --start, and --end unless the table is keyed.",
    ),
]
RangeStart = Annotated[int | None, typer.Option(min=0, help="First offset.")]
RangeEnd = Annotated[int | None, typer.Option(min=0, help="End offset, exclusive.")]
FromTime = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="From this Kafka timestamp in all partitions, e.g. 2026-01-31T00:00:00Z."),
]
ToTime = Annotated[
    str | None, typer.Option(metavar="TIME", help="Up to this Kafka timestamp, exclusive; not for keyed tables.")
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait/--no-wait", help="Wait and show each commit until it is done, or leave it to the coordinator."
    ),
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")]


def named_pipeline(name: str) -> Pipeline:
    from hudi_ingest.pipeline.folder import find_pipeline

    return find_pipeline(Home.from_environment().pipelines, name)


def is_pattern(name: str) -> bool:
    return any(character in name for character in "*?[")


def pipelines_like(text: str) -> tuple[Pipeline, ...]:
    """The pipelines whose names match a shell pattern; files that cannot be loaded are passed over. Raises NoSuchPipeline."""
    from hudi_ingest.exceptions import NoSuchPipeline
    from hudi_ingest.pipeline.folder import load_each

    folder = Home.from_environment().pipelines
    found = tuple(pipeline for pipeline in load_each(folder)[0] if fnmatchcase(pipeline.name, text))
    if not found:
        raise NoSuchPipeline(str(folder), [f"no pipeline has a name like {text}"])
    return found


def topic_partition(text: str) -> TopicPartition:
    try:
        return TopicPartition.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"--partition: {error}") from error


def partition_offset(text: str) -> tuple[TopicPartition, int]:
    source, _, number = text.rpartition(":")
    topic, _, partition = source.rpartition(":")
    if not topic or not partition.isdecimal() or not number.isdecimal():
        raise typer.BadParameter(f"--from expects TOPIC:PARTITION:OFFSET, e.g. orders:3:1200; found {text!r}")
    return TopicPartition(topic, int(partition)), int(number)


def say(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def progress(line: str) -> None:
    err.print(f"· {line}", style="dim", markup=False)


@contextmanager
def clock(first: str = "") -> Iterator[Callable[[str], None]]:
    """Yield `progress` for steps that may take long: on a terminal, a clock below the last line shows that its step goes on."""
    columns = SpinnerColumn(style="dim"), TimeElapsedColumn()
    options: dict[str, Any] = {"console": err, "transient": True, "redirect_stdout": False, "refresh_per_second": 4}
    with Progress(*columns, disable=not err.is_terminal, **options) as shown:
        step = shown.add_task("")

        def report(line: str) -> None:
            progress(line)
            shown.reset(step)

        if first:
            report(first)
        yield report


@contextmanager
def usage_error_for_wrong_selection() -> Iterator[None]:
    from hudi_ingest.operations.requests.asked_ranges import WrongSelection

    try:
        yield
    except WrongSelection as error:
        raise typer.BadParameter(str(error)) from error


def show_schema(schema: TransactionSchema | None) -> None:
    from hudi_ingest.cli.views import columns_view, schema_text
    from hudi_ingest.records.schema.columns import parse_spark_json

    if schema is not None:
        say(schema_text(schema))
        out.print(columns_view(parse_spark_json(schema.columns)))


def print_result(as_json: bool, facts: Any, shown: RenderableType) -> None:
    """Print a command's result: its facts as JSON, or as it is shown to people."""
    if as_json:
        print_json(facts)
    elif isinstance(shown, str):
        say(shown)
    else:
        out.print(shown)


def print_nothing_to_do(error: NothingToDo, as_json: bool) -> None:
    print_result(as_json, {"skip": error.reason}, f"nothing to do: {error.reason}")


@contextmanager
def ended_by_nothing_to_do(as_json: bool) -> Iterator[None]:
    """End the command with success if there is nothing to do, and say why."""
    try:
        yield
    except NothingToDo as error:
        print_nothing_to_do(error, as_json)
        raise typer.Exit from None


def print_plan(plan: IngestPlan, as_json: bool) -> None:
    from hudi_ingest.cli.views import slices_view

    if as_json:
        print_json(plan.to_dict())
    else:
        out.print(slices_view(plan.transaction_id, plan.slices))
        if plan.take_over is not None:
            say(f"{plan.take_over}")
        say_left_out(plan.pipeline, plan.stopped, plan.resets, plan.leaderless)


def print_receipt(receipt: CommitReceipt, as_json: bool) -> None:
    from hudi_ingest.cli.views import receipt_text

    for warning in receipt.warnings:
        err.print(f"warning: {warning}", markup=False)
    if as_json:
        print_json(receipt.to_dict())
    else:
        say(receipt_text(receipt))
        plan = receipt.plan
        say_left_out(plan.pipeline, plan.stopped, plan.resets, plan.leaderless)


def say_left_out(
    pipeline: str,
    stopped: Sequence[OffsetLoss],
    resets: Sequence[OffsetLoss] = (),
    leaderless: Sequence[TopicPartition] = (),
) -> None:
    # Not wrapped, so that its commands can be copied.
    from hudi_ingest.transaction.plan.arithmetic import left_out_text

    for title, text in left_out_text(pipeline, stopped, resets, leaderless).items():
        out.print(f"{title}:\n{text}", style="red", markup=False, highlight=False, soft_wrap=True)


def print_json(facts: Any) -> None:
    sign.clear()
    sys.stdout.write(json.dumps(facts, indent=2) + "\n")
