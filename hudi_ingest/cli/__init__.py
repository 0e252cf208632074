"""The command line: commands, and what they print.

May import every room; nothing imports it. Public: `main`, the `hudi-ingest` command.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from collections.abc import Callable

from hudi_ingest.cli import app, ingestion_commands, request_commands, row_commands, stack_commands, upkeep_commands
from hudi_ingest.cli.app import err
from hudi_ingest.exceptions import IngestError

__all__ = ["main"]

_COMMANDS = (
    stack_commands,
    ingestion_commands,
    row_commands,
    request_commands,
    upkeep_commands,
)
"""Modules whose import registers their commands with `app`."""


class _AboveTheClock(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        err.print(self.format(record), markup=False)


def main(commands: Callable[[], object] = app.app) -> None:
    """Run the command. Our own errors end in one message and exit code 1."""
    # A shell that starts us in the background makes us ignore Ctrl-C, and every process we start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Third-party loggers, py4j's above all, print tracebacks of errors that are caught and explained here.
    logging.basicConfig(level=logging.CRITICAL, format="%(levelname)s: %(message)s", handlers=[_AboveTheClock()])
    logging.getLogger("hudi_ingest").setLevel(logging.WARNING)
    try:
        try:
            commands()
        finally:
            sys.stdout.flush()
    except OSError as error:
        # Without a file's name it is about standard output.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO) or error.filename is not None:
            raise
        err.print(
            f"error: standard output cannot be written: {error.strerror}. Free space there, or write it elsewhere.",
            style="red",
        )
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except IngestError as error:
        err.print(f"error: {error}", style="red", markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
