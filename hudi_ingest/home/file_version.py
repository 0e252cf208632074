"""Tell whether a file has been replaced or rewritten since it was read."""

from __future__ import annotations

from pathlib import Path


def file_version(path: Path) -> tuple[int, int, int] | None:
    """Return the file's inode, size in bytes and time of modification in ns; None if it cannot be looked at."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
