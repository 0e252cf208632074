"""dead-letters: list, show and retry records that could not become rows."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hudi_ingest.hudi.storage import TableStorage
    from hudi_ingest.transaction.dead_letters.log import WaitingFile
from hudi_ingest.cli.app import letters
from hudi_ingest.cli.options import AsJson, DryRun, PipelineName, Wait, named_pipeline, topic_partition
from hudi_ingest.cli.printing import print_json, say
from hudi_ingest.cli.request_commands import retry_letters


@letters.command("list")
def list_letters(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Count the dead letters that wait, by commit, partition and what is wrong."""
    from hudi_ingest.cli.views import letters_text
    from hudi_ingest.transaction.dead_letters.reading import count_letters

    storage, waiting = _waiting_letters(pipeline)
    found = count_letters(storage, waiting)
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        say(letters_text(found))


@letters.command("show")
def show_letters(
    pipeline: PipelineName,
    partition: Annotated[str, typer.Option(metavar="TOPIC:PARTITION", help="Only those of this partition.")] = "",
    offset: Annotated[int | None, typer.Option(min=0, help="Only the one at this offset.")] = None,
    error: Annotated[str, typer.Option(metavar="TEXT", help="Only those with this text in what is wrong.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Not more than this many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show dead letters that wait: where each is from, what is wrong with it, and its bytes."""
    from hudi_ingest.cli.views import letter_text
    from hudi_ingest.transaction.dead_letters.reading import find_letters

    storage, waiting = _waiting_letters(pipeline)
    source = topic_partition(partition) if partition else None
    found = itertools.islice(find_letters(storage, waiting, source=source, offset=offset, text=error), limit)
    if as_json:
        print_json([each.to_dict() for each in found])
    else:
        say("\n".join(letter_text(each) for each in found) or "no dead letter matches")


@letters.command("retry")
def retry(pipeline: PipelineName, wait: Wait = True, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Try all dead letters again, after a fix: those that can become rows now are put into the table, once."""
    retry_letters(named_pipeline(pipeline), wait, dry_run, as_json)


def _waiting_letters(name: str) -> tuple[TableStorage, tuple[WaitingFile, ...]]:
    from hudi_ingest.hudi.storage import TableStorage
    from hudi_ingest.hudi.timeline import Timeline
    from hudi_ingest.transaction.dead_letters.log import DeadLetterLog

    pipeline = named_pipeline(name)
    committed = Timeline(pipeline.table.base_path).committed(pipeline.checkpoint_key, pipeline.transaction_key)
    storage = TableStorage(pipeline.table.base_path)
    return storage, DeadLetterLog(storage).waiting(committed.checkpoint.letters if committed.checkpoint else None)
