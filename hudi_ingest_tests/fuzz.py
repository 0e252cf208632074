"""`make fuzz`: changed records of every format for some minutes. A worker that dies leaves the batch that it died of.

The converters' hot paths are compiled code (Arrow, numba, ptars, upb), where a coverage-guided fuzzer for Python sees
nothing; so this changes good and bad records at random, and looks at what holds for every batch.
"""

from __future__ import annotations

import argparse
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from hudi_ingest_tests.support.every_format import mutated, subjects
from hudi_ingest_tests.support.outcomes import outcomes

_BATCH = 12
_CURRENT = "current.pickle"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--again", type=Path, help="a batch that a worker died of")
    chosen = parser.parse_args()
    if chosen.again is not None:
        name, batch = pickle.loads(chosen.again.read_bytes())
        outcomes(subjects()[name].converter, subjects()[name].schema, batch)
        return 0
    if chosen.worker is not None:
        _work(chosen.worker, chosen.seed, chosen.minutes * 60)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="hudi-ingest-fuzz-"))
    sys.stdout.write(f"seed {chosen.seed}, {chosen.minutes:g} minutes\n")
    sys.stdout.flush()
    arguments = ["--worker", str(folder), "--seed", str(chosen.seed), "--minutes", str(chosen.minutes)]
    done = subprocess.run([sys.executable, "-m", "hudi_ingest_tests.fuzz", *arguments], check=False)
    if done.returncode:
        again = f"{sys.executable} -m hudi_ingest_tests.fuzz --again {folder / _CURRENT}"
        sys.stdout.write(f"the worker ended with {done.returncode}; to see it again: {again}\n")
        return 1
    shutil.rmtree(folder)
    return 0


def _work(folder: Path, seed: int, seconds: float) -> None:
    chance, until, batches = Random(seed), time.monotonic() + seconds, 0
    names = [*subjects()]
    while time.monotonic() < until:
        name = names[batches % len(names)]
        subject = subjects()[name]
        records = [*subject.good, *subject.bad]
        batch = [mutated(chance, records) for _ in range(chance.randrange(1, _BATCH))]
        (folder / _CURRENT).write_bytes(pickle.dumps((name, batch)))
        outcomes(subject.converter, subject.schema, batch)
        batches += 1
    sys.stdout.write(f"{batches} batches of {len(names)} formats, nothing found\n")


if __name__ == "__main__":
    sys.exit(main())
