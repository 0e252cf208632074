"""White space, texts, and values of undeclared fields: any JSON, and whatever else the exact path lets pass beside it."""

from __future__ import annotations

from hudi_ingest.records.compiled import (
    byte,
    cold,
    copied,
    hot,
    int32,
    looked_at,
    put_byte,
    shifted_right,
    trailing_zeros,
    word,
)
from hudi_ingest.records.convert.json.kernel import characters


@hot
def after_space(at: int, end: int) -> int:
    while at < end:
        c = byte(at)
        if c != characters.SPACE and c != 10 and c != 13 and c != 9:
            break
        at += 1
    return at


@cold
def hexadecimal(at: int) -> int:
    """The number that four digits are, or -1."""
    number = 0
    for place in range(4):
        c = byte(at + place)
        if characters.ZERO <= c <= characters.NINE:
            number = number * 16 + c - characters.ZERO
        elif characters.LOWER_A <= (c | 32) <= characters.LOWER_F:
            number = number * 16 + (c | 32) - 87
        else:
            return -1
    return number


@cold
def _unescaped(at: int, target: int) -> tuple[int, int]:
    """Put the character of an escape. Addresses behind both; 0 for the first if it is none, or half of a pair."""
    c = byte(at + 1)
    if c != characters.LOWER_U:
        if c == characters.LOWER_N:
            c = 10
        elif c == characters.LOWER_T:
            c = 9
        elif c == characters.LOWER_R:
            c = 13
        elif c == characters.LOWER_B:
            c = 8
        elif c == characters.LOWER_F:
            c = 12
        elif c != characters.QUOTE and c != characters.BACKSLASH and c != characters.SLASH:
            return 0, target
        put_byte(target, c)
        return at + 2, target + 1
    code = hexadecimal(at + 2)
    at += 6
    if code < 0:
        return 0, target
    if 0xD800 <= code <= 0xDFFF:
        low = hexadecimal(at + 2)
        if (
            code >= 0xDC00
            or byte(at) != characters.BACKSLASH
            or byte(at + 1) != characters.LOWER_U
            or low < 0xDC00
            or low > 0xDFFF
        ):
            return 0, target
        code = 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
        at += 6
    if code < 0x80:
        put_byte(target, code)
        return at, target + 1
    if code < 0x800:
        put_byte(target, 0xC0 | code >> 6)
        put_byte(target + 1, 0x80 | code & 63)
        return at, target + 2
    if code < 0x10000:
        put_byte(target, 0xE0 | code >> 12)
        put_byte(target + 1, 0x80 | code >> 6 & 63)
        put_byte(target + 2, 0x80 | code & 63)
        return at, target + 3
    put_byte(target, 0xF0 | code >> 18)
    put_byte(target + 1, 0x80 | code >> 12 & 63)
    put_byte(target + 2, 0x80 | code >> 6 & 63)
    put_byte(target + 3, 0x80 | code & 63)
    return at, target + 4


@hot
def copied_text(at: int, end: int, target: int) -> tuple[int, int, int]:
    """Copy a text from behind its quote. Address behind the closing quote, or 0; end of the copy; not 0 if it has more
    than ASCII. Needs room for what is left of the record and 64 bytes."""
    beyond_ascii = 0
    while at < end:
        found = copied(at, target)
        stops = found & 0xFFFFFFFF
        if stops == 0:
            beyond_ascii |= found
            at += 32
            target += 32
            continue
        plain = trailing_zeros(stops)
        beyond_ascii |= shifted_right(found, 32) & ((1 << plain) - 1)
        at += plain
        target += plain
        c = byte(at)
        if c == characters.QUOTE:
            return at + 1, target, beyond_ascii
        if c != characters.BACKSLASH:
            return 0, target, 0
        at, target = _unescaped(at, target)
        if at == 0:
            return 0, target, 0
    return 0, target, 0


@cold
def plain_end(at: int, end: int) -> int:
    """Address of the quote that closes an ASCII text without escapes, or 0."""
    while at < end:
        found = looked_at(at)
        stops = found & 0xFFFFFFFF
        if stops == 0:
            if found:
                return 0
            at += 32
            continue
        plain = trailing_zeros(stops)
        if byte(at + plain) != characters.QUOTE or shifted_right(found, 32) & ((1 << plain) - 1):
            return 0
        return at + plain
    return 0


@cold
def is_utf8(at: int, end: int) -> bool:
    while at < end:
        if at + 8 <= end and word(at) & -0x7F7F7F7F7F7F7F80 == 0:
            at += 8
            continue
        c = byte(at)
        if c < 0x80:
            at += 1
            continue
        second = byte(at + 1)
        if c < 0xC2 or c > 0xF4 or second & 0xC0 != 0x80:
            return False
        if c < 0xE0:
            at += 2
            continue
        if byte(at + 2) & 0xC0 != 0x80:
            return False
        if c < 0xF0:
            if (c == 0xE0 and second < 0xA0) or (c == 0xED and second > 0x9F):
                return False
            at += 3
            continue
        if (c == 0xF0 and second < 0x90) or (c == 0xF4 and second > 0x8F) or byte(at + 3) & 0xC0 != 0x80:
            return False
        at += 4
    return at == end


@cold
def _after_text(at: int, end: int) -> tuple[int, int]:
    """Scan a text from behind its quote. Returns the address behind the closing one, or 0, and another number than 0 if it has more than
    ASCII."""
    beyond_ascii = 0
    while at < end:
        found = looked_at(at)
        stops = found & 0xFFFFFFFF
        if stops == 0:
            beyond_ascii |= found
            at += 32
            continue
        plain = trailing_zeros(stops)
        beyond_ascii |= shifted_right(found, 32) & ((1 << plain) - 1)
        at += plain
        c = byte(at)
        if c == characters.QUOTE:
            return at + 1, beyond_ascii
        if c != characters.BACKSLASH:
            return 0, 0
        c = byte(at + 1)
        at += 2
        if c == characters.LOWER_U:
            if hexadecimal(at) < 0:
                return 0, 0
            at += 4
        elif (
            c != characters.QUOTE
            and c != characters.BACKSLASH
            and c != characters.SLASH
            and c != characters.LOWER_B
            and c != characters.LOWER_F
            and c != characters.LOWER_N
            and c != characters.LOWER_R
            and c != characters.LOWER_T
        ):
            return 0, 0
    return 0, 0


@hot
def _after_digits(at: int, end: int) -> int:
    while at < end and characters.ZERO <= byte(at) <= characters.NINE:
        at += 1
    return at


@cold
def _after_scalar(at: int, end: int) -> int:
    """Address behind a number, true, false, null, NaN or Infinity, or 0."""
    c = byte(at)
    if c == characters.LOWER_T:
        return at + 4 if int32(at) == 0x65757274 else 0
    if c == characters.LOWER_F:
        return at + 5 if int32(at + 1) == 0x65736C61 else 0
    if c == characters.LOWER_N:
        return at + 4 if int32(at) == 0x6C6C756E else 0
    if c == 78:
        return at + 3 if int32(at) & 0xFFFFFF == 0x4E614E else 0
    if c == characters.MINUS:
        at += 1
        c = byte(at)
    if c == 73:
        return at + 8 if word(at) == 0x7974696E69666E49 else 0
    begin = at
    at = _after_digits(at, end)
    if at == begin or (c == characters.ZERO and at > begin + 1):
        return 0
    if byte(at) == characters.DOT:
        begin = at + 1
        at = _after_digits(begin, end)
        if at == begin:
            return 0
    if byte(at) | 32 == characters.LOWER_E:
        at += 1
        c = byte(at)
        if c == characters.PLUS or c == characters.MINUS:
            at += 1
        begin = at
        at = _after_digits(begin, end)
        if at == begin:
            return 0
    return at


@cold
def after_value(at: int, end: int) -> tuple[int, int]:
    """Address behind a value, or 0 if it is none or deeper than 60; not 0 if its texts have more than ASCII."""
    depth = objects = beyond_ascii = 0
    while True:
        if at >= end:
            return 0, 0
        c = byte(at)
        named = False
        if c == characters.QUOTE:
            at, found = _after_text(at + 1, end)
            beyond_ascii |= found
            if at == 0:
                return 0, 0
        elif c == characters.OPEN_BRACE or c == characters.OPEN_BRACKET:
            if depth == 60:
                return 0, 0
            depth += 1
            objects = objects << 1 | (1 if c == characters.OPEN_BRACE else 0)
            at = after_space(at + 1, end)
            if byte(at) != c + 2:
                if c == characters.OPEN_BRACKET:
                    continue
                named = True
        else:
            at = _after_scalar(at, end)
            if at == 0:
                return 0, 0
        while not named:
            if depth == 0:
                return at, beyond_ascii
            at = after_space(at, end)
            if at >= end:
                return 0, 0
            c = byte(at)
            at += 1
            if c == characters.COMMA:
                at = after_space(at, end)
                break
            if c != (characters.CLOSE_BRACE if objects & 1 else characters.CLOSE_BRACKET):
                return 0, 0
            depth -= 1
            objects >>= 1
        if objects & 1:
            if at >= end or byte(at) != characters.QUOTE:
                return 0, 0
            at, found = _after_text(at + 1, end)
            beyond_ascii |= found
            if at == 0:
                return 0, 0
            at = after_space(at, end)
            if byte(at) != characters.COLON:
                return 0, 0
            at = after_space(at + 1, end)
