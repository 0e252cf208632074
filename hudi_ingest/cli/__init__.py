"""The command line: its commands, and what the terminal shows.

Imports every room; nothing imports it. Public: `main`, the `hudi-ingest` command.
"""

from hudi_ingest.cli.main import main

__all__ = ["main"]
