"""The outside reader: `python reader.py` reads a whole table by hudi-rs, again and again, until its input ends.

Its input begins with a line of JSON: the base path and hudi-rs' options.

Each poll is a line of JSON on its output. `runs` are the rows in the order of partition and offset, told by their borders:
[partition, first offset, offset behind the last, version, instant]; a duplicate or a hole begins a new one. The version of the
converter that made a row is told by the row itself: `amount` against `cents`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from hudi import HudiReadOptions, HudiTable

COLUMNS = ["_hoodie_commit_time", "_kafka_partition", "_kafka_offset", "n", "cents", "amount"]
CENTS_AN_AMOUNT = (1.0, 1000.0, 100.0)
"""Of the converter's versions 1, 2 and 3; 0 is a row that none of them makes."""
PAUSE_SECONDS = 0.5


def poll(base_path: str, options: Mapping[str, str]) -> dict[str, Any]:
    began = time.time()
    projection = HudiReadOptions().with_projection(COLUMNS)
    try:
        found = pa.Table.from_batches(HudiTable(base_path, dict(options)).read(projection))
    except Exception as error:  # noqa: BLE001 - hudi-rs has no error class of its own
        return {"at": began, "error": f"{type(error).__name__}: {error}"}
    return {"at": began, "rows": found.num_rows, **told(found), "until": time.time()}


def told(found: pa.Table) -> dict[str, Any]:
    partition, offset, number, cents = (
        found[name].to_numpy() for name in ("_kafka_partition", "_kafka_offset", "n", "cents")
    )
    amount = found["amount"].to_numpy()
    version = np.zeros(len(offset), np.int8)
    for index, divisor in enumerate(CENTS_AN_AMOUNT):
        version[np.isclose(amount * divisor, cents, rtol=1e-9)] = index + 1
    commits = found["_hoodie_commit_time"].combine_chunks().dictionary_encode()
    instant, names = commits.indices.to_numpy(), commits.dictionary.to_pylist()
    order = np.lexsort((offset, partition))
    partition, offset, version, instant = (each[order] for each in (partition, offset, version, instant))
    begins = np.ones(len(offset), bool)
    begins[1:] = (np.diff(partition) != 0) | (np.diff(offset) != 1) | (np.diff(version) != 0) | (np.diff(instant) != 0)
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(offset)) - 1
    return {
        "foreign": int((number != found["_kafka_offset"].to_numpy()).sum()),
        "runs": [
            [int(partition[i]), int(offset[i]), int(offset[j]) + 1, int(version[i]), names[instant[i]]]
            for i, j in zip(firsts, lasts, strict=True)
        ],
    }


def has_commits(base_path: str, options: Mapping[str, str]) -> bool:
    try:
        return bool(HudiTable(base_path, dict(options)).get_timeline().get_completed_commits())
    except Exception:  # noqa: BLE001 - hudi-rs has no error class of its own; the table may be in the making
        return False


def main() -> None:
    base_path, options = json.loads(sys.stdin.readline())
    ended = threading.Event()

    def await_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=await_end, daemon=True).start()
    while not has_commits(base_path, options):
        if ended.wait(PAUSE_SECONDS):
            return
    over = False
    while not over:
        # One more after the end was said, so that the last poll has seen all that was there then.
        over = ended.wait(PAUSE_SECONDS)
        sys.stdout.write(json.dumps(poll(base_path, options)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
