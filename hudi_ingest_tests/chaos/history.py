"""A process that commits one transaction for each line of its input: `python -m hudi_ingest_tests.chaos.history PIPELINE_FILE`.

It prints each one's instant. A long timeline is made so in a second a commit, where a tick and a run take ten.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.transaction.run import run_transaction


def main() -> None:
    pipeline = load_pipeline(Path(sys.argv[1]))
    for _ in sys.stdin:
        sys.stdout.write(f"{run_transaction(pipeline).instant}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
