"""Options that several commands have, and what their texts mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hudi_ingest.home.folder import Home
from hudi_ingest.local.stack import StackSettings
from hudi_ingest.model.offsets import TopicPartition

if TYPE_CHECKING:
    from hudi_ingest.pipeline.pipeline import Pipeline


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline's name, or the path of its file.")]
KAFKA_PORT = typer.Option(min=1, max=65535, help="The broker's port on 127.0.0.1.")
UI_PORT = typer.Option(min=1, max=65535, help="The Dagster UI's port on 127.0.0.1.")
MASTER = typer.Option(help="Spark master of the engine.")
MEMORY = typer.Option(help="Memory of the engine's driver.")
KafkaPort = Annotated[int, KAFKA_PORT]
UiPort = Annotated[int, UI_PORT]
Master = Annotated[str, MASTER]
Memory = Annotated[str, MEMORY]

RangePartition = Annotated[
    str | None, typer.Option("--partition", metavar="TOPIC:PARTITION", help="With --start and --end.")
]
RangeStart = Annotated[int | None, typer.Option(min=0, help="The first offset.")]
RangeEnd = Annotated[int | None, typer.Option(min=0, help="The end offset, exclusive.")]
FromTime = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Of all partitions, from this Kafka timestamp, as 2026-01-31T00:00:00Z."),
]
ToTime = Annotated[str | None, typer.Option(metavar="TIME", help="Up to, but not including, this Kafka timestamp.")]
Wait = Annotated[
    bool,
    typer.Option("--wait/--no-wait", help="Show its commits until it is done, or leave it to the coordinator at once."),
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")]

DEFAULTS = StackSettings()


def named_pipeline(name: str) -> Pipeline:
    from hudi_ingest.pipeline.file import find_pipeline

    return find_pipeline(Home.from_environment().pipelines, name)


def topic_partition(text: str) -> TopicPartition:
    try:
        return TopicPartition.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"--partition: {error}") from error


def partition_offset(text: str) -> tuple[TopicPartition, int]:
    source, _, number = text.rpartition(":")
    topic, _, partition = source.rpartition(":")
    if not topic or not partition.isdecimal() or not number.isdecimal():
        raise typer.BadParameter(f"--from wants TOPIC:PARTITION:OFFSET, like orders:3:1200; found {text!r}")
    return TopicPartition(topic, int(partition)), int(number)
