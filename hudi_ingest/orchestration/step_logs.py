"""What ops print, in files that the Dagster UI shows, without a process for each of them.

Dagster's own manager of local files also shows what an op prints in the terminal of its parent: for that it starts two `tail`
and two Pythons that watch them, for each op. A daemon's terminal is a log file that nobody reads for this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagster import Field, StringSource
from dagster._core.execution.compute_logs import redirect_to_file
from dagster._core.storage.compute_log_manager import CapturedLogContext, ComputeIOType
from dagster._core.storage.local_compute_log_manager import IO_TYPE_EXTENSION, LocalComputeLogManager
from dagster._serdes import ConfigurableClassData

from hudi_ingest.exceptions import EnvironmentProblem


class FileComputeLogManager(LocalComputeLogManager):
    """Files below `base_dir`, by default `$DAGSTER_HOME/storage`, as Dagster's own manager has them. Raises EnvironmentProblem
    when there is neither."""

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {"base_dir": Field(StringSource, is_required=False)}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> FileComputeLogManager:
        home = os.environ.get("DAGSTER_HOME")
        folder = config_value.get("base_dir") or (home and str(Path(home, "storage")))
        if not folder:
            raise EnvironmentProblem(
                "compute_logs has no base_dir and DAGSTER_HOME is not set, so there is no place for what ops print; set either."
            )
        return cls(base_dir=folder, inst_data=inst_data)

    @contextmanager
    def capture_logs(self, log_key: Sequence[str]) -> Iterator[CapturedLogContext]:
        """What this process and its children print inside goes to the files of that key."""
        out, err = (
            Path(self.get_captured_local_path(log_key, IO_TYPE_EXTENSION[kind]))
            for kind in (ComputeIOType.STDOUT, ComputeIOType.STDERR)
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        with redirect_to_file(sys.stdout, str(out)), redirect_to_file(sys.stderr, str(err)):
            yield CapturedLogContext(log_key)
        # By this file the UI knows that no more will come.
        Path(self.complete_artifact_path(log_key)).touch()  # type: ignore[no-untyped-call]
