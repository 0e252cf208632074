"""JSON records -> the buffers of Arrow columns, in one compiled pass over their bytes. README.md has figures and the way around it.

`records` has the pass. numba compiles it when it is imported: about 6 s the first time on a machine, 0.03 s from numba's cache
beside this code, without numba itself. So `json.converter` imports it only when there are enough records, and the process that
forks Spark's Python workers only when it is in the cache. The machine code is the same for every schema, because the schema is
data, which `columns` has with the buffers. This module and `columns` do without numba.

The code works on raw addresses. Why it stays inside the buffers:

- It may read up to 64 bytes past a record; `json.converter` copies the records at the end of a buffer that has no such margin.
  Each step starts before the record's end and reads less than 64 bytes past it. Bytes past the end cannot change the
  outcome: a record counts only if its last bracket and white space end exactly where the record ends.
- It writes a value only after it has checked that level's capacity, and a text only after it has checked for room for the
  rest of the record. If there is no room it stops; `json.converter` makes room and continues with that record.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from pathlib import Path

_FOLDER = Path(__file__).parent
_SOURCES = (*sorted(_FOLDER.glob("*.py")), _FOLDER.parents[2] / "times.py")


def kept_name() -> str:
    """The name under which numba keeps it. numba sees only when the function's own file changes, so the name has the digest of
    all that is compiled into it."""
    digest = blake2b(b"".join(source.read_bytes() for source in _SOURCES), digest_size=8).hexdigest()
    return f"read_records_{digest}"


def is_kept() -> bool:
    """Whether it has been compiled for this Python beside the code, so that importing `records` takes 30 ms, not 6 s."""
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    return any((_FOLDER / "__pycache__").glob(f"*.{kept_name()}-*.{version}.nbi"))
