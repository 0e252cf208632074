"""`dead-letters`: list, show and retry records that could not become rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from hudi_ingest.cli.app import letters
from hudi_ingest.cli.options import AsJson, DryRun, PipelineName, Wait, named_pipeline, topic_partition
from hudi_ingest.cli.printing import print_json, say
from hudi_ingest.cli.request_commands import retry_letters


@letters.command("list")
def list_letters(name: PipelineName, as_json: AsJson = False) -> None:
    """Count pending dead letters by commit, partition and error."""
    from hudi_ingest.cli.views import letters_text
    from hudi_ingest.operations.requests.pending_letters import letter_counts

    counts = letter_counts(named_pipeline(name))
    if as_json:
        print_json([asdict(count) for count in counts])
    else:
        say(letters_text(counts))


@letters.command("show")
def show_letters(
    name: PipelineName,
    partition: Annotated[str, typer.Option(metavar="TOPIC:PARTITION", help="Only letters from this partition.")] = "",
    offset: Annotated[int | None, typer.Option(min=0, help="Only the letter at this offset.")] = None,
    error: Annotated[str, typer.Option(metavar="TEXT", help="Only letters whose error contains this text.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show pending dead letters: where each came from, what is wrong with it, and its bytes."""
    from hudi_ingest.cli.views import letter_text
    from hudi_ingest.operations.requests.pending_letters import pending_letters

    source = topic_partition(partition) if partition else None
    matches = pending_letters(named_pipeline(name), source, offset, error, limit)
    if as_json:
        print_json([letter.to_dict() for letter in matches])
    else:
        say("\n".join(letter_text(letter) for letter in matches) or "no dead letters match")


@letters.command("retry")
def retry(name: PipelineName, wait: Wait = True, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Retry all dead letters after a fix. Those that can become rows now are added to the table, once."""
    retry_letters(named_pipeline(name), wait, dry_run, as_json)
