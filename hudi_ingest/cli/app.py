"""The command line. Exit code 0: done, 1: failed, 2: wrong use."""

from __future__ import annotations

from typing import Annotated

import typer

from hudi_ingest.cli.printing import say

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster.",
)
letters = typer.Typer(no_args_is_help=True, help="See bad records that were kept, and try them again.")
app.add_typer(letters, name="dead-letters")
requests = typer.Typer(no_args_is_help=True, help="See and cancel backfills, replays and retries of dead letters.")
app.add_typer(requests, name="requests")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(version("hudi-ingest"))
        raise typer.Exit()


@app.callback()
def top_level(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster."""
