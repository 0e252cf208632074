"""Table partition paths as Hudi writes them: hive style unless told otherwise, with unsafe characters escaped.

The set of escaped characters is that of Hudi's `PartitionPathEncodeUtils`, which took it from Hive.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset(map(chr, [*range(0x20), 0x7F])) | frozenset("\"#%'*/:=?\\{[]^")
UNSAFE = "[" + "".join(f"\\x{ord(character):02x}" for character in sorted(_ESCAPED)) + "]"
"""A regular expression that matches the escaped characters."""

MAX_FOLDER_BYTES = 255
"""Maximum length of a folder's name on local file systems and HDFS."""

Value = str | int | bool | datetime.date | None


def escape(text: str) -> str:
    """Replace each unsafe character by `%XX`, so that one value is always one folder name."""
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)


def partition_path(
    columns: Sequence[str], values: Sequence[Value], hive_style: bool = True, escaped: bool = True
) -> str:
    """Return `a=1/b=x` for columns (a, b) and values (1, "x"), or `1/x` if not in hive style; "" if there are no columns.

    Null and "" share a folder. Raises ValueError for a text that cannot be a folder's name without its column's name
    before it, and for unsafe characters if they are not escaped.
    """
    folders = [_folder(value) for value in values]
    for name, value, folder in zip(columns, values, folders, strict=True):
        if not escaped and isinstance(value, str) and value and folder != value:
            raise ValueError(f"column {name}: {value!a} has signs that are no part of a folder's name in this table")
    if hive_style:
        return "/".join(f"{name}={folder}" for name, folder in zip(columns, folders, strict=True))
    for name, folder in zip(columns, folders, strict=True):
        # `.hoodie` holds Hudi's metadata, `..` is the folder above, and readers pass over what begins with . or _
        if folder[0] in "._" and folder != DEFAULT_PARTITION:
            raise ValueError(f"column {name}: a folder cannot be called {folder!a}; use hive style")
    return "/".join(folders)


def folder_bytes(column: str, value: Value, hive_style: bool = True) -> int:
    """Return the length of a value's folder name, in bytes of UTF-8."""
    name = f"{column}={_folder(value)}" if hive_style else _folder(value)
    return len(name.encode())


def _folder(value: Value) -> str:
    if value is None or value == "":
        return DEFAULT_PARTITION
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return escape(str(value))
