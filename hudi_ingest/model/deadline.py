"""Waits no longer than a deadline for code that may never return, and watches code that takes long."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")


def started(work: Callable[[], Result]) -> concurrent.futures.Future[Result]:
    """Run it in a thread that the end of the process does not wait for."""
    future = concurrent.futures.Future[Result]()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the result gets it
            future.set_exception(error)

    threading.Thread(target=run, name="deadline", daemon=True).start()
    return future


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """The result, or its exception. Raises TimeoutError once the time is over; the work goes on until it ends by itself."""
    try:
        return started(work).result(seconds)
    except concurrent.futures.TimeoutError:  # another one than TimeoutError before Python 3.11
        raise TimeoutError(f"no answer within {seconds:g} s") from None


@contextmanager
def watched(watch: Callable[[threading.Event], object], name: str) -> Iterator[None]:
    """Run `watch` in a thread beside the block, which ends once both have: the event that it gets is set when the block is left."""
    done = threading.Event()
    watcher = threading.Thread(target=watch, args=(done,), name=name, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
