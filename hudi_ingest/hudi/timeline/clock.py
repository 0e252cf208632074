"""Wait for a clock that was set back, because Hudi's instants are times of the Spark driver's clock and must increase.

Hudi itself busy-waits inside its lock, without a limit, until its clock passes the last instant that this driver created
for any table; it does not check the table's own instants.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from hudi_ingest.exceptions import ClockBehind
from hudi_ingest.hudi.timeline.timeline import instant_time, is_instant

LONGEST_WAIT_SECONDS = 60.0
"""Longest wait for a clock that is behind."""
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
    """Wait until the clock has passed the newest instants of the table and of the driver ("" or not an instant: none).

    Raises ClockBehind when that would take longer than LONGEST_WAIT_SECONDS.
    """
    newest = max(filter(is_instant, (table_newest, driver_newest)), default="")
    if not newest:
        return
    # An instant has milliseconds; the next one must be greater.
    passed = instant_time(newest) + timedelta(milliseconds=1)
    logged = False
    while (remaining := (passed - (now := clock())).total_seconds()) > 0:
        if remaining > LONGEST_WAIT_SECONDS:
            raise ClockBehind(_message(base_path, newest, now, remaining, newest == table_newest))
        if remaining > _LOGGED_SECONDS and not logged:
            logged = True
            _logger.warning("table %s: waiting %.0f s for the clock to pass instant %s", base_path, remaining, newest)
        sleep(min(remaining, _LOOK_SECONDS))


def clock_of(milliseconds: Callable[[], int]) -> Callable[[], datetime]:
    """Build a clock from `milliseconds` since 1970."""
    return lambda: datetime.fromtimestamp(milliseconds() / 1000, timezone.utc)


def _message(base_path: str, newest: str, now: datetime, seconds: float, of_table: bool) -> str:
    if of_table:
        whose = f"its newest instant is {newest}"
        remedy = (
            "If that clock is behind, correct it. If the instant comes from a clock that was ahead, wait until that time, or "
            "restart the engine and roll back the commits with instants in the future, newest first, with `CALL "
            "rollback_to_instant(table => …, instant_time => …)`: the checkpoint goes back with them, and the next transaction "
            "reads their offsets again"
        )
    else:
        whose = f"the driver already created instant {newest}"
        remedy = (
            "Its clock was set back. Correct it; if it is correct now, restart the engine, which forgets that instant"
        )
    return (
        f"table {base_path}: the Spark driver's clock says {now:%Y-%m-%d %H:%M:%S} UTC, but {whose}, {seconds:,.0f} s later. Hudi "
        f"orders commits by time, so nothing is begun, published or rolled back until then. {remedy}."
    )
