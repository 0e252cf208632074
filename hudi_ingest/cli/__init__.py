"""The command line: commands, and what they print.

May import every room; nothing imports it. Public: `main`, the `hudi-ingest` command.
"""

from hudi_ingest.cli.main import main

__all__ = ["main"]
