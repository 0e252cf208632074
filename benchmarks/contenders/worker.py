"""A contender's process: a Spark driver, or what the contender has in its place, and a loop that answers each assignment (a line of JSON) with its outcome (another).

`python -m benchmarks.contenders.worker NAME ENGINE`, where ENGINE is what engine.yaml would say, as JSON; it exits at the end of its input.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.contenders import (
    Assignment,
    Outcome,
    hudi_ingest_api,
    hudi_ingest_upserts,
    hudi_limit,
    limit,
    spark_limit,
    spark_streaming,
    spark_upserts,
)
from benchmarks.results import API, APPENDS, HUDI_LIMIT, LIMIT, SPARK_LIMIT, SPARK_UPSERTS, STREAMING, UPSERTS
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.spark.session import ENGINE_OPTIONS, own_session

Run = Callable[[Assignment], Outcome]

_SPARK_RUNS: dict[str, Callable[[SparkSession, Assignment], Outcome]] = {
    API: hudi_ingest_api.run,
    STREAMING: spark_streaming.run,
    SPARK_LIMIT: spark_limit.run,
    UPSERTS: hudi_ingest_upserts.run,
    APPENDS: hudi_ingest_upserts.run,
    SPARK_UPSERTS: spark_upserts.run,
}
_SETTINGS = {
    # Spark caches a batch's Kafka consumers for the next batch, which never reuses them: its consumer group differs.
    "spark.kafka.consumer.cache.capacity": "1",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
}
"""Java's parquet writer uses zstd level 3 by default; ours uses 1."""


def serve(name: str, engine: EngineSettings) -> None:
    """Answer until the end of input. An error is an answer too: the benchmark decides what it means."""
    with _started(name, engine) as run:
        _answer({"ready": name})
        for line in sys.stdin:
            try:
                _answer(asdict(run(Assignment.from_dict(json.loads(line)))))
            except Exception as error:  # noqa: BLE001 - whatever it is, the benchmark stops with it
                traceback.print_exc()
                _answer({"error": f"{type(error).__name__}: {error}"})


@contextmanager
def _started(name: str, engine: EngineSettings) -> Iterator[Run]:
    if name in (LIMIT, HUDI_LIMIT):
        with limit.processes() as pool:
            yield partial(limit.run if name == LIMIT else hudi_limit.run, pool)
        return
    # What drivers of transactions have; Spark's own loops over rows are faster without.
    more = {**_SETTINGS, **(ENGINE_OPTIONS if name in (API, UPSERTS, APPENDS) else {})}
    spark = own_session(engine, more)
    try:
        yield partial(_SPARK_RUNS[name], spark)
    finally:
        spark.stop()


def _answer(facts: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    serve(sys.argv[1], EngineSettings(**json.loads(sys.argv[2])))
