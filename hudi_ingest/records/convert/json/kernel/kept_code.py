"""What this machine keeps of the kernel's machine code. Does without numba."""

from __future__ import annotations

import sys
from hashlib import blake2b
from pathlib import Path

_KERNEL = Path(__file__).parent
_SOURCES = (*sorted(_KERNEL.glob("*.py")), _KERNEL.parents[2] / "times.py")


def kept_name() -> str:
    """The name under which numba keeps it. numba sees only when the function's own file changes, so the name has the digest of
    all that is compiled into it."""
    digest = blake2b(b"".join(source.read_bytes() for source in _SOURCES), digest_size=8).hexdigest()
    return f"read_records_{digest}"


def is_kept() -> bool:
    """Whether it has been compiled for this Python beside the code, so that importing `records` takes 30 ms, not 6 s."""
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    return any((_KERNEL / "__pycache__").glob(f"*.{kept_name()}-*.{version}.nbi"))
