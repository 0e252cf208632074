"""Standard streams that are closed, or lead to a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def shell(redirection: str, command: str = "--version") -> subprocess.CompletedProcess[str]:
    line = f'exec "{sys.executable}" -m hudi_ingest.cli {command} {redirection}'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(redirection: str) -> None:
    done = shell(redirection)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_opened_later_does_not_take_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    program = (
        "import hudi_ingest.cli.app, os, sys; file = open(sys.argv[1], 'w'); assert file.fileno() > 2; "
        "os.write(1, b'x'); os.write(2, b'x')"
    )
    line = f'exec "{sys.executable}" -c "$1" "$2" <&- >&- 2>&-'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert (
        subprocess.run(["sh", "-c", line, "sh", program, tmp_path / "f"], env=environment, timeout=300).returncode == 0
    )
    assert (tmp_path / "f").read_bytes() == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_standard_output_is_told_in_one_line() -> None:
    done = shell("> /dev/full")
    assert done.returncode == 1
    assert (
        done.stderr
        == "error: standard output cannot be written: No space left on device. Free space there, or write it elsewhere.\n"
    )
