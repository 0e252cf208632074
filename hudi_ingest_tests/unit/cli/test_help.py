"""The list of commands."""

from __future__ import annotations

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from hudi_ingest.cli.app import PANELS, app

pytestmark = pytest.mark.fast


def test_help_lists_each_command_once_in_the_order_of_the_panels() -> None:
    listed = [name for names in PANELS.values() for name in names]
    assert sorted(get_command(app).commands) == sorted(listed)  # type: ignore[attr-defined]
    text = CliRunner().invoke(app, ["--help"]).output
    shown = [line.split()[1] for line in text.splitlines() if line.startswith("│ ") and line[2].isalpha()]
    assert shown == listed
    assert [panel for panel in PANELS if f"─ {panel} ─" not in text] == []
