"""The code server of the pipeline files, which also keeps the logs of the embedded stack short.

`python -m hudi_ingest.orchestration.code_server SOCKET` serves on a Unix socket until it is stopped. Anyone who can connect to it
can start runs, so only this user may have access to its folder.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from pathlib import Path

from hudi_ingest.home.folder import Home, cut_back, file_version, stack_logs
from hudi_ingest.orchestration.embedded.code_server import serve
from hudi_ingest.pipeline.folder import folder_version

_log = logging.getLogger(__name__)

_LOGS_SECONDS = 60.0
_MODULE = "hudi_ingest.orchestration.definitions"
LOCATION = "hudi_ingest"


def serve_pipelines(address: Path | tuple[str, int], log_level: str = "info") -> None:
    """Serve until the process is stopped, on a Unix socket or on host and port."""
    home = Home.from_environment()
    threading.Thread(target=_keep_logs_short, args=(home,), name="logs", daemon=True).start()
    serve(address, _MODULE, LOCATION, lambda: _version(home), log_level)


def _version(home: Home) -> tuple[object, ...]:
    """Differs once a settings file has changed or a template has other topics."""
    files = (home.topics_file, home.housekeeping_settings_file, home.alerts_settings_file)
    return folder_version(home.pipelines), *map(file_version, files)


def _keep_logs_short(home: Home) -> None:
    while True:
        time.sleep(_LOGS_SECONDS)
        try:
            cut_back(stack_logs(home))
        except OSError as problem:
            _log.warning("Could not cut back the logs of %s: %s. Free space on its disk.", home.root, problem)


if __name__ == "__main__":
    # Dagster's own lines would only fill the stack's log.
    serve_pipelines(Path(sys.argv[1]), "warning")
