"""`make readers`: prepares the environments of all engines."""

from __future__ import annotations

import sys

from hudi_ingest_tests.readers.environments import ALL

for each in ALL:
    each.prepare(lambda line: sys.stderr.write(f"{line}\n") and None)
