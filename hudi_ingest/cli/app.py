"""The command line. Exit codes: 0 success, 1 failure, 2 usage error."""

from __future__ import annotations

from typing import Annotated

import typer

from hudi_ingest.cli.printing import say

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Ingest Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster.",
)
letters = typer.Typer(no_args_is_help=True, help="List, show and retry dead letters: bad records that were kept.")
app.add_typer(letters, name="dead-letters")
requests = typer.Typer(no_args_is_help=True, help="List and cancel backfills, replays and dead-letter retries.")
app.add_typer(requests, name="requests")


def _show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        say(version("hudi-ingest"))
        raise typer.Exit()


@app.callback()
def top_level(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Ingest Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster."""
