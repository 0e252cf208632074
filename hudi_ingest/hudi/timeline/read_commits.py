"""Commits that this process has read from timelines, so that it parses each of them once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Parsed = TypeVar("Parsed")
_MOST_BYTES = 64 * 1024 * 1024


class ReadCommits(Generic[Parsed]):
    """Parsed commits by what tells a commit's file from any other, at most `most_bytes` of their texts; the least recently used go
    first. Safe because Hudi writes a completed instant's file once, and names it after both of its times. Safe to share between
    threads."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, tuple[Parsed, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, file: Hashable) -> Parsed | None:
        with self._lock:
            if file not in self._kept:
                return None
            self._kept.move_to_end(file)
            return self._kept[file][0]

    def keep(self, file: Hashable, parsed: Parsed, text_bytes: int) -> None:
        with self._lock:
            self._bytes += text_bytes - self._kept.pop(file, (parsed, 0))[1]
            self._kept[file] = parsed, text_bytes
            while self._bytes > self._most_bytes:
                self._bytes -= self._kept.popitem(last=False)[1][1]
