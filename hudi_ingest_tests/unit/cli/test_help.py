"""The list of commands."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize("words", [(), ("run",), ("requests",), ("requests", "list")])
def test_h_is_short_for_help(words: tuple[str, ...]) -> None:
    short, long = (CliRunner().invoke(app, [*words, option]) for option in ("-h", "--help"))
    assert (short.exit_code, short.output) == (0, long.output)


def test_the_shell_completes_commands_and_pipelines(tmp_path: Path) -> None:
    for name in ("orders.yaml", "others.yml", "clicks.yaml", "notes.txt"):
        (tmp_path / name).touch()
    typed = {"plan o": "orders\nothers", "stat": "status"}
    for line, completions in typed.items():
        words = {"COMP_WORDS": f"hudi-ingest {line}", "COMP_CWORD": str(len(line.split()))}
        own = {"_HUDI_INGEST_COMPLETE": "complete_bash", "HUDI_INGEST_PIPELINES": str(tmp_path), **words}
        found = CliRunner(env=own).invoke(app, [], prog_name="hudi-ingest")
        assert found.output.strip() == completions


HEAVY = ("pyspark", "numpy", "pyarrow", "dagster", "sqlalchemy", "pydantic", "confluent_kafka", "hudi")


def test_a_command_is_known_before_anything_large_is_imported() -> None:
    code = f"import hudi_ingest.cli, sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "", "imports of seconds, before the first sign of life"


def test_on_a_terminal_a_command_says_at_once_that_it_is_at_work(tmp_path: Path) -> None:
    own, theirs = pty.openpty()
    command = [sys.executable, "-m", "hudi_ingest.cli", "validate", str(tmp_path / "none.yaml")]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(own, 4096)
            except OSError:
                break
        process.wait()
    os.close(own)
    assert "· validate …".encode() in shown.partition(b"\r")[0]
    assert b"\x1b[2K" in shown, "it gives way to the command's own words"
    assert shown.index(b"\x1b[2K") < shown.index(b"file not found")
