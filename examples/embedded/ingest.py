"""Transactions within a program of one's own, without Dagster: `python ingest.py pipelines/clicks.yaml`.

It ends when the topic is read to its end, and continues there when it is started again: the table knows its offsets.
"""

import sys
from pathlib import Path

from hudi_ingest import load_pipeline, run_transaction
from hudi_ingest.exceptions import NothingToDo, Transient

TRIES = 3


def ingest(file: Path) -> int:
    """Commit all that the topic has, and return the number of rows."""
    pipeline, rows, failed = load_pipeline(file), 0, 0
    while True:
        try:
            receipt = run_transaction(pipeline)
        except NothingToDo:
            return rows
        except Transient:
            # Nothing of it is visible. The next one reads the same offsets.
            failed += 1
            if failed == TRIES:
                raise
            continue
        rows, failed = rows + receipt.rows, 0
        print(f"{receipt.instant}: {receipt.rows} rows, {receipt.rejected} bad records")


if __name__ == "__main__":
    print(f"{ingest(Path(sys.argv[1]))} rows in all")
