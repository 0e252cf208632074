"""OpenLineage events of transactions: which offsets of which topics became which rows, and which field became which column.

They are sent where the OpenLineage client's own configuration says: OPENLINEAGE_URL, OPENLINEAGE__…, or an openlineage.yml.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hudi_ingest.model.transaction import LineageListener, TransactionStep, unheard
from hudi_ingest.pipeline import extras
from hudi_ingest.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

_logger = logging.getLogger(__name__)
LONGEST_SECONDS = 3.0
"""How long a transaction waits for an event to arrive; the client itself tries for longer, meanwhile."""
NAMESPACE = "OPENLINEAGE_NAMESPACE"
_FILE = "openlineage.yml"


def is_configured(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> bool:
    """Whether the client would find a configuration; without one it would print. `folder`: the current one by default."""
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if environment.get("OPENLINEAGE_URL") or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in environment):
        return True
    places = [folder or Path.cwd(), Path.home() / ".openlineage"]
    named = environment.get("OPENLINEAGE_CONFIG")
    return any(path.is_file() for path in (*([Path(named)] if named else []), *(place / _FILE for place in places)))


def listener(pipeline: Pipeline) -> LineageListener:
    """Return what emits the pipeline's events; it does nothing if lineage is not configured."""
    if not is_configured():
        return unheard
    try:
        extras.require("lineage")
    except ValueError as error:
        _say_once(f"OpenLineage is configured, but {error}")
        return unheard
    return _Emitter(pipeline)


class _Emitter:
    """A lineage backend is not worth a transaction: whatever goes wrong is logged, once in a process."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __call__(self, step: TransactionStep) -> None:
        # A thread, because the client retries for half a minute while a backend is down.
        thread = threading.Thread(target=self._emit, args=(step,), name="lineage", daemon=True)
        thread.start()
        thread.join(LONGEST_SECONDS)
        if thread.is_alive():
            _say_once(f"lineage: the backend did not answer within {LONGEST_SECONDS:g} s; the transaction goes on")

    def _emit(self, step: TransactionStep) -> None:
        try:
            from hudi_ingest.lineage.events import event

            _client().emit(event(self._pipeline, os.environ.get(NAMESPACE) or "hudi-ingest", step))
        except Exception as error:
            # Broad, because any failure of the client or the backend is as unimportant to the transaction as any other.
            _logger.debug("lineage", exc_info=True)
            _say_once(
                f"lineage: an event could not be emitted: {type(error).__name__}: {error}. The transaction goes on."
            )


@cache
def _client() -> OpenLineageClient:
    from openlineage.client import OpenLineageClient

    return OpenLineageClient()


_said = threading.Event()


def _say_once(text: str) -> None:
    if not _said.is_set():
        _said.set()
        _logger.warning("%s", text)
