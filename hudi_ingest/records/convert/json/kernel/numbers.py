"""JSON numbers, and the floats and decimals nearest to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hudi_ingest.records.compiled import (
    as_float32,
    below,
    bits_of,
    byte,
    cold,
    high_product,
    hot,
    leading_zeros,
    shifted_right,
)
from hudi_ingest.records.convert.json.kernel import characters


def _signed(numbers: list[int]) -> Any:
    return np.array(numbers, np.uint64).view(np.int64)


_LEAST_POWER, _GREATEST_POWER = -342, 308


def _powers_of_5() -> Any:
    """The 128 highest bits of 5**q, in two words each: cut off for q >= 0, rounded up for others."""
    words = []
    for q in range(_LEAST_POWER, _GREATEST_POWER + 1):
        power = 5 ** abs(q)
        if q >= 0:
            shift = power.bit_length() - 128
            bits = power >> shift if shift > 0 else power << -shift
        else:
            bits = (1 << (power.bit_length() + (127 if q >= -27 else power.bit_length() + 128))) // power + 1
            bits >>= max(bits.bit_length() - 128, 0)
        words += [bits >> 64, bits & (1 << 64) - 1]
    return _signed(words)


_POWERS_OF_5 = _powers_of_5()
_EXACT_POWERS = np.array([float(10**power) for power in range(23)])
_POWERS_OF_10 = _signed([10**power for power in range(20)])


@hot
def number_at(at: int, end: int, loose: bool) -> tuple[int, int, int, int, int, int, bool]:
    """A number behind its sign: address behind it (0 for none, and for exponents of more than 5 digits); its first 19
    digits as an unsigned number, the next 19 as another; how many digits it has, without zeros in front, and how many of
    all behind the point; the exponent; whether it has neither point nor exponent.

    `loose`, for texts: zeros in front, and a point without digits on one side."""
    head = rest = digits = fraction = exponent = 0
    whole = True
    begin = at
    if byte(at) == characters.ZERO:
        at += 1
        while loose and at < end and byte(at) == characters.ZERO:
            at += 1
        if not loose and characters.ZERO <= byte(at) <= characters.NINE:
            return 0, 0, 0, 0, 0, 0, False
    point = 0
    while True:
        c = byte(at) - characters.ZERO
        if below(9, c):
            if c != -2 or point:
                break
            point = at + 1
            whole = False
            at += 1
            if digits == 0:
                while at < end and byte(at) == characters.ZERO:
                    at += 1
            continue
        if digits < 19:
            head = head * 10 + c
        elif digits < 38:
            rest = rest * 10 + c
        elif at >= end:
            return 0, 0, 0, 0, 0, 0, False
        digits += 1
        at += 1
    if point:
        fraction = at - point
        if loose:
            if at == begin + 1:
                return 0, 0, 0, 0, 0, 0, False
        elif fraction == 0 or point == begin + 1:
            return 0, 0, 0, 0, 0, 0, False
    elif at == begin:
        return 0, 0, 0, 0, 0, 0, False
    if byte(at) | 32 == characters.LOWER_E:
        whole = False
        at += 1
        c = byte(at)
        if c == characters.PLUS or c == characters.MINUS:
            at += 1
        begin = at
        while characters.ZERO <= byte(at) <= characters.NINE:
            if at == begin + 5:
                return 0, 0, 0, 0, 0, 0, False
            exponent = exponent * 10 + byte(at) - characters.ZERO
            at += 1
        if at == begin:
            return 0, 0, 0, 0, 0, 0, False
        if c == characters.MINUS:
            exponent = -exponent
    return at, head, rest, digits, fraction, exponent, whole


@cold
def _nearest(number: int, power: int) -> int:
    """Bits of the float64 nearest to number * 10**power, the number being unsigned and not 0; -1 where it is not proved,
    denormal or too large. As D. Lemire, Number Parsing at a Gigabyte per Second, has it."""
    if power < _LEAST_POWER or power > _GREATEST_POWER:
        return -1
    zeros = leading_zeros(number)
    number <<= zeros
    place = 2 * (power - _LEAST_POWER)
    low, high = number * _POWERS_OF_5[place], high_product(number, _POWERS_OF_5[place])
    if high & 0x1FF == 0x1FF:
        more = high_product(number, _POWERS_OF_5[place + 1])
        low += more
        if below(low, more):
            high += 1
        if low == -1 and (power < -27 or power > 55):
            return -1
    upper = shifted_right(high, 63)
    mantissa = shifted_right(high, upper + 9)
    exponent = ((217706 * power) >> 16) + 63 + upper - zeros + 1023
    if exponent <= 0:
        return -1
    if below(low, 2) and -4 <= power <= 23 and mantissa & 3 == 1 and mantissa << (upper + 9) == high:
        mantissa &= ~1
    mantissa = (mantissa + (mantissa & 1)) >> 1
    if mantissa >= 1 << 53:
        mantissa = 1 << 52
        exponent += 1
    if exponent >= 0x7FF:
        return -1
    return (mantissa & ~(1 << 52)) | exponent << 52


@hot
def nearest_float64(head: int, rest: int, digits: int, power: int) -> int:
    """Bits of the nearest float64 without a sign, or -1."""
    if digits == 0:
        return 0
    if digits <= 15 and -22 <= power <= 22:
        number = float(head)
        return bits_of(number * _EXACT_POWERS[power] if power >= 0 else number / _EXACT_POWERS[-power])
    if digits <= 19:
        return _nearest(head, power)
    # It lies between these two, so that it becomes what both become.
    bits = _nearest(head, power + digits - 19)
    return bits if bits == _nearest(head + 1, power + digits - 19) else -1


@hot
def nearest_float32(bits: int) -> int:
    """Bits of the float32 nearest to the number whose nearest float64 has these, or -1. Rounding twice is wrong only at
    a float64 halfway between two float32."""
    if bits == 0:
        return 0
    exponent = bits >> 52
    if exponent < 897 or exponent > 1149 or bits & 0x1FFFFFFF == 0x10000000:
        return -1
    return as_float32(bits)


@cold
def decimal_of(head: int, rest: int, digits: int, shift: int, precision: int, negative: bool) -> tuple[bool, int, int]:
    """Whether it is proved to fit, and the number * 10**shift in two words."""
    if digits == 0:
        return True, 0, 0
    if shift < 0:
        if digits > 18:
            return False, 0, 0
        while shift < 0 and head % 10 == 0:
            head //= 10
            digits -= 1
            shift += 1
    if shift < 0 or digits + shift > precision:
        return False, 0, 0
    low, high = head, 0
    if digits > 19:
        power = _POWERS_OF_10[digits - 19]
        high = high_product(low, power)
        low = low * power + rest
        if below(low, rest):
            high += 1
    while shift > 0:
        step = min(shift, 19)
        power = _POWERS_OF_10[step]
        high = high * power + high_product(low, power)
        low *= power
        shift -= step
    if negative:
        low = -low
        high = -high - (1 if low != 0 else 0)
    return True, high, low
