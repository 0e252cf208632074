"""Schedules: all that happens in one simulation, drawn from one seed, run, and made small when it breaks a promise."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hudi_ingest_tests.simulation.model import Ground, Simulation
from hudi_ingest_tests.simulation.trace import violation
from hudi_ingest_tests.simulation.world import Setting

STEPS = 40
ALWAYS = [
    *(["go on"] * 3 + ["come to"] * 4 + ["finish"] * 3 + ["all go on"] * 2 + ["tick"] * 3 + ["a newer one begins"] * 3),
    *("produce", "produce", "begin", "write", "commit", "commit", "the run ends"),
]
SOMETIMES = (
    ("fail", "fail", "fail"),
    ("die", "take for dead", "take for dead"),
    ("abort",),
    ("recover",),
    ("retry", "retry", "retry", "retry"),
    ("backfill", "replay", "replay"),
    ("time 1", "time 200", "time 301"),
    ("a clock jumps", "a clock jumps", "a clock jumps", "clocks are right"),
    ("wipe the ledger",),
    ("the engine dies",),
    ("archive", "archive"),
    ("another writer begins", "another writer commits", "another writer cleans"),
    ("a partition is added", "retention", "the consumer group is deleted"),
    ("records are lost", "lost records come back", "a look is behind"),
    ("a leader is lost", "a leader is lost", "leaders come back"),
)
"""Kinds of faults and of other work. A schedule has some of them only: what happens rarely happens often in some."""
SEVENTH = 7
SERVICES = (
    *(["services"] * 5 + ["a service comes to"] * 4 + ["other services take over"] * 2),
    *("a replay beside services", "a replay beside services", "replay", "time 301", "another writer begins"),
)
KEYED = 2
"""The rest of seeds whose table is keyed."""
SENSED, DISTURBED = 4, 1
"""The rest of seeds with ticks of the sensor; of their numbers, the rest of those whose hoodie.properties is cut, and after whose faults
nothing comes for a while in every second."""
LATELY: Mapping[int, tuple[int, tuple[str, ...]]] = {
    KEYED: (
        16,
        (*SERVICES, *["services beside a commit"] * 4, "a clock jumps", "clocks are right", "produce", "backfill"),
    ),
    SENSED: (16, (*["the sensor ticks"] * 6, "produce", "go on", "come to", "die", "time 301", "time 200")),
    3: (4, ("the topic is recreated",)),
    6: (20, SERVICES),
}
"""Kinds that came later, and at most how many of them a schedule has: they take the place of single steps where the seed leaves this
rest, so the other seeds mean what they meant before."""
CUT, OF_CUT = 5, 3
"""The rest of seeds whose brokers are restored from older copies, and that of their numbers; losses are for a person to accept there."""
CUTS = (*["a log is cut"] * 3, "cut logs are back", "tick", "tick", "produce")
FOURTH = 4
ORDERING, TRUNCATES = 0, 1
"""Of the number of a seed whose table is keyed, the rests of those with an ordering column, and of those whose source is truncated."""
LATE = (*["retry"] * 5, "produce", "produce", "services", "backfill", "replay", "archive")
TENTH = 10
POWER_CUTS = 9
"""The rest of seeds whose power is cut. How often, and when, is drawn from a stream of its own, as is all that came after it."""
AFTER_A_CUT: Sequence[Sequence[str]] = (
    (),
    ("commit", "finish"),
    ("write", "commit", "finish"),
    ("time 200", "commit", "finish"),
)
Step = tuple[str, int, int]
_MOST_TRIES = 2000
"""To make a schedule smaller."""


@dataclass(frozen=True)
class Schedule:
    """`steps`: (action, which, more), as `Simulation.act` takes them. `kept`: their numbers in the seed's schedule, if some were
    left out."""

    seed: int
    setting: Setting
    partitions: int
    records: int
    history: int
    steps: tuple[Step, ...]
    kept: tuple[int, ...] | None = None

    def only(self, kept: Sequence[int]) -> Schedule:
        return replace(self, steps=tuple(self.steps[number] for number in kept), kept=tuple(kept))


def schedule_of(seed: int) -> Schedule:
    draw = random.Random(seed)
    later = random.Random(f"{seed} later")
    cuts = seed % TENTH == POWER_CUTS
    variant = seed // SEVENTH % FOURTH if seed % SEVENTH == KEYED else None
    setting = Setting(
        engines=draw.randint(1, 2),
        ledgers=draw.randint(1, 2),
        on_s3=draw.random() < 0.4,
        accepts_losses=draw.random() < 0.8,
        keyed=seed % SEVENTH == KEYED,
        ordering=variant == ORDERING,
        truncates=variant == TRUNCATES,
        power_cuts=cuts,
        ledger_forgets=cuts and later.random() < 0.3,
    )
    often = draw.choice((0.15, 0.3, 0.6))
    actions = [*ALWAYS, *(action for kind in SOMETIMES if draw.random() < often for action in kind)]
    start = draw.randint(1, 2), draw.randint(0, 5), draw.randint(0, 7)
    steps = tuple((draw.choice(actions), draw.randint(0, 9), draw.randint(0, 39)) for _ in range(STEPS))
    if seed % SEVENTH in LATELY:
        most, kinds = LATELY[seed % SEVENTH]
        numbers = {draw.randrange(STEPS): draw.choice(kinds) for _ in range(draw.randint(1, most))}
        steps = tuple((numbers.get(number, step[0]), *step[1:]) for number, step in enumerate(steps))
    if variant in (ORDERING, TRUNCATES):
        for number in later.sample(range(STEPS), later.randint(3, 12)):
            step = (later.choice(LATE), later.randint(0, 9), later.randint(0, 39))
            steps = (*steps[:number], step, *steps[number + 1 :])
    if variant == TRUNCATES:
        # Offsets of several partitions do not say what was before a truncate.
        start = (1, *start[1:])
    for number in sorted(later.sample(range(STEPS), later.randint(1, 5))) if cuts else ():
        step = ("the power is cut", later.randint(0, 9), later.randint(0, 39))
        # What the orchestrator does next of its own accord.
        after = later.choice(AFTER_A_CUT)
        then = [(each, later.randint(0, 9), later.randint(0, 39)) for each in after]
        steps = (*steps[:number], step, *then, *steps[number + 1 + len(then) :])
    if seed % SEVENTH == SENSED and seed // SEVENTH % FOURTH == DISTURBED:
        setting = replace(setting, falls_quiet=later.random() < 0.5)
        for number in later.sample(range(len(steps)), later.randint(1, 4)):
            steps = (*steps[:number], ("hoodie.properties is cut", later.randint(0, 9), 0), *steps[number + 1 :])
    if seed % SEVENTH == CUT and seed // SEVENTH % FOURTH == OF_CUT and not cuts:
        setting = replace(setting, log_cuts=True, accepts_losses=False)
        for number in later.sample(range(len(steps)), later.randint(3, 12)):
            step = (later.choice(CUTS), later.randint(0, 9), later.randint(0, 39))
            steps = (*steps[:number], step, *steps[number + 1 :])
    return Schedule(seed, setting, *start, steps)


def run(
    schedule: Schedule,
    ground: Ground,
    flaws: frozenset[str] = frozenset(),
    story: list[str] | None = None,
) -> BaseException | None:
    """Run the schedule and say what it breaks; `story` gets what happens, line by line."""
    simulation = Simulation(ground, flaws, schedule.setting, told=story is not None)
    try:
        simulation.start(schedule.partitions, schedule.records, schedule.history)
        for action, which, more in schedule.steps:
            simulation.tell(f"{action} {which} {more}")
            simulation.act(action, which, more)
            simulation.judge()
        simulation.tell("the faults stop")
        simulation.finish_all()
        broken = violation(simulation.world.trace)
        assert not broken, broken
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return error
    finally:
        simulation.end()
        if story is not None and simulation.story is not None:
            story += simulation.story
    return None


def kind_of(failure: BaseException) -> str:
    """What two failures must have in common to be one finding: the promise that is broken, else the error's class."""
    text = str(failure)
    promise = text[text.find("P") :].partition(":")[0] if isinstance(failure, AssertionError) else ""
    return promise if promise[1:2].isdigit() else type(failure).__name__


def shrunk(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """The schedule with as many steps left out as it still fails without: delta debugging."""
    kept = [*range(len(schedule.steps))]
    tries, width = 0, max(1, len(kept) // 2)
    while tries < _MOST_TRIES:
        smaller = False
        first = 0
        while first < len(kept) and tries < _MOST_TRIES:
            without = kept[:first] + kept[first + width :]
            tries += 1
            if fails(schedule.only(without)):
                kept, smaller = without, True
            else:
                first += width
        if width == 1 and not smaller:
            break
        if not smaller:
            width = max(1, width // 2)
    return schedule.only(kept)
