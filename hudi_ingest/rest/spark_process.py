"""Runs what needs Spark in a process of its own, so that Spark's JVM ends with it. One at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline.folder import find_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.rest.problems import Refused

Result = TypeVar("Result")
_running = threading.Lock()


def in_spark_process(work: Callable[[Pipeline, Home], Result], pipeline: Pipeline, home: Home) -> Result:
    """Return `work(pipeline, home)`. `work` and its result can be pickled: a function of a module, or a `partial` of one.

    Raises what `work` raises, and Refused (503) while another runs: each may start a Spark driver, which takes a gigabyte.
    """
    if not _running.acquire(blocking=False):
        detail = "Another operation that needs Spark is running; this server runs one at a time."
        raise Refused(503, "Try again", detail)
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(_run, work, pipeline.name, home).result()
    finally:
        _running.release()


def _run(work: Callable[[Pipeline, Home], Result], name: str, home: Home) -> Result:
    # By name, so that no secret of the pipeline is pickled.
    return work(find_pipeline(home.pipelines, name), home)
