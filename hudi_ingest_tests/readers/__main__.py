"""`make readers`: prepares the environments of all engines."""

from __future__ import annotations

import sys

from hudi_ingest_tests.readers.environments import ALL


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


for each in ALL:
    each.prepare(_say)
