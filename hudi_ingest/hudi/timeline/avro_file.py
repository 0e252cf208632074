"""Tell a complete Avro file from one that a crash cut off or left with other content. Pure; decodes no record."""

from __future__ import annotations

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16


def is_whole(content: bytes) -> bool:
    """Whether the bytes are a complete Avro file, as Hudi writes instants: a header, then blocks that each end with its marker."""
    if not content.startswith(_MAGIC):
        return False
    try:
        position = _after_map(content, len(_MAGIC))
        marker = content[position : position + _SYNC_BYTES]
        position += _SYNC_BYTES
        blocks = 0
        while position < len(content):
            _, position = read_long(content, position)
            size, position = read_long(content, position)
            position += size + _SYNC_BYTES
            if content[position - _SYNC_BYTES : position] != marker:
                return False
            blocks += 1
    except IndexError:
        return False
    return len(marker) == _SYNC_BYTES and blocks > 0


def _after_map(content: bytes, position: int) -> int:
    while True:
        count, position = read_long(content, position)
        if not count:
            return position
        if count < 0:
            _, position = read_long(content, position)
        for _ in range(2 * abs(count)):
            size, position = read_long(content, position)
            position += size


def read_long(content: bytes, position: int) -> tuple[int, int]:
    """Read Avro's variable-length number at a position; returns it and the position after it. Raises IndexError beyond the end."""
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
