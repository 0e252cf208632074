"""JSON records -> the buffers of Arrow columns, in one compiled pass over their bytes.

numba compiles this when it is imported: about 6 s the first time on a machine, 0.3 s from numba's cache. So only
`json_fast` imports it, and only when there are enough records. The machine code is the same for every schema, because
the schema is data: the table of nodes in `json_nodes`.

The code works on raw addresses. Why it stays inside the buffers:

- It may read up to 64 bytes past a record; `json_fast` copies the records at the end of a buffer that has no such margin.
  Each step starts before the record's end and reads less than 64 bytes past it. Bytes past the end cannot change the
  outcome: a record counts only if its last bracket and white space end exactly where the record ends.
- It writes a value only after it has checked that level's capacity, and a text only after it has checked for room for the
  rest of the record. If there is no room it stops; `json_fast` makes room and continues with that record.

All compiled code is in this file, because numba checks only this file's time and size to see if its cache is stale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from hudi_ingest.records.convert.json_nodes import (
    BINARY,
    BOOL,
    CAPACITY,
    CHILD,
    CHILDREN,
    COUNT,
    DATA,
    DATE,
    DECIMAL,
    FIRST_MEMBER,
    FLAT_BEGIN,
    FLAT_END,
    FLOAT32,
    FRAME_BYTES,
    FRAMES,
    FULL_LEVEL,
    FULL_NODE,
    HAS_NULL,
    INTEGER,
    KIND,
    LEVEL,
    LEVEL_BYTES,
    LEVEL_CAPACITY,
    LIMIT,
    LIST,
    NAME,
    NAME_LENGTH,
    NAME_MASK,
    NAME_WORD,
    NEXT_MEMBER,
    NODE_BYTES,
    NULLABLE,
    OBJECTS,
    OFFSETS,
    PRECISION,
    SAVED,
    SCALE,
    SCRATCH,
    SCRATCH_ROOM,
    SEEN_BY,
    STRING,
    STRUCT,
    TIMESTAMP,
    VALID,
    VALUES,
    WIDTH,
)
from hudi_ingest.records.times import FIRST_MICROSECOND, LAST_MICROSECOND

_I8, _I32, _I64, _I128 = (ir.IntType(bits) for bits in (8, 32, 64, 128))
_BLOCK = ir.VectorType(_I8, 32)

GOOD, DOUBTFUL, FULL = 0, 1, 2

# ---- What the machine does: numbers are int64 throughout, and unsigned where a name says so


def _operation(arguments: int, result: Any, emit: Callable[..., Any]) -> Any:
    """A function of int64 arguments that is the LLVM code which `emit` writes."""
    signature = result(*[types.int64] * arguments)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return emit(builder, *values)

    if arguments == 1:

        @intrinsic
        def operation1(context: Any, first: Any) -> Any:
            return signature, generate

        return operation1

    @intrinsic
    def operation2(context: Any, first: Any, second: Any) -> Any:
        return signature, generate

    return operation2


def _load(kind: Any) -> Any:
    def emit(builder: Any, address: Any) -> Any:
        value = builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)
        return value if kind.width == 64 else builder.zext(value, _I64)

    return _operation(1, types.int64, emit)


def _store(kind: Any) -> Any:
    def emit(builder: Any, address: Any, value: Any) -> Any:
        narrow = value if kind.width == 64 else builder.trunc(value, kind)
        builder.store(narrow, builder.inttoptr(address, kind.as_pointer()), align=1)
        return ir.Constant(_I64, 0)

    return _operation(2, types.int64, emit)


def _high_product(builder: Any, first: Any, second: Any) -> Any:
    product = builder.mul(builder.zext(first, _I128), builder.zext(second, _I128))
    return builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)


def _bits_of_float32(builder: Any, bits: Any) -> Any:
    narrow = builder.fptrunc(builder.bitcast(bits, ir.DoubleType()), ir.FloatType())
    return builder.zext(builder.bitcast(narrow, _I32), _I64)


def _special(builder: Any, source: Any, target: Any = None) -> Any:
    """Of 32 bytes, copied to the target: bit n says that byte n ends plain text (a quote, a backslash or a control
    character), bit 32 + n that it is not ASCII."""
    block = builder.load(builder.inttoptr(source, _BLOCK.as_pointer()), align=1)
    if target is not None:
        builder.store(block, builder.inttoptr(target, _BLOCK.as_pointer()), align=1)

    def constant(value: int) -> Any:
        return ir.Constant(_BLOCK, [value] * 32)

    quotes = builder.icmp_unsigned("==", block, constant(0x22))
    backslashes = builder.icmp_unsigned("==", block, constant(0x5C))
    controls = builder.icmp_unsigned("<", block, constant(0x20))
    ends = builder.or_(builder.or_(quotes, backslashes), controls)
    beyond_ascii = builder.icmp_signed("<", block, constant(0))
    low, high = (builder.zext(builder.bitcast(bits, _I32), _I64) for bits in (ends, beyond_ascii))
    return builder.or_(low, builder.shl(high, ir.Constant(_I64, 32)))


_no = ir.Constant(ir.IntType(1), 0)
_byte, _int32, _word = _load(_I8), _load(_I32), _load(_I64)
_put_byte, _put_int16, _put_int32, _put_word = (_store(ir.IntType(bits)) for bits in (8, 16, 32, 64))
_shifted_right = _operation(2, types.int64, lambda builder, value, bits: builder.lshr(value, bits))
_below = _operation(2, types.boolean, lambda builder, first, second: builder.icmp_unsigned("<", first, second))
_high = _operation(2, types.int64, _high_product)
_trailing_zeros = _operation(1, types.int64, lambda builder, value: builder.cttz(value, _no))
_leading_zeros = _operation(1, types.int64, lambda builder, value: builder.ctlz(value, _no))
_as_float32 = _operation(1, types.int64, _bits_of_float32)
_looked_at = _operation(1, types.int64, lambda builder, source: _special(builder, source))
_copied = _operation(2, types.int64, _special)


@intrinsic
def _bits(context: Any, number: Any) -> Any:
    return types.int64(types.float64), lambda context, builder, signature, values: builder.bitcast(values[0], _I64)


_hot = njit(error_model="numpy", forceinline=True)
_cold = njit(error_model="numpy")

# ---- Tables


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
_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_BASE64 = np.full(256, -1)
_BASE64[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)

# ---- White space, texts


@_hot
def _after_space(at: int, end: int) -> int:
    while at < end:
        c = _byte(at)
        if c != 32 and c != 10 and c != 13 and c != 9:
            break
        at += 1
    return at


@_cold
def _hexadecimal(at: int) -> int:
    """The number that four digits are, or -1."""
    number = 0
    for place in range(4):
        c = _byte(at + place)
        if 48 <= c <= 57:
            number = number * 16 + c - 48
        elif 97 <= (c | 32) <= 102:
            number = number * 16 + (c | 32) - 87
        else:
            return -1
    return number


@_cold
def _unescaped(at: int, target: int) -> tuple[int, int]:
    """Puts the character of an escape. Addresses behind both; 0 for the first if it is none, or half of a pair."""
    c = _byte(at + 1)
    if c != 117:
        if c == 110:
            c = 10
        elif c == 116:
            c = 9
        elif c == 114:
            c = 13
        elif c == 98:
            c = 8
        elif c == 102:
            c = 12
        elif c != 34 and c != 92 and c != 47:
            return 0, target
        _put_byte(target, c)
        return at + 2, target + 1
    code = _hexadecimal(at + 2)
    at += 6
    if code < 0:
        return 0, target
    if 0xD800 <= code <= 0xDFFF:
        low = _hexadecimal(at + 2)
        if code >= 0xDC00 or _byte(at) != 92 or _byte(at + 1) != 117 or low < 0xDC00 or low > 0xDFFF:
            return 0, target
        code = 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
        at += 6
    if code < 0x80:
        _put_byte(target, code)
        return at, target + 1
    if code < 0x800:
        _put_byte(target, 0xC0 | code >> 6)
        _put_byte(target + 1, 0x80 | code & 63)
        return at, target + 2
    if code < 0x10000:
        _put_byte(target, 0xE0 | code >> 12)
        _put_byte(target + 1, 0x80 | code >> 6 & 63)
        _put_byte(target + 2, 0x80 | code & 63)
        return at, target + 3
    _put_byte(target, 0xF0 | code >> 18)
    _put_byte(target + 1, 0x80 | code >> 12 & 63)
    _put_byte(target + 2, 0x80 | code >> 6 & 63)
    _put_byte(target + 3, 0x80 | code & 63)
    return at, target + 4


@_hot
def _text(at: int, end: int, target: int) -> tuple[int, int, int]:
    """Copies a text from behind its quote. Address behind the closing quote, or 0; end of the copy; not 0 if it has more
    than ASCII. Needs room for what is left of the record and 64 bytes."""
    beyond_ascii = 0
    while at < end:
        found = _copied(at, target)
        stops = found & 0xFFFFFFFF
        if stops == 0:
            beyond_ascii |= found
            at += 32
            target += 32
            continue
        plain = _trailing_zeros(stops)
        beyond_ascii |= _shifted_right(found, 32) & ((1 << plain) - 1)
        at += plain
        target += plain
        c = _byte(at)
        if c == 34:
            return at + 1, target, beyond_ascii
        if c != 92:
            return 0, target, 0
        at, target = _unescaped(at, target)
        if at == 0:
            return 0, target, 0
    return 0, target, 0


@_cold
def _plain_end(at: int, end: int) -> int:
    """Address of the quote that closes an ASCII text without escapes, or 0."""
    while at < end:
        found = _looked_at(at)
        stops = found & 0xFFFFFFFF
        if stops == 0:
            if found:
                return 0
            at += 32
            continue
        plain = _trailing_zeros(stops)
        if _byte(at + plain) != 34 or _shifted_right(found, 32) & ((1 << plain) - 1):
            return 0
        return at + plain
    return 0


@_cold
def _is_utf8(at: int, end: int) -> bool:
    while at < end:
        if at + 8 <= end and _word(at) & -0x7F7F7F7F7F7F7F80 == 0:
            at += 8
            continue
        c = _byte(at)
        if c < 0x80:
            at += 1
            continue
        second = _byte(at + 1)
        if c < 0xC2 or c > 0xF4 or second & 0xC0 != 0x80:
            return False
        if c < 0xE0:
            at += 2
            continue
        if _byte(at + 2) & 0xC0 != 0x80:
            return False
        if c < 0xF0:
            if (c == 0xE0 and second < 0xA0) or (c == 0xED and second > 0x9F):
                return False
            at += 3
            continue
        if (c == 0xF0 and second < 0x90) or (c == 0xF4 and second > 0x8F) or _byte(at + 3) & 0xC0 != 0x80:
            return False
        at += 4
    return at == end


# ---- Values that nobody declared: any JSON, and what the exact path lets pass beside it


@_cold
def _after_text(at: int, end: int) -> tuple[int, int]:
    """From behind a quote. Address behind the closing one, or 0; not 0 if it has more than ASCII."""
    beyond_ascii = 0
    while at < end:
        found = _looked_at(at)
        stops = found & 0xFFFFFFFF
        if stops == 0:
            beyond_ascii |= found
            at += 32
            continue
        plain = _trailing_zeros(stops)
        beyond_ascii |= _shifted_right(found, 32) & ((1 << plain) - 1)
        at += plain
        c = _byte(at)
        if c == 34:
            return at + 1, beyond_ascii
        if c != 92:
            return 0, 0
        c = _byte(at + 1)
        at += 2
        if c == 117:
            if _hexadecimal(at) < 0:
                return 0, 0
            at += 4
        elif c != 34 and c != 92 and c != 47 and c != 98 and c != 102 and c != 110 and c != 114 and c != 116:
            return 0, 0
    return 0, 0


@_hot
def _after_digits(at: int, end: int) -> int:
    while at < end and 48 <= _byte(at) <= 57:
        at += 1
    return at


@_cold
def _after_scalar(at: int, end: int) -> int:
    """Address behind a number, true, false, null, NaN or Infinity, or 0."""
    c = _byte(at)
    if c == 116:
        return at + 4 if _int32(at) == 0x65757274 else 0
    if c == 102:
        return at + 5 if _int32(at + 1) == 0x65736C61 else 0
    if c == 110:
        return at + 4 if _int32(at) == 0x6C6C756E else 0
    if c == 78:
        return at + 3 if _int32(at) & 0xFFFFFF == 0x4E614E else 0
    if c == 45:
        at += 1
        c = _byte(at)
    if c == 73:
        return at + 8 if _word(at) == 0x7974696E69666E49 else 0
    begin = at
    at = _after_digits(at, end)
    if at == begin or (c == 48 and at > begin + 1):
        return 0
    if _byte(at) == 46:
        begin = at + 1
        at = _after_digits(begin, end)
        if at == begin:
            return 0
    if _byte(at) | 32 == 101:
        at += 1
        c = _byte(at)
        if c == 43 or c == 45:
            at += 1
        begin = at
        at = _after_digits(begin, end)
        if at == begin:
            return 0
    return at


@_cold
def _skipped(at: int, end: int) -> tuple[int, int]:
    """Address behind a value, or 0 if it is none or deeper than 60; not 0 if its texts have more than ASCII."""
    depth = objects = beyond_ascii = 0
    while True:
        if at >= end:
            return 0, 0
        c = _byte(at)
        named = False
        if c == 34:
            at, found = _after_text(at + 1, end)
            beyond_ascii |= found
            if at == 0:
                return 0, 0
        elif c == 123 or c == 91:
            if depth == 60:
                return 0, 0
            depth += 1
            objects = objects << 1 | (1 if c == 123 else 0)
            at = _after_space(at + 1, end)
            if _byte(at) != c + 2:
                if c == 91:
                    continue
                named = True
        else:
            at = _after_scalar(at, end)
            if at == 0:
                return 0, 0
        while not named:
            if depth == 0:
                return at, beyond_ascii
            at = _after_space(at, end)
            if at >= end:
                return 0, 0
            c = _byte(at)
            at += 1
            if c == 44:
                at = _after_space(at, end)
                break
            if c != (125 if objects & 1 else 93):
                return 0, 0
            depth -= 1
            objects >>= 1
        if objects & 1:
            if at >= end or _byte(at) != 34:
                return 0, 0
            at, found = _after_text(at + 1, end)
            beyond_ascii |= found
            if at == 0:
                return 0, 0
            at = _after_space(at, end)
            if _byte(at) != 58:
                return 0, 0
            at = _after_space(at + 1, end)


# ---- Numbers


@_hot
def _number(at: int, end: int, loose: bool) -> tuple[int, int, int, int, int, int, bool]:
    """A number behind its sign: address behind it (0 for none, and for exponents of more than 5 digits); its first 19
    digits as an unsigned number, the next 19 as another; how many digits it has, without zeros in front, and how many of
    all behind the point; the exponent; whether it has neither point nor exponent.

    `loose`, for texts: zeros in front, and a point without digits on one side."""
    head = rest = digits = fraction = exponent = 0
    whole = True
    begin = at
    if _byte(at) == 48:
        at += 1
        while loose and at < end and _byte(at) == 48:
            at += 1
        if not loose and 48 <= _byte(at) <= 57:
            return 0, 0, 0, 0, 0, 0, False
    point = 0
    while True:
        c = _byte(at) - 48
        if _below(9, c):
            if c != -2 or point:
                break
            point = at + 1
            whole = False
            at += 1
            if digits == 0:
                while at < end and _byte(at) == 48:
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
    if _byte(at) | 32 == 101:
        whole = False
        at += 1
        c = _byte(at)
        if c == 43 or c == 45:
            at += 1
        begin = at
        while 48 <= _byte(at) <= 57:
            if at == begin + 5:
                return 0, 0, 0, 0, 0, 0, False
            exponent = exponent * 10 + _byte(at) - 48
            at += 1
        if at == begin:
            return 0, 0, 0, 0, 0, 0, False
        if c == 45:
            exponent = -exponent
    return at, head, rest, digits, fraction, exponent, whole


@_cold
def _nearest(number: int, power: int) -> int:
    """Bits of the float64 nearest to number * 10**power, the number being unsigned and not 0; -1 where it is not proved,
    denormal or too large. As D. Lemire, Number Parsing at a Gigabyte per Second, has it."""
    if power < _LEAST_POWER or power > _GREATEST_POWER:
        return -1
    zeros = _leading_zeros(number)
    number <<= zeros
    place = 2 * (power - _LEAST_POWER)
    low, high = number * _POWERS_OF_5[place], _high(number, _POWERS_OF_5[place])
    if high & 0x1FF == 0x1FF:
        more = _high(number, _POWERS_OF_5[place + 1])
        low += more
        if _below(low, more):
            high += 1
        if low == -1 and (power < -27 or power > 55):
            return -1
    upper = _shifted_right(high, 63)
    mantissa = _shifted_right(high, upper + 9)
    exponent = ((217706 * power) >> 16) + 63 + upper - zeros + 1023
    if exponent <= 0:
        return -1
    if _below(low, 2) and -4 <= power <= 23 and mantissa & 3 == 1 and mantissa << (upper + 9) == high:
        mantissa &= ~1
    mantissa = (mantissa + (mantissa & 1)) >> 1
    if mantissa >= 1 << 53:
        mantissa = 1 << 52
        exponent += 1
    if exponent >= 0x7FF:
        return -1
    return (mantissa & ~(1 << 52)) | exponent << 52


@_hot
def _float64(head: int, rest: int, digits: int, power: int) -> int:
    """Bits of the nearest float64 without a sign, or -1."""
    if digits == 0:
        return 0
    if digits <= 15 and -22 <= power <= 22:
        number = float(head)
        return _bits(number * _EXACT_POWERS[power] if power >= 0 else number / _EXACT_POWERS[-power])
    if digits <= 19:
        return _nearest(head, power)
    # It lies between these two, so that it becomes what both become.
    bits = _nearest(head, power + digits - 19)
    return bits if bits == _nearest(head + 1, power + digits - 19) else -1


@_hot
def _float32(bits: int) -> int:
    """Bits of the float32 nearest to the number whose nearest float64 has these, or -1. Rounding twice is wrong only at
    a float64 halfway between two float32."""
    if bits == 0:
        return 0
    exponent = bits >> 52
    if exponent < 897 or exponent > 1149 or bits & 0x1FFFFFFF == 0x10000000:
        return -1
    return _as_float32(bits)


@_cold
def _decimal(head: int, rest: int, digits: int, shift: int, precision: int, negative: bool) -> tuple[bool, int, int]:
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
        high = _high(low, power)
        low = low * power + rest
        if _below(low, rest):
            high += 1
    while shift > 0:
        step = min(shift, 19)
        power = _POWERS_OF_10[step]
        high = high * power + _high(low, power)
        low *= power
        shift -= step
    if negative:
        low = -low
        high = -high - (1 if low != 0 else 0)
    return True, high, low


# ---- Dates and times

_NO_DAY = -1_000_000
_NOT_DIGITS = -10_000


@_hot
def _two(at: int) -> int:
    """The number that two digits are, or something negative."""
    tens, ones = _byte(at) - 48, _byte(at + 1) - 48
    if _below(9, tens) or _below(9, ones):
        return _NOT_DIGITS
    return tens * 10 + ones


@_cold
def _day(at: int) -> int:
    """Days since 1970 of YYYY-MM-DD, or _NO_DAY; the year 0000 is left to the exact path."""
    year, month, day = _two(at) * 100 + _two(at + 2), _two(at + 5), _two(at + 8)
    if year < 1 or month < 1 or month > 12 or day < 1 or _byte(at + 4) != 45 or _byte(at + 7) != 45:
        return _NO_DAY
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _MONTH_DAYS[month] + (1 if leap else 0):
        return _NO_DAY
    if month <= 2:
        year -= 1
        month += 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 1 - 719468


_NO_TIME = FIRST_MICROSECOND - 1


@_cold
def _microseconds(at: int, end: int) -> int:
    """Since 1970 in UTC, of what json_exact takes for a timestamp, or _NO_TIME."""
    if end - at < 10:
        return _NO_TIME
    day = _day(at)
    if day == _NO_DAY:
        return _NO_TIME
    at += 10
    hour = minute = second = fraction = ahead = 0
    if at < end:
        c = _byte(at)
        if end - at < 3 or (c != 84 and c != 32):
            return _NO_TIME
        hour = _two(at + 1)
        at += 3
        if at < end and _byte(at) == 58:
            if end - at < 3:
                return _NO_TIME
            minute = _two(at + 1)
            at += 3
            if at < end and _byte(at) == 58:
                if end - at < 3:
                    return _NO_TIME
                second = _two(at + 1)
                at += 3
                if at < end and _byte(at) == 46:
                    at += 1
                    digits = 0
                    while at < end:
                        c = _byte(at) - 48
                        if _below(9, c):
                            break
                        if digits < 6:
                            fraction = fraction * 10 + c
                        elif c != 0:
                            return _NO_TIME
                        digits += 1
                        at += 1
                    if digits == 0:
                        return _NO_TIME
                    while digits < 6:
                        fraction *= 10
                        digits += 1
        if at < end:
            c = _byte(at)
            at += 1
            if c == 43 or c == 45:
                if end - at < 2:
                    return _NO_TIME
                zone_hour, zone_minute = _two(at), 0
                at += 2
                if at < end:
                    if _byte(at) == 58:
                        at += 1
                    if end - at < 2:
                        return _NO_TIME
                    zone_minute = _two(at)
                    at += 2
                if zone_hour < 0 or zone_hour > 23 or zone_minute < 0 or zone_minute > 59:
                    return _NO_TIME
                ahead = zone_hour * 60 + zone_minute
                if c == 45:
                    ahead = -ahead
            elif c != 90:
                return _NO_TIME
        if at != end or hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
            return _NO_TIME
    microseconds = ((day * 24 + hour) * 60 + minute - ahead) * 60_000_000 + second * 1_000_000 + fraction
    return microseconds if FIRST_MICROSECOND <= microseconds <= LAST_MICROSECOND else _NO_TIME


@_cold
def _from_base64(at: int, end: int, target: int) -> int:
    """Address behind the decoded bytes, or 0."""
    if (end - at) & 3:
        return 0
    while at < end:
        first, second = _BASE64[_byte(at)], _BASE64[_byte(at + 1)]
        third, fourth = _BASE64[_byte(at + 2)], _BASE64[_byte(at + 3)]
        if first < 0 or second < 0:
            return 0
        bits = first << 18 | second << 12
        if third < 0 or fourth < 0:
            if at + 4 != end or _byte(at + 3) != 61:
                return 0
            if third < 0:
                if _byte(at + 2) != 61 or second & 15:
                    return 0
                _put_byte(target, bits >> 16)
                return target + 1
            if third & 3:
                return 0
            bits |= third << 6
            _put_byte(target, bits >> 16)
            _put_byte(target + 1, bits >> 8)
            return target + 2
        bits |= third << 6 | fourth
        _put_byte(target, bits >> 16)
        _put_byte(target + 1, bits >> 8)
        _put_byte(target + 2, bits)
        at += 4
        target += 3
    return target


# ---- Records


@_hot
def _same(first: int, second: int, length: int) -> bool:
    """Of texts of the same length."""
    for place in range(length):  # noqa: SIM110 (numba compiles no generator into this)
        if _byte(first + place) != _byte(second + place):
            return False
    return True


@_cold
def _member(nodes: int, parent: int, name: int, length: int) -> int:
    """The node of the parent's member with that name, whose length counts the closing quote; 0 if there is none."""
    node = nodes + _word(parent + CHILD)
    word = _word(name)
    for _ in range(_word(parent + CHILDREN)):
        if (
            _word(node + NAME_LENGTH) == length
            and (word ^ _word(node + NAME_WORD)) & _word(node + NAME_MASK) == 0
            and (length <= 8 or _same(name, _word(node + NAME), length))
        ):
            return node
        node += NODE_BYTES
    return 0


@_cold
def _put_null(nodes: int, flat: int, node: int, slot: int) -> None:
    """In the node's column, and in those of its members."""
    for place in range(_word(node + FLAT_BEGIN), _word(node + FLAT_END)):
        column = nodes + _word(flat + 8 * place)
        bits = _word(column + VALID) + (slot >> 3)
        _put_byte(bits, _byte(bits) & ~(1 << (slot & 7)))
        _put_word(column + HAS_NULL, 1)
        offsets = _word(column + OFFSETS)
        if offsets:
            _put_int32(offsets + 4 * slot + 4, _int32(offsets + 4 * slot))
        values, width = _word(column + VALUES), _word(column + WIDTH)
        for part in range(slot * width, (slot + 1) * width):
            _put_byte(values + part, 0)


@_cold
def _put_missing(nodes: int, flat: int, parent: int, slot: int, seen_by: int) -> bool:
    """Nulls for what an object does not have; False if one of them may not be null."""
    node = nodes + _word(parent + CHILD)
    for _ in range(_word(parent + CHILDREN)):
        if _word(node + SEEN_BY) != seen_by:
            if _word(node + NULLABLE) == 0:
                return False
            _put_null(nodes, flat, node, slot)
        node += NODE_BYTES
    return True


@_cold
def _is_new_key(key: int, first: int, last: int) -> bool:
    """Whether a map's newest key, the last, is none of those before it; False, too, where they are very many."""
    offsets, data = _word(key + OFFSETS), _word(key + DATA)
    begin, end = _int32(offsets + 4 * last), _int32(offsets + 4 * last + 4)
    if last - first > 500:
        return False
    for slot in range(first, last):
        other = _int32(offsets + 4 * slot)
        if _int32(offsets + 4 * slot + 4) - other == end - begin and _same(data + other, data + begin, end - begin):
            return False
    return True


@_hot
def _put_scalar(kind: int, node: int, slot: int, at: int, end: int) -> int:
    """A number, boolean, date, time or binary. Address behind it, 0 if it is in doubt, -1 if there is no room."""
    c = _byte(at)
    values = _word(node + VALUES)
    if kind <= DECIMAL and c != 34:
        negative = c == 45
        behind, head, rest, digits, fraction, exponent, whole = _number(at + 1 if negative else at, end, False)
        if behind == 0:
            return 0
        if kind == INTEGER:
            if not whole or digits > 19:
                return 0
            number = -head if negative else head
            if digits == 19 and (number > 0) == negative:
                return 0
            limit = _word(node + LIMIT)
            if number > limit or number < -limit - 1:
                return 0
            width = _word(node + WIDTH)
            if width == 8:
                _put_word(values + 8 * slot, number)
            elif width == 4:
                _put_int32(values + 4 * slot, number)
            elif width == 2:
                _put_int16(values + 2 * slot, number)
            else:
                _put_byte(values + slot, number)
            return behind
        if kind == DECIMAL:
            if digits > 38:
                return 0
            shift = exponent - fraction + _word(node + SCALE)
            fits, high, low = _decimal(head, rest, digits, shift, _word(node + PRECISION), negative)
            _put_word(values + 16 * slot, low)
            _put_word(values + 16 * slot + 8, high)
            return behind if fits else 0
        bits = _float64(head, rest, digits, exponent - fraction)
        if kind == FLOAT32:
            bits = _float32(bits) if bits >= 0 else bits
            _put_int32(values + 4 * slot, bits | (1 << 31 if negative else 0))
        else:
            _put_word(values + 8 * slot, bits | (-1 << 63 if negative else 0))
        return behind if bits >= 0 else 0
    if kind == BOOL:
        bits = values + (slot >> 3)
        if _int32(at) == 0x65757274:
            _put_byte(bits, _byte(bits) | 1 << (slot & 7))
            return at + 4
        if c == 102 and _int32(at + 1) == 0x65736C61:
            _put_byte(bits, _byte(bits) & ~(1 << (slot & 7)))
            return at + 5
        return 0
    if c != 34:
        return 0
    at += 1
    close = _plain_end(at, end)
    if close == 0 or close >= end:
        return 0
    if kind == TIMESTAMP:
        microseconds = _microseconds(at, close)
        _put_word(values + 8 * slot, microseconds)
        return close + 1 if microseconds != _NO_TIME else 0
    if kind == DATE:
        day = _day(at) if close == at + 10 else _NO_DAY
        _put_int32(values + 4 * slot, day)
        return close + 1 if day != _NO_DAY else 0
    if kind == BINARY:
        offsets = _word(node + OFFSETS) + 4 * slot
        begin = _int32(offsets)
        if begin + close - at > _word(node + CAPACITY):
            return -1
        data = _word(node + DATA)
        decoded = _from_base64(at, close, data + begin)
        _put_int32(offsets + 4, decoded - data)
        return close + 1 if decoded else 0
    if kind == DECIMAL:
        c = _byte(at)
        behind, head, rest, digits, fraction, exponent, _ = _number(at + 1 if c == 43 or c == 45 else at, end, True)
        if behind != close or digits > 38:
            return 0
        shift = exponent - fraction + _word(node + SCALE)
        fits, high, low = _decimal(head, rest, digits, shift, _word(node + PRECISION), c == 45)
        _put_word(values + 16 * slot, low)
        _put_word(values + 16 * slot + 8, high)
        return close + 1 if fits else 0
    return 0


@_hot
def _new_object(state: int) -> int:
    objects = _word(state + OBJECTS) + 1
    _put_word(state + OBJECTS, objects)
    return objects


@_cold
def _record(nodes: int, levels: int, flat: int, state: int, at: int, end: int) -> int:
    """Puts one record behind the rows that there are: GOOD, DOUBTFUL, or FULL with what is full in the state."""
    begin = at
    at = _after_space(at, end)
    if at >= end or _byte(at) != 123:
        return DOUBTFUL
    frames, scratch = _word(state + FRAMES), _word(state + SCRATCH)
    parent, slot, seen, depth, beyond_ascii = nodes, _word(levels + SAVED), 0, 0, 0
    seen_by, guess = _new_object(state), parent + FIRST_MEMBER
    kind, close = STRUCT, 125
    at += 1
    opened = True
    while True:
        # Behind a bracket or a comma.
        if _byte(at) <= 32:
            at = _after_space(at, end)
        if at >= end:
            return DOUBTFUL
        c = _byte(at)
        if not (opened and c == close):
            node, place = 0, slot
            if kind == STRUCT:
                if c != 34:
                    return DOUBTFUL
                at += 1
                node = nodes + _word(guess)
                length = _word(node + NAME_LENGTH)
                if (
                    at + length <= end
                    and (_word(at) ^ _word(node + NAME_WORD)) & _word(node + NAME_MASK) == 0
                    and (length <= 8 or _same(at, _word(node + NAME), length))
                ):
                    at += length
                else:
                    found = _looked_at(at)
                    stops = found & 0xFFFFFFFF
                    plain = _trailing_zeros(stops) if stops else 0
                    if stops and _byte(at + plain) == 34 and _shifted_right(found, 32) & ((1 << plain) - 1) == 0:
                        node = _member(nodes, parent, at, plain + 1)
                        at += plain + 1
                    else:
                        # Longer names, and those with escapes: the copy ends in a quote, as the declared names do.
                        at, target, found = _text(at, min(end, at + SCRATCH_ROOM), scratch)
                        if at == 0:
                            return DOUBTFUL
                        beyond_ascii |= found
                        _put_byte(target, 34)
                        node = _member(nodes, parent, scratch, target + 1 - scratch)
                    if node:
                        _put_word(guess, node - nodes)
                if node:
                    if _word(node + SEEN_BY) == seen_by:
                        return DOUBTFUL
                    _put_word(node + SEEN_BY, seen_by)
                    seen += 1
                    guess = node + NEXT_MEMBER
            else:
                node = nodes + _word(parent + CHILD)
                level = levels + _word(node + LEVEL)
                place = _word(level + COUNT)
                if place >= _word(level + LEVEL_CAPACITY):
                    _put_word(state + FULL_LEVEL, level - levels)
                    return FULL
                _put_word(level + COUNT, place + 1)
                if kind != LIST:
                    if c != 34:
                        return DOUBTFUL
                    offsets, data = _word(node + OFFSETS) + 4 * place, _word(node + DATA)
                    start = _int32(offsets)
                    if start + end - at + 64 > _word(node + CAPACITY):
                        _put_word(state + FULL_NODE, node - nodes)
                        return FULL
                    at, target, found = _text(at + 1, end, data + start)
                    if at == 0:
                        return DOUBTFUL
                    beyond_ascii |= found
                    _put_int32(offsets + 4, target - data)
                    if not _is_new_key(node, _int32(_word(parent + OFFSETS) + 4 * slot), place):
                        return DOUBTFUL
                    node += NODE_BYTES
            if kind != LIST:
                if _byte(at) <= 32:
                    at = _after_space(at, end)
                if _byte(at) != 58:
                    return DOUBTFUL
                at += 1
                if _byte(at) <= 32:
                    at = _after_space(at, end)
                if at >= end:
                    return DOUBTFUL
                c = _byte(at)
            if node == 0:
                at, found = _skipped(at, end)
                beyond_ascii |= found
                if at == 0:
                    return DOUBTFUL
            elif c == 110:
                if _int32(at) != 0x6C6C756E or _word(node + NULLABLE) == 0:
                    return DOUBTFUL
                _put_null(nodes, flat, node, place)
                at += 4
            else:
                value_kind = _word(node + KIND)
                if value_kind == STRING:
                    if c != 34:
                        return DOUBTFUL
                    offsets, data = _word(node + OFFSETS) + 4 * place, _word(node + DATA)
                    start = _int32(offsets)
                    if start + end - at + 64 > _word(node + CAPACITY):
                        _put_word(state + FULL_NODE, node - nodes)
                        return FULL
                    at, target, found = _text(at + 1, end, data + start)
                    if at == 0:
                        return DOUBTFUL
                    beyond_ascii |= found
                    _put_int32(offsets + 4, target - data)
                elif value_kind < STRUCT:
                    at = _put_scalar(value_kind, node, place, at, end)
                    if at <= 0:
                        if at == 0:
                            return DOUBTFUL
                        _put_word(state + FULL_NODE, node - nodes)
                        return FULL
                else:
                    if c != (91 if value_kind == LIST else 123):
                        return DOUBTFUL
                    frame = frames + depth * FRAME_BYTES
                    _put_word(frame, parent)
                    _put_word(frame + 8, slot)
                    _put_word(frame + 16, seen)
                    _put_word(frame + 24, seen_by)
                    _put_word(frame + 32, guess)
                    depth += 1
                    parent, slot, seen, guess = node, place, 0, node + FIRST_MEMBER
                    seen_by = _new_object(state)
                    kind, close = value_kind, c + 2
                    opened = True
                    at += 1
                    continue
        while True:
            # Behind a value.
            if _byte(at) <= 32:
                at = _after_space(at, end)
            if at >= end:
                return DOUBTFUL
            c = _byte(at)
            at += 1
            if c == 44:
                opened = False
                break
            if c != close:
                return DOUBTFUL
            if kind == STRUCT:
                if seen != _word(parent + CHILDREN) and not _put_missing(nodes, flat, parent, slot, seen_by):
                    return DOUBTFUL
            else:
                level = levels + _word(nodes + _word(parent + CHILD) + LEVEL)
                _put_int32(_word(parent + OFFSETS) + 4 * slot + 4, _word(level + COUNT))
            if depth == 0:
                if _after_space(at, end) != end or (beyond_ascii and not _is_utf8(begin, end)):
                    return DOUBTFUL
                return GOOD
            depth -= 1
            frame = frames + depth * FRAME_BYTES
            parent, slot, seen = _word(frame), _word(frame + 8), _word(frame + 16)
            seen_by, guess = _word(frame + 24), _word(frame + 32)
            kind = _word(parent + KIND)
            close = 93 if kind == LIST else 125


@_cold
def _take_back(nodes: int, count: int, levels: int, level_count: int) -> None:
    """What a record has put behind the rows: only the bits of nulls matter, all else will be written over."""
    for node in range(nodes, nodes + count * NODE_BYTES, NODE_BYTES):
        if _word(node + HAS_NULL):
            level, valid = levels + _word(node + LEVEL), _word(node + VALID)
            for slot in range(_word(level + SAVED), _word(level + COUNT)):
                bits = valid + (slot >> 3)
                _put_byte(bits, _byte(bits) | 1 << (slot & 7))
    for level in range(levels, levels + level_count * LEVEL_BYTES, LEVEL_BYTES):
        _put_word(level + COUNT, _word(level + SAVED))


def _read_records(
    nodes: int,
    node_count: int,
    levels: int,
    level_count: int,
    flat: int,
    state: int,
    data: int,
    offsets: int,
    doubts: int,
    first: int,
    last: int,
) -> int:
    """Reads records `first` to `last` of those whose bytes and int32 offsets are at `data` and `offsets`, and sets a byte
    at `doubts` for each that it cannot prove. Returns `last`, or the first for which there was no room."""
    for record in range(first, last):
        for level in range(levels, levels + level_count * LEVEL_BYTES, LEVEL_BYTES):
            _put_word(level + SAVED, _word(level + COUNT))
        _put_word(levels + COUNT, _word(levels + SAVED) + 1)
        begin, end = _int32(offsets + 4 * record), _int32(offsets + 4 * record + 4)
        outcome = _record(nodes, levels, flat, state, data + begin, data + end)
        if outcome != GOOD:
            _take_back(nodes, node_count, levels, level_count)
            if outcome == FULL:
                return record
            _put_byte(doubts + record, 1)
    return last


def _compiled(function: Any) -> Any:
    signature = types.int64(*[types.int64] * 11)
    try:
        return njit(signature, cache=True, error_model="numpy")(function)
    except (RuntimeError, OSError):
        # No folder to keep it in can be written to: each process compiles for itself.
        return njit(signature, error_model="numpy")(function)


read_records = _compiled(_read_records)
