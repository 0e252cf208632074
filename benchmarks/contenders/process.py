"""The benchmark's side of a contender's process: start it, run rounds, stop it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.contenders import Assignment, Outcome
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.local.processes import log_tail

_START_SECONDS = 300
_STOP_SECONDS = 30


class Worker:
    """One contender's process, until `stop`. Its stderr goes to its log."""

    def __init__(self, name: str, engine: Mapping[str, Any], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "benchmarks.contenders.worker", name, json.dumps(engine)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={**os.environ, **environment},
            )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, name=f"answers of {name}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_ready(self) -> None:
        """Wait for its driver. Raises EnvironmentProblem when the driver does not start."""
        self._answer(_START_SECONDS)

    def run(self, assignment: Assignment, timeout_seconds: float) -> Outcome:
        """Run one round. Raises EnvironmentProblem when it fails or takes longer than the timeout."""
        assert self._process.stdin is not None
        # If it has ended, the answer says so.
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(assignment.to_dict()) + "\n")
            self._process.stdin.flush()
        return Outcome(**self._answer(timeout_seconds))

    def stop(self) -> None:
        """Stop the process and its JVM."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            # The JVM exits when the pipe to its parent breaks.
            self._process.kill()
            self._process.wait()

    def _answer(self, timeout_seconds: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=timeout_seconds)
        except queue.Empty:
            raise self._failed(f"gave no answer in {timeout_seconds:g} s") from None
        if not line:
            raise self._failed(f"ended with code {self._process.wait(_STOP_SECONDS)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._failed(f"failed: {str(answer['error']).rstrip('.')}")
        return answer

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _failed(self, what: str) -> EnvironmentProblem:
        lines = " | ".join(log_tail(self._log)) or "nothing"
        return EnvironmentProblem(
            f"the benchmark's contender {self.name} {what}. Its log, {self._log}, ends with: {lines}. Put that right and start "
            "the benchmark again; what was measured before is kept."
        )
