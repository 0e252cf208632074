"""What write tasks return to the driver: their reports, and the IngestErrors that ended them, as class and arguments."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterable

from hudi_ingest.exceptions import IngestError, Terminal


class WorkerTraceback(Exception):
    """The traceback of a Spark worker's error, set as that error's cause in the driver."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def packed(error: IngestError) -> bytes:
    """Pickle the error and its traceback, for `require_none`."""
    return pickle.dumps((error, "".join(traceback.format_exception(error))))


def require_none(errors: Iterable[bytes]) -> None:
    """Raises the tasks' most important error: terminal ones first, then the lowest topic, partition and offset."""
    unpacked: list[tuple[IngestError, str]] = [pickle.loads(packed_error) for packed_error in errors]
    if unpacked:
        error, worker_traceback = min(unpacked, key=lambda failure: _rank(failure[0]))
        raise error from WorkerTraceback(worker_traceback)


def _rank(error: IngestError) -> tuple[bool, str, int, int]:
    partition = -1 if error.partition is None else error.partition
    offset = -1 if error.offset is None else error.offset
    return not isinstance(error, Terminal), error.topic or "", partition, offset
