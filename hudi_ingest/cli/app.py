"""The command line. Exit codes: 0 success, 1 failure, 2 usage error."""

from __future__ import annotations

import inspect
import re
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hudi_ingest.cli.printing import say

PANELS = {
    "A stack on this machine": ("demo", "cluster-demo", "cdc-demo", "up", "down", "engine"),
    "Pipelines": ("validate", "plan", "sample", "run", "status", "pause", "resume", "topics", "approve-schema"),
    "When something is wrong": ("doctor", "accept-loss", "dead-letters", "recover", "test-alerts"),
    "History": ("backfill", "replay", "requests"),
    "Tables": ("files", "services", "sweep", "ttl", "savepoints", "sync-catalog"),
    "Servers and upkeep": ("serve", "housekeeping"),
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
