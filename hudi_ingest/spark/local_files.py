"""Spares Hadoop a process for each local file that it lists or creates in the driver's JVM."""

from __future__ import annotations

import logging
from importlib import resources
from typing import Any

from py4j.protocol import Py4JJavaError

_logger = logging.getLogger(__name__)
_CLASS = "HudiIngestLocalFiles"


def use_system_calls(jvm: Any, context: Any) -> None:
    """Let Hadoop list local files and set their permissions by system calls. `context` is the JavaSparkContext.

    It reaches into Hadoop, so where that fails (another Java, another Hadoop, another file system for `file://`), Hadoop does it
    in its own way, which is slower but as correct. Raises py4j's errors when the JVM is gone.
    """
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(resources.files("hudi_ingest.spark").joinpath(f"{_CLASS}.java").read_text())
        local_files = compiler.getClassLoader().loadClass(_CLASS).getConstructor(None).newInstance(None)
        # Not called directly: py4j cannot reach a class of another loader.
        jvm.java.util.Optional.of(context.hadoopConfiguration()).ifPresent(local_files)
    except Py4JJavaError as error:
        _logger.warning(
            "begin and commit take some tenths of a second longer for tables on a local disk: Hadoop starts a process for each "
            "file that it lists or creates, because replacing that by system calls failed (%s).",
            error.java_exception.toString(),
        )
