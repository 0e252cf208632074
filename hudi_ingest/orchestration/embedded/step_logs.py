"""Captures what ops print in files that the Dagster UI shows, without extra processes.

Dagster's own local manager also copies an op's output to its parent's terminal: for each op it starts two `tail` processes and
two Pythons that watch them. A daemon's terminal is a log file, in which step logs are not expected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagster import DagsterInvariantViolationError, Field, StringSource
from dagster._core.execution.compute_logs import redirect_to_file
from dagster._core.storage.compute_log_manager import CapturedLogContext, ComputeIOType
from dagster._core.storage.local_compute_log_manager import IO_TYPE_EXTENSION, LocalComputeLogManager


class FileComputeLogManager(LocalComputeLogManager):
    """Files below `base_dir`, by default `$DAGSTER_HOME/storage`, laid out like those of Dagster's own manager. Raises
    DagsterInvariantViolationError if neither is set."""

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {"base_dir": Field(StringSource, is_required=False)}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> FileComputeLogManager:
        home = os.environ.get("DAGSTER_HOME")
        folder = config_value.get("base_dir") or (home and str(Path(home, "storage")))
        if not folder:
            raise DagsterInvariantViolationError(
                "compute_logs has no base_dir and DAGSTER_HOME is not set, so there is no place for the ops' output; set either."
            )
        return cls(base_dir=folder, inst_data=inst_data)

    @contextmanager
    def capture_logs(self, log_key: Sequence[str]) -> Iterator[CapturedLogContext]:
        """Redirect the output of this process and its children to the files of this key."""
        out, err = (
            Path(self.get_captured_local_path(log_key, IO_TYPE_EXTENSION[kind]))
            for kind in (ComputeIOType.STDOUT, ComputeIOType.STDERR)
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        with redirect_to_file(sys.stdout, str(out)), redirect_to_file(sys.stderr, str(err)):
            yield CapturedLogContext(log_key)
        # By this file the UI knows that the output is complete.
        Path(self.complete_artifact_path(log_key)).touch()  # type: ignore[no-untyped-call]
