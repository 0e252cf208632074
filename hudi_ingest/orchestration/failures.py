"""The one place where our errors become Dagster's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import Failure

from hudi_ingest.exceptions import IngestError, Transient


@contextmanager
def as_dagster_failures() -> Iterator[None]:
    """Transient errors are tried again as the op's RetryPolicy says, all others fail it at once."""
    try:
        yield
    except IngestError as error:
        raise Failure(
            description=f"{type(error).__name__}: {error}", allow_retries=isinstance(error, Transient)
        ) from error
