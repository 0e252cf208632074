"""Spares Hadoop a process for each local file that it lists or creates in the driver's JVM."""

from __future__ import annotations

from importlib import resources
from typing import Any

_CLASS = "HudiIngestLocalFiles"


def use_system_calls(jvm: Any, context: Any) -> None:
    """Let Hadoop list local files and set their permissions by system calls. `context` is the JavaSparkContext."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(resources.files("hudi_ingest.spark").joinpath(f"{_CLASS}.java").read_text())
    local_files = compiler.getClassLoader().loadClass(_CLASS).getConstructor(None).newInstance(None)
    # Not called directly: py4j cannot reach a class of another loader.
    jvm.java.util.Optional.of(context.hadoopConfiguration()).ifPresent(local_files)
