"""Dates, times and other values that are no text, into their columns, as `json/exact.py` takes them."""

from __future__ import annotations

import numpy as np

from hudi_ingest.records.compiled import (
    below,
    byte,
    cold,
    hot,
    int32,
    put_byte,
    put_int16,
    put_int32,
    put_word,
    word,
)
from hudi_ingest.records.convert.json.kernel import characters
from hudi_ingest.records.convert.json.kernel.columns import (
    BINARY,
    BOOL,
    CAPACITY,
    DATA,
    DATE,
    DECIMAL,
    FLOAT32,
    INTEGER,
    LIMIT,
    OFFSETS,
    PRECISION,
    SCALE,
    TIMESTAMP,
    VALUES,
    WIDTH,
)
from hudi_ingest.records.convert.json.kernel.numbers import decimal_of, nearest_float32, nearest_float64, number_at
from hudi_ingest.records.convert.json.kernel.texts import plain_end
from hudi_ingest.records.times import FIRST_MICROSECOND, LAST_MICROSECOND

_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
NO_DAY = -1_000_000
_NOT_DIGITS = -10_000


@hot
def _two(at: int) -> int:
    """The number that two digits are, or something negative."""
    tens, ones = byte(at) - characters.ZERO, byte(at + 1) - characters.ZERO
    if below(9, tens) or below(9, ones):
        return _NOT_DIGITS
    return tens * 10 + ones


@cold
def day_at(at: int) -> int:
    """Days since 1970 of YYYY-MM-DD, or NO_DAY; the year 0000 is left to the exact path."""
    year, month, day = _two(at) * 100 + _two(at + 2), _two(at + 5), _two(at + 8)
    if (
        year < 1
        or month < 1
        or month > 12
        or day < 1
        or byte(at + 4) != characters.MINUS
        or byte(at + 7) != characters.MINUS
    ):
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
    """Since 1970 in UTC, of what `json.exact` takes for a timestamp, or NO_TIME."""
    if end - at < 10:
        return NO_TIME
    day = day_at(at)
    if day == NO_DAY:
        return NO_TIME
    at += 10
    hour = minute = second = fraction = ahead = 0
    if at < end:
        c = byte(at)
        if end - at < 3 or (c != characters.UPPER_T and c != characters.SPACE):
            return NO_TIME
        hour = _two(at + 1)
        at += 3
        if at < end and byte(at) == characters.COLON:
            if end - at < 3:
                return NO_TIME
            minute = _two(at + 1)
            at += 3
            if at < end and byte(at) == characters.COLON:
                if end - at < 3:
                    return NO_TIME
                second = _two(at + 1)
                at += 3
                if at < end and byte(at) == characters.DOT:
                    at += 1
                    digits = 0
                    while at < end:
                        c = byte(at) - characters.ZERO
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
            if c == characters.PLUS or c == characters.MINUS:
                if end - at < 2:
                    return NO_TIME
                zone_hour, zone_minute = _two(at), 0
                at += 2
                if at < end:
                    if byte(at) == characters.COLON:
                        at += 1
                    if end - at < 2:
                        return NO_TIME
                    zone_minute = _two(at)
                    at += 2
                if zone_hour < 0 or zone_hour > 23 or zone_minute < 0 or zone_minute > 59:
                    return NO_TIME
                ahead = zone_hour * 60 + zone_minute
                if c == characters.MINUS:
                    ahead = -ahead
            elif c != characters.UPPER_Z:
                return NO_TIME
        if at != end or hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
            return NO_TIME
    microseconds = ((day * 24 + hour) * 60 + minute - ahead) * 60_000_000 + second * 1_000_000 + fraction
    return microseconds if FIRST_MICROSECOND <= microseconds <= LAST_MICROSECOND else NO_TIME


_BASE64 = np.full(256, -1)
_BASE64[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)


@cold
def _from_base64(at: int, end: int, target: int) -> int:
    """Address behind the decoded bytes, or 0."""
    if (end - at) & 3:
        return 0
    while at < end:
        first, second = _BASE64[byte(at)], _BASE64[byte(at + 1)]
        third, fourth = _BASE64[byte(at + 2)], _BASE64[byte(at + 3)]
        if first < 0 or second < 0:
            return 0
        bits = first << 18 | second << 12
        if third < 0 or fourth < 0:
            if at + 4 != end or byte(at + 3) != 61:
                return 0
            if third < 0:
                if byte(at + 2) != 61 or second & 15:
                    return 0
                put_byte(target, bits >> 16)
                return target + 1
            if third & 3:
                return 0
            bits |= third << 6
            put_byte(target, bits >> 16)
            put_byte(target + 1, bits >> 8)
            return target + 2
        bits |= third << 6 | fourth
        put_byte(target, bits >> 16)
        put_byte(target + 1, bits >> 8)
        put_byte(target + 2, bits)
        at += 4
        target += 3
    return target


@hot
def put_scalar(kind: int, node: int, slot: int, at: int, end: int) -> int:
    """Put a number, boolean, date, time or binary. Address behind it, 0 if it is in doubt, -1 if there is no room."""
    c = byte(at)
    values = word(node + VALUES)
    if kind <= DECIMAL and c != characters.QUOTE:
        negative = c == characters.MINUS
        behind, head, rest, digits, fraction, exponent, whole = number_at(at + 1 if negative else at, end, False)
        if behind == 0:
            return 0
        if kind == INTEGER:
            if not whole or digits > 19:
                return 0
            number = -head if negative else head
            if digits == 19 and (number > 0) == negative:
                return 0
            limit = word(node + LIMIT)
            if number > limit or number < -limit - 1:
                return 0
            width = word(node + WIDTH)
            if width == 8:
                put_word(values + 8 * slot, number)
            elif width == 4:
                put_int32(values + 4 * slot, number)
            elif width == 2:
                put_int16(values + 2 * slot, number)
            else:
                put_byte(values + slot, number)
            return behind
        if kind == DECIMAL:
            if digits > 38:
                return 0
            shift = exponent - fraction + word(node + SCALE)
            fits, high, low = decimal_of(head, rest, digits, shift, word(node + PRECISION), negative)
            put_word(values + 16 * slot, low)
            put_word(values + 16 * slot + 8, high)
            return behind if fits else 0
        bits = nearest_float64(head, rest, digits, exponent - fraction)
        if kind == FLOAT32:
            bits = nearest_float32(bits) if bits >= 0 else bits
            put_int32(values + 4 * slot, bits | (1 << 31 if negative else 0))
        else:
            put_word(values + 8 * slot, bits | (-1 << 63 if negative else 0))
        return behind if bits >= 0 else 0
    if kind == BOOL:
        bits = values + (slot >> 3)
        if int32(at) == 0x65757274:
            put_byte(bits, byte(bits) | 1 << (slot & 7))
            return at + 4
        if c == characters.LOWER_F and int32(at + 1) == 0x65736C61:
            put_byte(bits, byte(bits) & ~(1 << (slot & 7)))
            return at + 5
        return 0
    if c != characters.QUOTE:
        return 0
    at += 1
    close = plain_end(at, end)
    if close == 0 or close >= end:
        return 0
    if kind == TIMESTAMP:
        microseconds = microseconds_at(at, close)
        put_word(values + 8 * slot, microseconds)
        return close + 1 if microseconds != NO_TIME else 0
    if kind == DATE:
        day = day_at(at) if close == at + 10 else NO_DAY
        put_int32(values + 4 * slot, day)
        return close + 1 if day != NO_DAY else 0
    if kind == BINARY:
        offsets = word(node + OFFSETS) + 4 * slot
        begin = int32(offsets)
        if begin + close - at > word(node + CAPACITY):
            return -1
        data = word(node + DATA)
        decoded = _from_base64(at, close, data + begin)
        put_int32(offsets + 4, decoded - data)
        return close + 1 if decoded else 0
    if kind == DECIMAL:
        c = byte(at)
        behind, head, rest, digits, fraction, exponent, _ = number_at(
            at + 1 if c == characters.PLUS or c == characters.MINUS else at, end, True
        )
        if behind != close or digits > 38:
            return 0
        shift = exponent - fraction + word(node + SCALE)
        fits, high, low = decimal_of(head, rest, digits, shift, word(node + PRECISION), c == characters.MINUS)
        put_word(values + 16 * slot, low)
        put_word(values + 16 * slot + 8, high)
        return close + 1 if fits else 0
    return 0
