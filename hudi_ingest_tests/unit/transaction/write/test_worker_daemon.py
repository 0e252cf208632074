"""What Spark's Python workers are forked from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from hudi_ingest.records.convert.json import kernel
from hudi_ingest.records.convert.json.kernel import is_kept

KERNEL = "hudi_ingest.records.convert.json.kernel.records"


def test_the_process_that_forks_workers_imports_the_kernel_once_it_is_compiled() -> None:
    subprocess.run([sys.executable, "-c", f"import {KERNEL}"], check=True, timeout=120)
    assert is_kept()
    # It ends at the end of its input; its modules are listed as it imports them.
    command = [sys.executable, "-X", "importtime", "-m", "hudi_ingest.transaction.write.worker_daemon"]
    listing = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False).stderr
    assert KERNEL in listing.decode()


def test_workers_share_what_their_daemon_has_imported() -> None:
    # Instead of forking workers it says how many objects their garbage collections skip, and how many they look through, also after
    # the first array of a task.
    program = (
        "import gc, runpy, pyarrow, pyspark.daemon\n"
        "def counts():\n"
        "    print(gc.get_freeze_count(), len(gc.get_objects()))\n"
        "    pyarrow.array([1])\n"
        "    print(gc.get_freeze_count(), len(gc.get_objects()))\n"
        "pyspark.daemon.manager = counts\n"
        "runpy.run_module('hudi_ingest.transaction.write.worker_daemon', run_name='__main__')"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=120, check=True, text=True
    ).stdout
    at_fork, after_an_array = shown.splitlines()
    for line in (at_fork, after_an_array):
        frozen, collected = map(int, line.split())
        assert frozen > 50_000
        assert collected < 1_000


def test_a_task_reads_no_archive_again(tmp_path: Path) -> None:
    archive = tmp_path / "shipped.zip"
    with ZipFile(archive, "w") as shipped:
        shipped.writestr("shipped.py", "")
    # What a worker does before a task, and whether Python has read the archive's directory again.
    program = (
        "import importlib, os, runpy, sys, zipimport, pyspark.daemon, shipped\n"
        "def task():\n"
        "    read = zipimport._read_directory\n"
        "    zipimport._read_directory = lambda path: print('read', os.path.basename(path)) or read(path)\n"
        "    importlib.invalidate_caches()\n"
        "    import later\n"
        "pyspark.daemon.manager = lambda: (sys.path.append(sys.argv[1]), task())\n"
        "runpy.run_module('hudi_ingest.transaction.write.worker_daemon', run_name='__main__')"
    )
    later = tmp_path / "later"
    later.mkdir()
    (later / "later.py").write_text("print('imported later')")
    shown = subprocess.run(
        [sys.executable, "-c", program, str(later)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(archive), *sys.path])},
        capture_output=True,
        timeout=120,
        check=True,
        text=True,
    ).stdout
    assert shown.splitlines() == ["imported later"]


def test_a_kernel_of_other_code_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = tmp_path / "changed.py"
    changed.write_text("other code")
    monkeypatch.setattr(kernel, "_SOURCES", (changed,))
    assert not is_kept()
