"""Hudi's instants are times of the Spark driver's clock, and must grow: what that asks of a clock that was set back.

Hudi itself waits for its clock without a limit, at full speed and inside its lock, until that is behind the last instant that
this driver gave, whichever table it was for; it does not look at the table's own instants.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from hudi_ingest.exceptions import ClockBehind
from hudi_ingest.hudi.timeline import instant_time, is_instant

LONGEST_WAIT_SECONDS = 60.0
"""A clock that is behind by no more is waited for."""
_LOOK_SECONDS = 1.0
_LOGGED_SECONDS = 1.0
_logger = logging.getLogger(__name__)


def wait_for_clock(
    base_path: str,
    table_newest: str,
    driver_newest: str,
    clock: Callable[[], datetime],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Returns when the clock has passed the newest instants of the table and of the driver ("" or no instant: none).

    Raises ClockBehind when that would take longer than LONGEST_WAIT_SECONDS.
    """
    newest = max(filter(is_instant, (table_newest, driver_newest)), default="")
    if not newest:
        return
    # An instant has milliseconds; the next one must be greater.
    passed = instant_time(newest) + timedelta(milliseconds=1)
    logged = False
    while (left := (passed - (now := clock())).total_seconds()) > 0:
        if left > LONGEST_WAIT_SECONDS:
            raise ClockBehind(_text(base_path, newest, now, left, newest == table_newest))
        if left > _LOGGED_SECONDS and not logged:
            logged = True
            _logger.warning("table %s: waiting %.0f s for the clock to pass instant %s", base_path, left, newest)
        sleep(min(left, _LOOK_SECONDS))


def clock_of(milliseconds: Callable[[], int]) -> Callable[[], datetime]:
    """A clock out of `milliseconds` since 1970."""
    return lambda: datetime.fromtimestamp(milliseconds() / 1000, timezone.utc)


def _text(base_path: str, newest: str, now: datetime, left: float, of_table: bool) -> str:
    if of_table:
        whose = f"its newest instant is {newest}"
        remedy = (
            "If that clock is behind, set it right. If the instant was given by a clock that was ahead, wait for that time, or "
            "restart the engine and roll back the commits that are later than now, the newest first, by `CALL "
            "rollback_to_instant(table => …, instant_time => …)`: the checkpoint goes back with them, and the next transaction "
            "reads their offsets again"
        )
    else:
        whose = f"the driver gave instant {newest} already"
        remedy = (
            "Its clock was set back. Set it right; if it is right now, restart the engine, which forgets that instant"
        )
    return (
        f"table {base_path}: the Spark driver's clock says {now:%Y-%m-%d %H:%M:%S} UTC, and {whose}, {left:,.0f} s later. Hudi "
        f"orders commits by time, so nothing is begun, published or rolled back until then. {remedy}."
    )
