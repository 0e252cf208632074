"""Read and restore a table's hoodie.properties, also while Hudi rewrites it or after a crash in the middle of that.

Hudi updates the file in four steps: it copies it to a backup, deletes it, writes it again, and deletes the backup. A process
that dies in between leaves an empty or truncated file beside a good backup. Hudi's checksum covers only the table's name, so
it does not detect truncation after that; but an update never removes keys, so a file that lacks keys of its backup is
truncated.
"""

from __future__ import annotations

import re
import time
import zlib

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.storage.paths import BACKUP, PRIMARY, PRIMARY_CHECKSUM
from hudi_ingest.hudi.storage.storage import TableStorage

_LOOKS = 3
_SETTLED_SECONDS = 2.0
"""An update takes milliseconds, so a file that stays damaged for this long is not being written."""
_LOOK_SECONDS = 0.1
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesFile:
    """The file of one table. Raises TableUnreachable when it is damaged without a good backup, and the storage's OSError."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def read(self) -> dict[str, str]:
        """Read the table's properties, empty when there is no table."""
        settled = time.monotonic() + _SETTLED_SECONDS
        for _ in range(_LOOKS):
            primary, backup = self._texts()
            while self._may_be_new(primary, backup) and time.monotonic() < settled:
                time.sleep(_LOOK_SECONDS)
                primary, backup = self._texts()
            if primary is not None or backup is not None:
                return chosen(self._storage.base_path, primary, backup)[0]
            # One of them always exists, but an update may end between reading the first and the second.
        return {}

    def primary(self) -> dict[str, str] | None:
        """Read the table's properties from the file itself, None if it is missing or damaged."""
        text = self._text(PRIMARY)
        return None if text is None else whole(text)

    def restore(self) -> bool:
        """Replace a damaged file by its good backup; returns whether that was needed.

        Waits for a process that may be writing the file. One that pauses for longer finds a file other than the one it
        wrote, and leaves the backup in place.
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
        # Hadoop's checksum belongs to the damaged file; without a checksum file it does not verify.
        self._storage.delete(PRIMARY_CHECKSUM)
        self._storage.replace(PRIMARY, backup)
        return True

    def _is_damaged(self, primary: bytes | None, backup: bytes | None) -> bool:
        return backup is not None and chosen(self._storage.base_path, primary, backup)[1]

    def _may_be_new(self, primary: bytes | None, backup: bytes | None) -> bool:
        """Whether Hudi may be writing a new table's file, which it does in place and without a backup."""
        return self._storage.is_local and backup is None and primary is not None and whole(primary) is None

    def _texts(self) -> tuple[bytes | None, bytes | None]:
        primary = self._text(PRIMARY)
        if primary is not None and not self._storage.is_local:
            # An object appears whole, so its backup is not needed.
            return primary, None
        return primary, self._text(BACKUP)

    def _text(self, path: str) -> bytes | None:
        try:
            return self._storage.read(path)
        except FileNotFoundError:
            return None


def chosen(base_path: str, primary: bytes | None, backup: bytes | None) -> tuple[dict[str, str], bool]:
    """Choose the table's properties from the two files' contents; also returns whether they are the backup's.

    Raises TableUnreachable when neither is whole.
    """
    first, second = (whole(text) if text is not None else None for text in (primary, backup))
    if first is not None and (second is None or second.keys() <= first.keys()):
        return first, False
    if second is not None:
        return second, True
    raise TableUnreachable(
        f"the table at {base_path} has a damaged {PRIMARY}: it is {_damage(primary)}, and {BACKUP} is {_damage(backup)}. "
        "The process that last changed the file died, or the disk was full. Nothing was written. If the error persists for "
        "a minute, put a good copy of that file in its place and delete .hoodie/.hoodie.properties.crc."
    )


def whole(text: bytes) -> dict[str, str] | None:
    """Parse a file's text, or return None when it is not a complete file that Hudi wrote."""
    try:
        properties = _parsed(text.decode("latin-1"))
        checksum = int(properties["hoodie.table.checksum"])
        name = f"{properties.get('hoodie.database.name', '')}.{properties['hoodie.table.name']}"
    except (KeyError, ValueError):
        return None
    return properties if text.endswith(b"\n") and checksum == zlib.crc32(name.encode()) else None


def _parsed(text: str) -> dict[str, str]:
    lines = (line.lstrip().rstrip("\r") for line in text.split("\n"))
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {_unescaped(key): _unescaped(value) for key, _, value in pairs}


def _unescaped(text: str) -> str:
    """Undo java.util.Properties' escapes."""

    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    plain = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text)
    # Java escapes a character beyond 16 bits as two surrogates.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16")


def _damage(text: bytes | None) -> str:
    if text is None:
        return "missing"
    return "truncated, or not Hudi's (its hoodie.table.checksum does not match its table's name)" if text else "empty"
