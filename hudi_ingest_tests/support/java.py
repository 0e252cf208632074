"""Options for JVMs that the tests start by way of the product, which does not offer them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""In a JVM of a few minutes, the optimizing compiler takes more CPU than it saves, two fifths of all, and so does the verification of
classes that every other JVM verifies, a tenth."""
QUICK_SPARK = f"{QUICK} -XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:ReservedCodeCacheSize=240m"
"""G1's threads take another tenth. The quick compiler alone has 48 MB for its code, which a worker's Spark fills within minutes, and then
it compiles anew the code that it has just thrown away; that, and collections that only make room for classes, take a fifth. For JVMs
that the product starts without a collector of its choice."""
ROOM = "-XX:NewSize=640m -XX:OldSize=384m -Xlog:gc+ergo=off"
"""For a driver's heap from its start. A commit allocates hundreds of megabytes, of which next to nothing stays: a heap that begins small
takes three times as long for its collections, of which several a commit are full ones. A heap of less takes what it has."""


@contextmanager
def java_options(*options: str) -> Iterator[None]:
    """JVMs started inside have these options too."""
    wanted = " ".join([*filter(None, [os.environ.get("JAVA_TOOL_OPTIONS")]), *options])
    with mock.patch.dict(os.environ, {"JAVA_TOOL_OPTIONS": wanted}):
        yield
