"""P1–P8: schedules of the protocol's own code drawn from seeds; that they are the same each time; and that they find what is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256

import pytest

from hudi_ingest.faults import POINTS
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest_tests.simulation.model import Ground, simulated
from hudi_ingest_tests.simulation.mutations import MUTATIONS
from hudi_ingest_tests.simulation.schedule import kind_of, run, schedule_of, shrunk

SEEDS = 150
"""`make simulate` runs many more."""
WITH_POWER_CUTS = range(159, 500, 10)
KEYED = range(156, 500, 7)
FOUND = (23347, 98208, 1001656, 1002625, 2035067, 2040756, 2042401, 2076717, 4063249, 4085179, 5058468)
"""They found what has been mended since."""


@pytest.fixture
def ground() -> Iterator[Ground]:
    with simulated() as found:
        yield found


def test_p1_p2_p3_p4_p5_p6_p7_p8_no_schedule_breaks_a_promise(ground: Ground) -> None:
    for seed in (*range(SEEDS), *WITH_POWER_CUTS, *KEYED, *FOUND):
        failure = run(schedule_of(seed), ground)
        assert failure is None, f"seed {seed}; `make simulate FIRST={seed} SEEDS=1` tells what happens"
    assert not POINTS.keys() - ground.reached, "no schedule stands at these points of the product"
    kinds = {(TransactionKind.INGEST, False), (TransactionKind.BACKFILL, False)}
    kinds |= {(TransactionKind.REPLAY, False), (TransactionKind.REPLAY, True), (TransactionKind.RETRY, False)}
    assert ground.published == kinds, "no schedule commits some kind of transaction"
    assert ground.given_up, "no schedule gives up what the broker lost"
    assert ground.recreated, "no schedule commits records of a recreated topic"
    services = {f"{service} {what}" for service in ("clustering", "compaction") for what in ("completed", "redone")}
    assert ground.reached >= services | {"cleaned"}, "no schedule runs some service"
    assert ground.upserted == {*TransactionKind}, "no schedule commits some kind of transaction to a keyed table"
    late = {f"late change {what}" for what in ("written", "superseded", "held")}
    assert ground.reached >= {*late, "truncate"}, "no schedule has late changes of some fate, or a truncate"
    assert ground.lost >= {"commit", "repaired"}, "no power cut takes a commit"
    assert ground.asked == {"begins", "twice", "dies"}, "no run that a sensor asks for has some fate"
    assert ground.left_out, "no schedule plans without a partition that has no leader"


@pytest.mark.parametrize("name", MUTATIONS)
def test_s23_what_is_broken_on_purpose_is_found(ground: Ground, name: str) -> None:
    mutation = MUTATIONS[name]
    schedule = schedule_of(mutation.seed)
    with mutation.applied():
        failure = run(schedule, ground, mutation.flaws)
    assert failure is not None, (
        f"seed {mutation.seed} no longer finds it; `python -m hudi_ingest_tests.simulation --mutation '{name}'` says which one does"
    )
    assert kind_of(failure) == mutation.breaks, f"seed {mutation.seed}: {failure}"
    unbroken = run(schedule, ground)
    assert unbroken is None, f"seed {mutation.seed}: {unbroken}"


def test_a_failing_schedule_is_made_small(ground: Ground) -> None:
    mutation = MUTATIONS["a plan is not compared with the checkpoint"]
    with mutation.applied():
        failure = run(schedule_of(mutation.seed), ground, mutation.flaws)
        assert failure is not None
        kind = kind_of(failure)

        def fails(schedule: object) -> bool:
            found = run(schedule, ground, mutation.flaws)  # type: ignore[arg-type]
            return found is not None and kind_of(found) == kind

        small = shrunk(schedule_of(mutation.seed), fails)
        assert len(small.steps) < len(schedule_of(mutation.seed).steps) / 2
        again = schedule_of(mutation.seed).only(small.kept or ())
        story: list[str] = []
        failure = run(again, ground, mutation.flaws, story)
    assert failure is not None and kind_of(failure) == kind
    assert any(line.startswith("  run-0 begin: ") for line in story)


def test_a_seed_tells_the_same_story_in_each_process() -> None:
    assert _digest("1") == _digest("2")


def _digest(hash_seed: str) -> str:
    program = "\n".join(
        [
            "from hudi_ingest_tests.simulation.model import simulated",
            "from hudi_ingest_tests.simulation.schedule import run, schedule_of",
            "with simulated() as ground:",
            "    for seed in range(8):",
            "        story = []",
            "        run(schedule_of(seed), ground, story=story)",
            "        print(story)",
        ]
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert len(told.stdout) > 1000
    return sha256(told.stdout).hexdigest()
