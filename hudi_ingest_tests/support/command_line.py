"""Runs hudi-ingest as a user does, in a process of its own, or where only its answer matters, in this one."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

from hudi_ingest import cli
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE, Home

COMMAND = [sys.executable, "-m", "hudi_ingest.cli"]
LAB = [sys.executable, "-m", "hudi_ingest_tests.lab"]


def environment(home: Home, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with the home's variables."""
    return {
        **os.environ,
        HOME_VARIABLE: str(home.root),
        PIPELINES_VARIABLE: str(home.pipelines),
        LEDGER_VARIABLE: home.ledger_url,
        **(more or {}),
    }


def hudi_ingest(home: Home, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=environment(home), capture_output=True, text=True, timeout=timeout, check=False
    )


def answer(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As `hudi_ingest`, in this process: with its Spark, and without the seconds that a Python takes to import all.

    Not for commands that are killed or that serve, nor for what native code prints.
    """
    command = [*COMMAND, *arguments]
    out, err = io.StringIO(), io.StringIO()
    ours = logging.getLogger("hudi_ingest")
    level = ours.level
    with (
        mock.patch.dict(os.environ, environment(home)),
        mock.patch.object(sys, "argv", ["hudi-ingest", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            cli.main()
            code = 0
        except SystemExit as ended:
            assert ended.code is None or isinstance(ended.code, int), ended.code
            code = ended.code or 0
        finally:
            ours.setLevel(level)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
