"""Programs that run one at a time and stop at named points: a schedule decides who goes on, who fails and who never does."""

from __future__ import annotations

from collections.abc import Callable

from greenlet import getcurrent, greenlet

LOCK = "waits for Hudi's lock"
"""The point at which it depends on others whether a program can go on."""


class Ended(BaseException):
    """Unwinds a program that the schedule is done with."""


class Program(greenlet):  # type: ignore[misc]
    """Runs only while `go_on` waits for it, so every order of steps is the schedule's own choice."""

    def __init__(self, name: str, what: Callable[[], None], host: int = 0) -> None:
        super().__init__(self._run)
        self.name = name
        self.host = host
        """The machine whose clock it reads, and whose engine it uses."""
        self.point = "start"
        self.errors: tuple[type[Exception], ...] = ()
        """What may be raised where the program stands."""
        self.over = False
        self.crashed = False
        """Counts as dead: its locks are free. It may still go on, as a process does that was taken for dead."""
        self.failure: BaseException | None = None
        self.told: Callable[[str], None] | None = None
        """Hears of each new point that the program reaches without a pause."""
        self._order: BaseException | None = None
        self._left = 0
        self._until = ""
        self._what = what

    def __repr__(self) -> str:
        return f"<{self.name} at {self.point}>"

    def go_on(self, error: BaseException | None = None, points: int = 1, until: str = "") -> int:
        """Runs to the next point, or over so many of them, and ends earlier at the program's end, at a lock, and at a point that begins
        with `until`. `error` is raised where the program stands. How many points it has reached."""
        self._order, self._left, self._until = error, points, until
        self.switch()
        return points - self._left

    def end(self) -> None:
        if self and not self.over:
            self.throw(Ended)
        self.over = True

    def stop_at(self, point: str, errors: tuple[type[Exception], ...]) -> None:
        if isinstance(self.failure, Ended):
            raise Ended
        self._left -= 1
        if self.told is not None and point != self.point:
            self.told(point)
        self.point, self.errors = point, errors
        if self._left and point != LOCK and not (self._until and point.startswith(self._until)):
            return
        assert self.parent is not None
        try:
            self.parent.switch()
        except Ended as ended:
            self.failure = ended
            raise
        if self._order is not None:
            raise self._order

    def _run(self) -> None:
        try:
            if self._order is not None:
                raise self._order
            self._what()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the schedule looks at it
            self.failure = error
        self._left -= 1
        self.over = True


def running() -> Program | None:
    """The program that asks; None for the schedule's own code."""
    current = getcurrent()
    return current if isinstance(current, Program) else None


def stop(point: str, *errors: type[Exception]) -> None:
    """The running program stands at `point`, where each of `errors` may happen. Nothing in the schedule's own code."""
    current = getcurrent()
    if isinstance(current, Program):
        current.stop_at(point, errors)
