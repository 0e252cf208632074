"""Starts a Spark driver's JVM, with settings that no process list shows."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def start_jvm(options: Mapping[str, str], folder: Path | None) -> None:
    """Start this process's JVM with Spark's settings, unless it has one. Raises pyspark's and py4j's errors, OSError.

    pyspark would put them on the command line, which every user of the machine can see. Here they are in a file that only this
    user can read, in `folder` or else where temporary files are, until the JVM has read it. JVM options and class paths are
    on the command line even so.
    """
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="settings-", dir=folder) as private:
        file = Path(private, "spark.properties")
        file.write_text(_defaults() + properties_text(options), encoding="utf-8")
        before = os.environ.get(_ARGUMENTS)
        os.environ[_ARGUMENTS] = f"--properties-file {shlex.quote(str(file))} {before or 'pyspark-shell'}"
        try:
            # Returns once the JVM has told its port, which it does after it has read the file.
            SparkContext._ensure_initialized()
        finally:
            if before is None:
                del os.environ[_ARGUMENTS]
            else:
                os.environ[_ARGUMENTS] = before


def properties_text(options: Mapping[str, str]) -> str:
    """Write settings as a Java properties file."""
    return "".join(f"{_escaped(key, ' =:#!')}={_escaped(value, '')}\n" for key, value in options.items())


def _escaped(text: str, special: str) -> str:
    escaped = "".join(_ESCAPES.get(letter) or ("\\" + letter if letter in special else letter) for letter in text)
    # Java skips spaces before a value.
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _defaults() -> str:
    """The installation's own spark-defaults.conf, which Spark does not read beside another file."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    try:
        return f"{Path(folder, 'spark-defaults.conf').read_text(encoding='utf-8')}\n"
    except FileNotFoundError:
        return ""
