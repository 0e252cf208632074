"""Waits no longer than a deadline for code that may never return."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
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
