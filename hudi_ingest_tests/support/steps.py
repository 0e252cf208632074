"""Programs that run one at a time and stop at named points: a test decides who goes on, who fails and who never does."""

from __future__ import annotations

import threading
from collections.abc import Callable

_running = threading.local()


class Ended(BaseException):
    """Unwinds a program that the test is done with."""


class Program:
    """A thread that runs only while `go_on` waits for it, so every order of steps is the test's own choice."""

    def __init__(self, name: str, what: Callable[[], None]) -> None:
        self.name = name
        self.point = "start"
        self.errors: tuple[type[Exception], ...] = ()
        """What may be raised where the program stands."""
        self.over = False
        self.crashed = False
        """Counts as dead: its locks are free. It may still go on, as a process does that was taken for dead."""
        self.failure: BaseException | None = None
        self._order: BaseException | None = None
        self._ended = False
        self._what = what
        # Locks that one thread takes and the other frees: a semaphore is made of five such steps, and there are 80,000 handovers.
        self._go, self._stopped = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._stopped.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def go_on(self, error: BaseException | None = None) -> None:
        """Runs to the next point, or to the end. `error` is raised where the program stands."""
        self._order = error
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._stopped.acquire()

    def end(self) -> None:
        if self._thread.ident is not None and not self.over:
            self._ended = True
            self.go_on()
            self._thread.join()
        self.over = True

    def stop_at(self, point: str, errors: tuple[type[Exception], ...]) -> None:
        if not self._ended:
            self.point, self.errors = point, errors
            self._stopped.release()
            self._go.acquire()
        if self._ended:
            raise Ended
        if self._order is not None:
            raise self._order

    def _run(self) -> None:
        _running.program = self
        try:
            if self._order is not None:
                raise self._order
            self._what()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test looks at it
            self.failure = error
        self.over = True
        self._stopped.release()


def running() -> Program | None:
    """The program whose thread asks; None for the test's own."""
    return getattr(_running, "program", None)


def stop(point: str, *errors: type[Exception]) -> None:
    """The running program stands at `point`, where each of `errors` may happen. Nothing in the test's own thread."""
    program = running()
    if program is not None:
        program.stop_at(point, errors)
