"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from hudi_ingest.home.folder import Home
from hudi_ingest.local.stack import StackSettings
from hudi_ingest.model.offsets import TopicPartition

if TYPE_CHECKING:
    from hudi_ingest.pipeline.pipeline import Pipeline


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="Name of a pipeline, or path of its file.")]
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

DEFAULTS = StackSettings()


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
