"""Looks at many pipelines side by side, for at most so many seconds: a table or broker that does not answer keeps no other pipeline
from its turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Generic, Protocol, TypeVar

AT_ONCE = 8
_MOST_THREADS = 32
"""Beyond this many looks that hang, others are taken one at a time."""
Found = TypeVar("Found")


class Named(Protocol):
    """A pipeline, or whatever else is looked at."""

    @property
    def name(self) -> str: ...


One = TypeVar("One", bound=Named)


class Looks(Generic[Found]):
    """Looks that were begun, and may end after the evaluation that began them: nothing can stop one that hangs, and a pipeline never
    has two at a time. For one thread at a time."""

    def __init__(self, name: str) -> None:
        """`name`: of the threads."""
        self._name = name
        self._begun: dict[str, tuple[Future[Found], float]] = {}

    def late(self) -> dict[str, float]:
        """Return for how many seconds each look has hung that an earlier evaluation began."""
        return {name: time.monotonic() - since for name, (look, since) in self._begun.items() if not look.done()}

    def take(
        self,
        turns: Iterable[One],
        look: Callable[[One], Found],
        seconds: float,
        *,
        most: int | None = None,
        counts: Callable[[Found], bool] = lambda found: True,
    ) -> dict[str, Future[Found]]:
        """Return the looks by pipeline: those that have ended since the last time, and those that this evaluation begins, in the order
        of `turns`, which have ended, or hang after so many `seconds`. Pipelines that are not among them wait for their turn. At most
        `most` results `count`."""
        deadline = time.monotonic() + seconds
        ended = [name for name, (each, _) in self._begun.items() if each.done()][:most]
        looks = {name: self._begun.pop(name)[0] for name in ended}
        at_once = max(1, min(AT_ONCE, _MOST_THREADS - len(self._begun)))
        waiting = deque(each for each in turns if each.name not in looks and each.name not in self._begun)
        left = None if most is None else most - sum(_counts(each, counts) for each in looks.values())
        executor = ThreadPoolExecutor(at_once, thread_name_prefix=self._name)
        running: set[Future[Found]] = set()
        try:
            while time.monotonic() < deadline:
                # Each that runs may count.
                while waiting and len(running) < (at_once if left is None else min(at_once, left)):
                    pipeline = waiting.popleft()
                    begun = executor.submit(look, pipeline)
                    looks[pipeline.name] = begun
                    self._begun[pipeline.name] = begun, time.monotonic()
                    running.add(begun)
                if not running:
                    break
                done, running = wait(running, deadline - time.monotonic(), FIRST_COMPLETED)
                if left is not None:
                    left -= sum(_counts(each, counts) for each in done)
        finally:
            executor.shutdown(wait=False)
        for name, each in looks.items():
            if each.done():
                self._begun.pop(name, None)
        return looks


def _counts(look: Future[Found], counts: Callable[[Found], bool]) -> bool:
    return look.exception() is None and counts(look.result())
