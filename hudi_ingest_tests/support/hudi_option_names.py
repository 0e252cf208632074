"""The names of Hudi's options in the jars that we ship, and the list of them that is kept: a new version's options are read by somebody
before a pipeline file may set them.

`python -m hudi_ingest_tests.support.hudi_option_names` writes the list from the fetched jars.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from hudi_ingest.spark.jars import spark_jars

KEPT = Path(__file__).with_suffix(".txt")
_NAME = re.compile(rb"hoodie(\.[A-Za-z0-9_-]+)+")
_TEXT = 1
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes after the tag of a constant of a class file, by the tag; a long and a double take two places."""


def option_names(jars: Iterable[Path]) -> frozenset[str]:
    """The texts in Hudi's classes that look like an option's name, but not what only begins the names of others."""
    found = {
        name.decode()
        for jar in jars
        if jar.name.startswith("hudi-")
        for name in _texts_of(jar)
        if _NAME.fullmatch(name)
    }
    beginnings = {name[:end] for name in found for end in range(len(name)) if name[end] == "."}
    return frozenset(found - beginnings)


def kept_names() -> frozenset[str]:
    return frozenset(KEPT.read_text().split())


def _texts_of(jar: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(jar) as opened:
        for member in opened.namelist():
            if member.startswith("org/apache/hudi/") and member.endswith(".class"):
                yield from _constants(opened.read(member))


def _constants(compiled: bytes) -> Iterator[bytes]:
    count, place, number = int.from_bytes(compiled[8:10], "big"), 10, 1
    while number < count:
        tag = compiled[place]
        if tag == _TEXT:
            end = place + 3 + int.from_bytes(compiled[place + 1 : place + 3], "big")
            yield compiled[place + 3 : end]
            place = end
        else:
            place += 1 + _SIZES[tag]
        number += 2 if tag in (5, 6) else 1


if __name__ == "__main__":
    KEPT.write_text("".join(f"{name}\n" for name in sorted(option_names(spark_jars(print)))))
