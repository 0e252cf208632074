"""Dates and times."""

from __future__ import annotations

import numpy as np

from hudi_ingest.records.convert.json.kernel.machine import below, byte, cold, hot
from hudi_ingest.records.times import FIRST_MICROSECOND, LAST_MICROSECOND

_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
NO_DAY = -1_000_000
_NOT_DIGITS = -10_000


@hot
def _two(at: int) -> int:
    """The number that two digits are, or something negative."""
    tens, ones = byte(at) - 48, byte(at + 1) - 48
    if below(9, tens) or below(9, ones):
        return _NOT_DIGITS
    return tens * 10 + ones


@cold
def day_at(at: int) -> int:
    """Days since 1970 of YYYY-MM-DD, or NO_DAY; the year 0000 is left to the exact path."""
    year, month, day = _two(at) * 100 + _two(at + 2), _two(at + 5), _two(at + 8)
    if year < 1 or month < 1 or month > 12 or day < 1 or byte(at + 4) != 45 or byte(at + 7) != 45:
        return NO_DAY
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _MONTH_DAYS[month] + (1 if leap else 0):
        return NO_DAY
    if month <= 2:
        year -= 1
        month += 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 1 - 719468


NO_TIME = FIRST_MICROSECOND - 1


@cold
def microseconds_at(at: int, end: int) -> int:
    """Since 1970 in UTC, of what json_exact takes for a timestamp, or NO_TIME."""
    if end - at < 10:
        return NO_TIME
    day = day_at(at)
    if day == NO_DAY:
        return NO_TIME
    at += 10
    hour = minute = second = fraction = ahead = 0
    if at < end:
        c = byte(at)
        if end - at < 3 or (c != 84 and c != 32):
            return NO_TIME
        hour = _two(at + 1)
        at += 3
        if at < end and byte(at) == 58:
            if end - at < 3:
                return NO_TIME
            minute = _two(at + 1)
            at += 3
            if at < end and byte(at) == 58:
                if end - at < 3:
                    return NO_TIME
                second = _two(at + 1)
                at += 3
                if at < end and byte(at) == 46:
                    at += 1
                    digits = 0
                    while at < end:
                        c = byte(at) - 48
                        if below(9, c):
                            break
                        if digits < 6:
                            fraction = fraction * 10 + c
                        elif c != 0:
                            return NO_TIME
                        digits += 1
                        at += 1
                    if digits == 0:
                        return NO_TIME
                    while digits < 6:
                        fraction *= 10
                        digits += 1
        if at < end:
            c = byte(at)
            at += 1
            if c == 43 or c == 45:
                if end - at < 2:
                    return NO_TIME
                zone_hour, zone_minute = _two(at), 0
                at += 2
                if at < end:
                    if byte(at) == 58:
                        at += 1
                    if end - at < 2:
                        return NO_TIME
                    zone_minute = _two(at)
                    at += 2
                if zone_hour < 0 or zone_hour > 23 or zone_minute < 0 or zone_minute > 59:
                    return NO_TIME
                ahead = zone_hour * 60 + zone_minute
                if c == 45:
                    ahead = -ahead
            elif c != 90:
                return NO_TIME
        if at != end or hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
            return NO_TIME
    microseconds = ((day * 24 + hour) * 60 + minute - ahead) * 60_000_000 + second * 1_000_000 + fraction
    return microseconds if FIRST_MICROSECOND <= microseconds <= LAST_MICROSECOND else NO_TIME
