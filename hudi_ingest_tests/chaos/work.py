"""Commands that change a table beside its live transactions, run as a person runs them: again until they are done."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress

import psutil

from hudi_ingest.home.folder import Home
from hudi_ingest_tests.support.command_line import COMMAND, environment
from hudi_ingest_tests.support.waiting import NotInTime

DONE_SECONDS = 300
"""Until a command must have succeeded, tries included: a dead clustering's lease has to end meanwhile."""
_AGAIN_SECONDS = 5.0


class Work:
    """`hudi-ingest ARGUMENTS`, in a process of its own; its output is in `work.log` of the home. `beside_live`: live transactions
    go on meanwhile, and it has none of its own. `done`: what the command says when an earlier try has done it all; it fails then."""

    def __init__(self, home: Home, *arguments: str, beside_live: bool = False, done: str = "") -> None:
        self.beside_live = beside_live
        self._done = done
        self._home = home
        self._arguments = arguments
        self._log = home.root / "work.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._log_begins = log.tell()
            log.write(f"\n$ hudi-ingest {' '.join(self._arguments)}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                [*COMMAND, *self._arguments], env=environment(self._home), stdout=log, stderr=log
            )

    def kill(self) -> None:
        """SIGKILL to the command and its children; what it has asked others for goes on."""
        assert self._process is not None
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            for victim in [*process.children(recursive=True), process]:
                with suppress(psutil.NoSuchProcess):
                    victim.kill()
        self._process.wait(30)

    def _said(self) -> str:
        """The output of the last try, without its line breaks."""
        return " ".join(self._log.read_bytes()[self._log_begins :].decode(errors="replace").split())

    def finish(self) -> None:
        """Waits for it, and gives the command again while it fails. Raises NotInTime."""
        deadline = time.monotonic() + DONE_SECONDS
        while True:
            assert self._process is not None
            try:
                code = self._process.wait(max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill()
                raise NotInTime(f"`hudi-ingest {' '.join(self._arguments)}` does not end; see {self._log}") from None
            if code == 0 or (self._done and self._done in self._said()):
                return
            if time.monotonic() > deadline:
                raise NotInTime(f"`hudi-ingest {' '.join(self._arguments)}` exits with {code}; see {self._log}")
            time.sleep(_AGAIN_SECONDS)  # a person, too, does not try again at once
            self.start()
