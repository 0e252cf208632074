"""A number with its noun, as people write it."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 file`, `2 files`, `1,200 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
