"""`make simulate SEEDS=20000 FIRST=0`: schedules of that many seeds, each in a world of its own.

Prints a line every few seconds, for each broken promise the story of the smallest schedule that breaks it, and last
`schedules=… failures=…`; exits 1 if there were any. `--first 17 --seeds 1 --story` tells what happens in one schedule;
`--keep 3,8,9` leaves out its other steps.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

from hudi_ingest_tests.simulation.model import Ground, simulated
from hudi_ingest_tests.simulation.mutations import MUTATIONS, Mutation
from hudi_ingest_tests.simulation.schedule import Schedule, kind_of, run, schedule_of, shrunk

_A_BATCH = 100
_MOST_STORIES = 3
Failure = tuple[int, str, str]
"""Seed, kind and text."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", help="numbers of the steps to keep, of one seed's schedule")
    parser.add_argument("--mutation", help="print the first seed that finds this one of mutations.py")
    parser.add_argument("--story", action="store_true", help="tell what happens, also where nothing is wrong")
    options = parser.parse_args()
    # Warnings of the protocol are what the schedules provoke.
    logging.disable(logging.CRITICAL)
    if options.story or options.keep is not None:
        with simulated() as ground:
            schedule = schedule_of(options.first)
            if options.keep is not None:
                schedule = schedule.only([int(number) for number in options.keep.split(",") if number])
            return int(_tell(schedule, ground))
    if options.mutation is not None:
        return _find(MUTATIONS[options.mutation], range(options.first, options.first + options.seeds))
    failures, began = [], time.monotonic()
    for count, found in _results(options.first, options.seeds, options.jobs):
        failures += found
        seconds = time.monotonic() - began
        print(
            f"{count}/{options.seeds} schedules, {count / seconds:.0f} a second, {len(failures)} failures", flush=True
        )
    kinds: dict[str, int] = {}
    for seed, kind, text in sorted(failures):
        print(f"seed {seed}: {kind}: {text[:300]}")
        kinds.setdefault(kind, seed)
    with simulated() as ground:
        for kind, seed in [*kinds.items()][:_MOST_STORIES]:
            small = shrunk(schedule_of(seed), partial(_breaks, ground, kind))
            print(f"\nseed {seed}, {len(small.steps)} of its steps:")
            _tell(small, ground)
    print(f"schedules={options.seeds} failures={len(failures)}")
    return int(bool(failures))


def _find(mutation: Mutation, seeds: Iterable[int]) -> int:
    with simulated() as ground, mutation.applied():
        for seed in seeds:
            failure = run(schedule_of(seed), ground, mutation.flaws)
            if failure is not None and kind_of(failure) == mutation.breaks:
                print(f"seed {seed}: {failure}")
                return 0
    print("no seed finds it")
    return 1


def _results(first: int, count: int, jobs: int) -> Iterator[tuple[int, list[Failure]]]:
    """How many schedules are over so far, and what was found since the last time."""
    batches = [range(start, min(start + _A_BATCH, first + count)) for start in range(first, first + count, _A_BATCH)]
    done, found, shown = 0, [], time.monotonic()
    with ProcessPoolExecutor(jobs, initializer=logging.disable, initargs=(logging.CRITICAL,)) as pool:
        for future in as_completed({pool.submit(_batch, each.start, each.stop) for each in batches}):
            failures, ran = future.result()
            done += ran
            found += failures
            if time.monotonic() - shown > 10:
                yield done, found
                found, shown = [], time.monotonic()
    yield done, found


def _batch(first: int, end: int) -> tuple[list[Failure], int]:
    failures = []
    with simulated() as ground:
        for seed in range(first, end):
            failure = run(schedule_of(seed), ground)
            if failure is not None:
                failures.append((seed, kind_of(failure), f"{type(failure).__name__}: {failure}"))
    return failures, end - first


def _breaks(ground: Ground, kind: str, schedule: Schedule) -> bool:
    failure = run(schedule, ground)
    return failure is not None and kind_of(failure) == kind


def _tell(schedule: Schedule, ground: Ground) -> bool:
    """Print what happens; whether anything is broken."""
    story: list[str] = []
    failure = run(schedule, ground, story=story)
    print(f"{schedule.setting}, partitions={schedule.partitions} records={schedule.records} history={schedule.history}")
    print("\n".join(story))
    keep = "" if schedule.kept is None else f" --keep '{','.join(map(str, schedule.kept))}'"
    if failure is not None:
        print(f"{type(failure).__name__}: {failure}")
    print(f"Once more: python -m hudi_ingest_tests.simulation --first {schedule.seed} --story{keep}")
    return failure is not None


if __name__ == "__main__":
    sys.exit(main())
