from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.measure import Meter, ProcessTrees, Sample, Usage, usage_between

SAMPLES = [Sample(1.0, 10.0, 5, 1), Sample(2.0, 11.0, 9, 4), Sample(3.0, 14.0, 7, 2), Sample(4.0, 20.0, 99, 3)]
BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"


def test_usage_is_what_lies_between_the_samples_around_the_window() -> None:
    assert usage_between(SAMPLES, 1.5, 2.5) == Usage(4.0, 9, 4)
    assert usage_between(SAMPLES, 0.0, 9.0) == Usage(10.0, 99, 4)
    assert usage_between(SAMPLES, 2.0, 2.0) == Usage(0.0, 9, 4)
    with pytest.raises(ValueError, match="no sample"):
        usage_between([], 0, 1)


def test_cpu_of_children_that_have_ended_is_not_lost() -> None:
    code = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {BURN.format(seconds=0.5)!r}])\n"
    parent = subprocess.Popen(
        [sys.executable, "-c", code + "print('done', flush=True)\nsys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdin is not None and parent.stdout is not None
    with Meter({"it": [parent.pid]}) as meter:
        begin = time.time()
        parent.stdout.readline()
        end = time.time()
    parent.stdin.close()
    assert parent.wait(120) == 0
    usage = meter.usage("it", begin, end)
    assert 0.45 < usage.cpu_seconds < 5
    assert usage.peak_rss_bytes > 5_000_000


def test_a_child_that_outlives_its_parent_is_still_measured() -> None:
    # The child tells on a pipe when it has used 0.3 s, and waits for the pipe's end. Only it reads there: of two readers either
    # may get a line.
    code = BURN.format(seconds=0.3) + "import os, sys\nos.write(1, b'd')\nsys.stdin.read()"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import signal, subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {code!r}])\nsignal.pause()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdin is not None and parent.stdout is not None
    assert os.read(parent.stdout.fileno(), 1) == b"d"
    trees = ProcessTrees((parent.pid,))
    both = trees.sample()
    parent.terminate()
    assert parent.wait(120) == -signal.SIGTERM
    child_alone = trees.sample()
    parent.stdin.close()
    assert both.cpu_seconds >= 0.3
    assert child_alone.cpu_seconds >= 0.3
    assert 0 < child_alone.rss_bytes < both.rss_bytes
