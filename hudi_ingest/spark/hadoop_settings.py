"""Makes Hadoop's settings cheap to send to Spark's tasks, as most of Hudi's jobs do."""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JJavaError

_logger = logging.getLogger(__name__)


def forget_sources_of_defaults(jvm: Any, context: Any) -> None:
    """Forget which of Hadoop's files each default setting comes from. `context` is the JavaSparkContext.

    Hadoop writes the file's name with each of its thousand defaults, compressed one by one, and Spark does that up to three times
    a job. The settings stay as they are. Where it fails (another Hadoop), jobs are slower but as correct. Raises py4j's errors
    when the JVM is gone.
    """
    try:
        configuration = jvm.org.apache.hadoop.conf.Configuration
        sources = jvm.java.lang.Class.forName("org.apache.hadoop.conf.Configuration").getDeclaredField(
            "updatingResource"
        )
        sources.setAccessible(True)
        settings, defaults = context.hadoopConfiguration(), configuration()
        for loaded in (settings, defaults):
            # They are read from the files on first use.
            loaded.size()
        sources.get(settings).keySet().removeAll(sources.get(defaults).keySet())
    except Py4JJavaError as error:
        _logger.warning(
            "begin and commit take a tenth of a second longer: Hadoop's settings cannot be made smaller (%s).",
            error.java_exception.toString(),
        )
