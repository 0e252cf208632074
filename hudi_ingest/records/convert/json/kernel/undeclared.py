"""Values that nobody declared: any JSON, and what the exact path lets pass beside it."""

from __future__ import annotations

from hudi_ingest.records.convert.json.kernel.machine import (
    byte,
    cold,
    hot,
    int32,
    looked_at,
    shifted_right,
    trailing_zeros,
    word,
)
from hudi_ingest.records.convert.json.kernel.texts import after_space, hexadecimal


@cold
def _after_text(at: int, end: int) -> tuple[int, int]:
    """From behind a quote. Address behind the closing one, or 0; not 0 if it has more than ASCII."""
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
        if c == 34:
            return at + 1, beyond_ascii
        if c != 92:
            return 0, 0
        c = byte(at + 1)
        at += 2
        if c == 117:
            if hexadecimal(at) < 0:
                return 0, 0
            at += 4
        elif c != 34 and c != 92 and c != 47 and c != 98 and c != 102 and c != 110 and c != 114 and c != 116:
            return 0, 0
    return 0, 0


@hot
def _after_digits(at: int, end: int) -> int:
    while at < end and 48 <= byte(at) <= 57:
        at += 1
    return at


@cold
def _after_scalar(at: int, end: int) -> int:
    """Address behind a number, true, false, null, NaN or Infinity, or 0."""
    c = byte(at)
    if c == 116:
        return at + 4 if int32(at) == 0x65757274 else 0
    if c == 102:
        return at + 5 if int32(at + 1) == 0x65736C61 else 0
    if c == 110:
        return at + 4 if int32(at) == 0x6C6C756E else 0
    if c == 78:
        return at + 3 if int32(at) & 0xFFFFFF == 0x4E614E else 0
    if c == 45:
        at += 1
        c = byte(at)
    if c == 73:
        return at + 8 if word(at) == 0x7974696E69666E49 else 0
    begin = at
    at = _after_digits(at, end)
    if at == begin or (c == 48 and at > begin + 1):
        return 0
    if byte(at) == 46:
        begin = at + 1
        at = _after_digits(begin, end)
        if at == begin:
            return 0
    if byte(at) | 32 == 101:
        at += 1
        c = byte(at)
        if c == 43 or c == 45:
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
            at = after_space(at + 1, end)
            if byte(at) != c + 2:
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
            at = after_space(at, end)
            if at >= end:
                return 0, 0
            c = byte(at)
            at += 1
            if c == 44:
                at = after_space(at, end)
                break
            if c != (125 if objects & 1 else 93):
                return 0, 0
            depth -= 1
            objects >>= 1
        if objects & 1:
            if at >= end or byte(at) != 34:
                return 0, 0
            at, found = _after_text(at + 1, end)
            beyond_ascii |= found
            if at == 0:
                return 0, 0
            at = after_space(at, end)
            if byte(at) != 58:
                return 0, 0
            at = after_space(at + 1, end)
