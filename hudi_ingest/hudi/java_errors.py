"""What went wrong in the JVM, said in our words: which operation, why, and what to do next."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from hudi_ingest.exceptions import (
    CommitRefused,
    EngineLost,
    EnvironmentProblem,
    IngestError,
    RestoreUnfinished,
    TableUnreachable,
)
from hudi_ingest.hudi.storage.storage import FULL_REMEDY, WHO_RETRIES, is_full, store_advice
from hudi_ingest.hudi.timeline.ownership import metadata_table_gone
from hudi_ingest.model.storage_options import S3_SCHEME

_STOPPED = ("stopped SparkContext", "SparkContext was shut down", "SparkContext has been shutdown")
"""In the messages of a driver that is ending: its JVM still answers, but runs nothing any more."""


OTHER_TEMPORARY = (
    "Let Java use a folder on another file system: spark_conf: {spark.driver.extraJavaOptions: -Djava.io.tmpdir=/var/tmp/hudi-ingest, "
    "spark.executor.extraJavaOptions: the same} in engine.yaml, where that folder exists; or -DZstdTempFolder=… for zstd alone;"
)
_LIBRARY = ("UnsatisfiedLinkError", "failed to map segment from shared object", "no zstd-jni")


class java_errors:
    """Translates py4j's errors into ours, with the operation and the place of the table's lock in the message."""

    def __init__(self, operation: str, lock: str = "") -> None:
        self._operation = operation
        self._lock = lock

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, IngestError):
            return
        java_error = _java_error(error)
        chain: list[str] = []
        if java_error is not None:
            try:
                chain = java_messages(java_error)
            except (Py4JError, ConnectionError) as gone:
                # The driver died after it had failed, and took the reason with it.
                error = gone
        if any(stopped in message for message in chain for stopped in _STOPPED):
            error = Py4JError("its SparkContext was stopped")
        elif chain:
            for message in chain:
                if "hudi-ingest guard:" in message:
                    raise CommitRefused(
                        f"could not {self._operation}: {message.split('hudi-ingest guard:', 1)[1].strip()}. Nothing was "
                        "published by this call; the next transaction continues from the table's checkpoint."
                    ) from error
            if any("Found pending restore in active timeline" in message for message in chain):
                raise RestoreUnfinished(
                    f"could not {self._operation}: a restore to a savepoint was cut short, and later commits may be only partly rolled back. "
                    "Nothing was written. Re-run the same `hudi-ingest savepoints NAME --restore INSTANT` to finish the restore "
                    "(without --restore it lists the savepoints); the next transaction then continues from there."
                ) from error
            if any(
                message.startswith("TableNotFoundException") and "/.hoodie/metadata" in message for message in chain
            ):
                raise metadata_table_gone(self._operation) from error
            if any(message.startswith("HoodieLockException") for message in chain):
                raise TableUnreachable(
                    f"could not {self._operation}: could not acquire the table's lock {self._lock} in time, or lost it: "
                    f"{' <- '.join(chain[:4])}. Check which writer holds it and whether that writer is alive; "
                    f"{WHO_RETRIES}."
                ) from error
            if any(sign in message for message in chain for sign in _LIBRARY):
                raise EnvironmentProblem(
                    f"could not {self._operation}: {' <- '.join(map(_first_line, chain[:4]))}. Java could not load a library that it has "
                    f"unpacked into its temporary folder, as where /tmp is mounted noexec. {OTHER_TEMPORARY} then restart the engine."
                ) from error
            if is_full("\n".join(chain)):
                raise TableUnreachable(
                    f"could not {self._operation}: {' <- '.join(map(_first_line, chain[:4]))}. {FULL_REMEDY} Then {WHO_RETRIES}."
                ) from error
            advice = store_advice("\n".join(chain)) if S3_SCHEME in self._operation else None
            if advice is not None:
                raise TableUnreachable(f"could not {self._operation}: {advice}. Nothing is lost.") from error
            raise TableUnreachable(
                f"could not {self._operation}: {' <- '.join(map(_first_line, chain[:4]))}. Check the path, its permissions, free space, table.hudi and "
                "the Spark driver's log."
            ) from error
        if isinstance(error, (Py4JError, ConnectionError)):
            raise EngineLost(
                f"the Spark driver went away while trying to {self._operation}: {error}; {WHO_RETRIES}. If the "
                "engine does not come back, start it with `hudi-ingest up` or `hudi-ingest engine`."
            ) from error


def _java_error(error: BaseException) -> Any:
    """Return the Java exception behind a Python one, None if there is none."""
    # pyspark replaces the commonest kinds, such as IllegalArgumentException, by classes of its own.
    if isinstance(error, CapturedException):
        return error._origin
    return error.java_exception if isinstance(error, Py4JJavaError) else None


def _first_line(message: str) -> str:
    """Spark's go on with stack traces."""
    return message.partition("\n")[0]


def java_messages(error: Any) -> list[str]:
    chain: list[str] = []
    while error is not None and len(chain) < 10:
        chain.append(f"{error.getClass().getSimpleName()}: {error.getMessage()}")
        error = error.getCause()
    return chain
