"""Options for JVMs that the tests start by way of the product, which does not offer them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""Leaves the optimizing compiler out, which in a JVM of a few minutes takes more CPU than it saves: two fifths of all."""


@contextmanager
def java_options(*options: str) -> Iterator[None]:
    """JVMs started inside have these options too."""
    wanted = " ".join([*filter(None, [os.environ.get("JAVA_TOOL_OPTIONS")]), *options])
    with mock.patch.dict(os.environ, {"JAVA_TOOL_OPTIONS": wanted}):
        yield
