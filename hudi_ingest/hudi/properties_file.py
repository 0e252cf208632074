"""hoodie.properties of a table, also while Hudi rewrites it, and after a crash in the middle of that.

Hudi updates the file in four steps: it copies it to a backup, deletes it, writes it anew, and deletes the backup. Whoever dies
between leaves an empty or cut file beside a good backup. Hudi's checksum is of the table's name alone, so it does not tell a
file that was cut behind it; but an update does not take keys away, so a file that lacks some of its backup's was cut.
"""

from __future__ import annotations

import re
import time
import zlib

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.paths import BACKUP, PRIMARY, PRIMARY_CHECKSUM
from hudi_ingest.hudi.storage import TableStorage

_LOOKS = 3
_SETTLED_SECONDS = 2.0
"""An update takes milliseconds, so a file that stays damaged for so long is not being written."""
_LOOK_SECONDS = 0.1
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesFile:
    """The file of one table. Raises TableUnreachable where it is damaged and has no good backup, OSError as the storage does."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def read(self) -> dict[str, str]:
        """The table's properties, empty when there is no table."""
        for _ in range(_LOOKS):
            primary, backup = self._texts()
            if primary is not None or backup is not None:
                return chosen(self._storage.base_path, primary, backup)[0]
            # Both are never away at once, but an update may end between the looks at the one and at the other.
        return {}

    def restore(self) -> bool:
        """Puts a good backup in place of a damaged file, and says whether that was needed.

        Waits for whoever may be writing the file just now. One who stood still for longer finds another file than he wrote, and
        leaves the backup where it is.
        """
        settled = time.monotonic() + _SETTLED_SECONDS
        before = self._texts()
        while self._is_damaged(*before):
            if time.monotonic() > settled:
                break
            time.sleep(_LOOK_SECONDS)
            now = self._texts()
            if now != before:
                before, settled = now, time.monotonic() + _SETTLED_SECONDS
        else:
            return False
        backup = before[1]
        assert backup is not None
        # Hadoop's checksum is of the damaged file, and without one it asks for none.
        self._storage.delete(PRIMARY_CHECKSUM)
        self._storage.replace(PRIMARY, backup)
        return True

    def _is_damaged(self, primary: bytes | None, backup: bytes | None) -> bool:
        return backup is not None and chosen(self._storage.base_path, primary, backup)[1]

    def _texts(self) -> tuple[bytes | None, bytes | None]:
        return self._text(PRIMARY), self._text(BACKUP)

    def _text(self, path: str) -> bytes | None:
        try:
            return self._storage.read(path)
        except FileNotFoundError:
            return None


def chosen(base_path: str, primary: bytes | None, backup: bytes | None) -> tuple[dict[str, str], bool]:
    """The table's properties out of the two files' contents, and whether they are the backup's.

    Raises TableUnreachable when neither is whole.
    """
    first, second = (whole(text) if text is not None else None for text in (primary, backup))
    if first is not None and (second is None or second.keys() <= first.keys()):
        return first, False
    if second is not None:
        return second, True
    raise TableUnreachable(
        f"the table at {base_path} has a damaged {PRIMARY}: it is {_damage(primary)}, and {BACKUP} is {_damage(backup)}. "
        "Whoever last changed the file died, or the disk was full. Nothing was written. If it does not pass by itself within a "
        "minute, put a good copy of that file in its place and delete .hoodie/.hoodie.properties.crc."
    )


def whole(text: bytes) -> dict[str, str] | None:
    """The properties in a file's text, or None when it is not all of a file that Hudi wrote."""
    try:
        found = _parsed(text.decode("latin-1"))
        checksum = int(found["hoodie.table.checksum"])
        name = f"{found.get('hoodie.database.name', '')}.{found['hoodie.table.name']}"
    except (KeyError, ValueError):
        return None
    return found if text.endswith(b"\n") and checksum == zlib.crc32(name.encode()) else None


def _parsed(text: str) -> dict[str, str]:
    lines = (line.lstrip().rstrip("\r") for line in text.split("\n"))
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {_unescaped(key): _unescaped(value) for key, _, value in pairs}


def _unescaped(text: str) -> str:
    """Undoes java.util.Properties' escapes."""

    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    plain = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text)
    # What is beyond 16 bits Java escapes as two.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16")


def _damage(text: bytes | None) -> str:
    if text is None:
        return "not there"
    return "cut, or not Hudi's (its hoodie.table.checksum is not that of its table's name)" if text else "empty"
