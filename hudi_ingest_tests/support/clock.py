"""A wall clock that was set, as psutil sees it."""

from __future__ import annotations

import psutil
import pytest


def set_wall_clock_back(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """The machine's boot, and with it the start of each process, moves with the clock."""
    boot_time, create_time = psutil.boot_time, psutil.Process.create_time
    monkeypatch.setattr(psutil, "boot_time", lambda: boot_time() - seconds)
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: create_time(process) - seconds)
