"""The first and last time that tables and their readers support: the years 1 to 9999."""

from __future__ import annotations

from datetime import date

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
MICROSECONDS_OF_DAY = 86_400_000_000

FIRST_DAY = date.min.toordinal() - EPOCH_ORDINAL
"""0001-01-01 in days since 1970; Python has no earlier dates."""
LAST_DAY = date.max.toordinal() - EPOCH_ORDINAL
FIRST_MICROSECOND = FIRST_DAY * MICROSECONDS_OF_DAY
LAST_MICROSECOND = (LAST_DAY + 1) * MICROSECONDS_OF_DAY - 1
FIRST_SECOND = FIRST_MICROSECOND // 1_000_000
LAST_SECOND = LAST_MICROSECOND // 1_000_000
