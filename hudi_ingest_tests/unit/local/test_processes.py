"""Child processes: known by pid and creation time, stopped with all that belongs to them, waited for with a deadline."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.liveness import started_since_boot
from hudi_ingest.local import processes
from hudi_ingest.local.processes import ProcessRecord, is_alive, start, stop, wait_until
from hudi_ingest_tests.support.clock import set_wall_clock_back

Starter = Callable[[str], ProcessRecord]

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"

# A parent, a child in its session and a child in a session of its own; with `stubborn`, none heeds SIGTERM.
FAMILY = """
import os, signal, subprocess, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
near = subprocess.Popen(sleep)
far = subprocess.Popen(sleep, start_new_session=True)
print("pids", near.pid, far.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Starter]:
    """Starts Python programs; whatever a test leaves running is stopped."""
    started: list[ProcessRecord] = []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(program: str, *arguments: str) -> ProcessRecord:
        log = tmp_path / f"{len(started)}.log"
        command = [sys.executable, "-c", program, *arguments]
        started.append(start(f"child {len(started)}", command, log=log, env=environment))
        return started[-1]

    yield run
    stop(started, grace_seconds=0)


def said(record: ProcessRecord, word: str) -> list[str]:
    """The words after `word` in the log, once the line is there."""

    def find() -> list[str] | None:
        lines = [line.split() for line in Path(record.log).read_text().splitlines(keepends=True) if line.endswith("\n")]
        return next((line for line in lines if line and line[0] == word), None)

    return wait_until(find, what=f"{word} is in the log", timeout_seconds=120, records_to_watch=[record])[1:]


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_child_runs_in_its_own_session_and_is_stopped(run: Starter) -> None:
    record = run(SLEEPER)
    said(record, "up")
    assert is_alive(record)
    assert os.getsid(record.pid) == record.pid
    stop([record])
    assert not is_alive(record)
    assert not psutil.pid_exists(record.pid)
    stop([record])


def test_the_log_is_appended_to_and_has_both_outputs(tmp_path: Path) -> None:
    log = tmp_path / "new folder" / "a.log"
    program = "import sys; print('out', flush=True); print('err', file=sys.stderr); print(sys.stdin.read() == '')"
    for _ in range(2):
        record = start("talker", [sys.executable, "-c", program], log=log, env=os.environ)
        wait_until(lambda record=record: not is_alive(record), what="it ended", timeout_seconds=120)  # type: ignore[misc]
    assert log.read_text().splitlines() == ["out", "err", "True"] * 2


def test_a_child_that_ended_is_dead_though_its_parent_lives_on(run: Starter) -> None:
    record = run("pass")
    wait_until(lambda: not is_alive(record), what="the child is seen dead", timeout_seconds=120)
    assert not psutil.pid_exists(record.pid)


def test_a_zombie_of_another_parent_is_dead(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    process = psutil.Process(child.pid)
    record = ProcessRecord("zombie", child.pid, started_since_boot(child.pid), str(tmp_path / "none.log"))
    wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, what="it is a zombie", timeout_seconds=120)
    assert not is_alive(record)
    child.wait()


def test_a_reused_pid_is_neither_alive_nor_stopped(run: Starter) -> None:
    record = run(SLEEPER)
    older = replace(record, started=record.started - 60, mark="another")
    assert not is_alive(older)
    stop([older], grace_seconds=0)
    assert is_alive(record)


def test_a_step_of_the_wall_clock_does_not_make_a_process_dead(run: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(SLEEPER)
    set_wall_clock_back(monkeypatch, 3600)
    assert is_alive(record)


def test_stop_never_ends_its_caller(run: Starter) -> None:
    record = run(
        "import os, subprocess, sys\n"
        "from hudi_ingest.local.processes import ProcessRecord, stop\n"
        "from hudi_ingest.home.liveness import started_since_boot\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "stop([ProcessRecord('self', os.getpid(), started_since_boot(os.getpid()), '/none')], grace_seconds=20)\n"
        "print('outcome', child.wait(120), flush=True)\n"
    )
    assert said(record, "outcome") == ["-15"]


def test_two_starts_with_the_same_name_and_log_are_told_apart(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLEEPER]
    first, second = (start("twin", command, log=tmp_path / "a.log", env=os.environ) for _ in range(2))
    stop([second])
    assert (is_alive(first), is_alive(second)) == (True, False)
    stop([first])


@pytest.mark.parametrize("manner", ["gentle", "stubborn"])
def test_stop_ends_the_whole_family(run: Callable[..., ProcessRecord], manner: str) -> None:
    record = run(FAMILY, manner)
    near, far = (int(pid) for pid in said(record, "pids"))
    stop([record], grace_seconds=1 if manner == "stubborn" else 20)
    assert [running(pid) for pid in (record.pid, near, far)] == [False] * 3


def test_stop_ends_what_a_dead_parent_left_behind(run: Starter) -> None:
    record = run(FAMILY)
    near, far = (int(pid) for pid in said(record, "pids"))
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(record), what="the parent is dead", timeout_seconds=120)
    assert running(near) and running(far)
    stop([record])
    assert not running(near) and not running(far)


def test_a_parent_may_end_its_children_itself(run: Starter) -> None:
    record = run(
        "import signal, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "def end(*_):\n"
        "    alive = child.poll() is None; child.terminate()\n"
        "    print('ended', alive, child.wait(), flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    said(record, "ready")
    stop([record], grace_seconds=20)
    assert "ended True -15" in Path(record.log).read_text()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"ghost could not be started with /nonexistent/x"):
        start("ghost", ["/nonexistent/x"], log=tmp_path / "a.log", env={})


def test_wait_until_gives_the_value() -> None:
    values = iter([None, 0, "there"])
    assert wait_until(lambda: next(values), what="it is there", timeout_seconds=5) == "there"


def test_wait_until_tells_what_did_not_happen_and_where_to_look(run: Starter) -> None:
    record = run(SLEEPER)
    with pytest.raises(EnvironmentProblem) as caught:
        wait_until(lambda: None, what="pigs fly", timeout_seconds=0.1, records_to_watch=[record])
    assert "Timed out after 0.1 seconds waiting until pigs fly" in str(caught.value)
    assert record.log in str(caught.value)


def ends(record: ProcessRecord) -> str:
    with pytest.raises(EnvironmentProblem) as caught:
        wait_until(lambda: None, what="pigs fly", timeout_seconds=120, records_to_watch=[record])
    assert f"{record.name} (pid {record.pid})" in str(caught.value)
    assert record.log in str(caught.value)
    return str(caught.value)


def test_wait_until_tells_how_a_watched_process_ended_and_what_it_said_last(run: Starter) -> None:
    message = ends(run("for n in range(9): print('line', n)\nraise SystemExit(3)"))
    assert "ended with exit code 3 before pigs fly" in message
    assert "line 4 | line 5 | line 6 | line 7 | line 8" in message and "line 3" not in message


def test_of_a_log_the_lines_that_tell_of_the_problem_are_shown(run: Starter) -> None:
    program = "import sys\nfor n in range(99): print('chatter', n, flush=True)\nopen('/nonexistent')"
    message = ends(run(program))
    assert (
        "Its log says: FileNotFoundError: [Errno 2] No such file or directory: '/nonexistent'. Correct that" in message
    )


def test_what_an_earlier_process_left_in_the_log_is_not_shown(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("ERROR of yesterday\n")
    message = ends(start("quiet", [sys.executable, "-c", "print('no more')"], log=log, env=os.environ))
    assert "Its log says: no more." in message


def test_a_killed_process_is_told_as_such(run: Starter) -> None:
    record = run(SLEEPER)
    said(record, "up")
    os.kill(record.pid, signal.SIGKILL)
    assert "was killed by SIGKILL before pigs fly. Its log gives no reason" in ends(record)


def test_wait_until_takes_a_last_success_of_a_process_that_ended(run: Starter, tmp_path: Path) -> None:
    record = run(f"open({str(tmp_path / 'done')!r}, 'w').close()")
    assert wait_until(
        lambda: not is_alive(record) and (tmp_path / "done").exists(),
        what="it is done",
        timeout_seconds=120,
        records_to_watch=[record],
    )


def test_the_tail_of_a_log_has_no_java_frames(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("java.io.IOException: no\n\tat a.B.c(B.java:1)\n\t... 3 more\n\nexiting at once (1)\n")
    assert processes.log_tail(log) == ("java.io.IOException: no", "exiting at once (1)")
    assert processes.log_tail(tmp_path / "none") == ()


def test_a_free_port_is_free() -> None:
    processes.require_port_free(processes.free_port(), "the test", "--port")


def test_a_free_port_is_given_once(run: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of others there may be so many servers that 40 of any 60 ports are not left.
    few = [port for port in processes._OWN_PORTS if not is_taken(port)][:60]
    program = f"""
import time
from hudi_ingest.local import processes
processes._OWN_PORTS = {few}
print("ports", *(processes.free_port() for _ in range(20)), flush=True)
time.sleep(600)
"""
    others = {int(port) for port in said(run(program), "ports")}
    monkeypatch.setattr(processes, "_OWN_PORTS", few)
    own = {processes.free_port() for _ in range(20)}
    assert len(own) == len(others) == 20 and not own & others


def is_taken(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return True
    return False


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_taken_port_is_told_with_its_holder(host: str) -> None:
    with socket.create_server((host, 0)) as server, pytest.raises(EnvironmentProblem) as caught:
        processes.require_port_free(server.getsockname()[1], "the Dagster UI", "--ui-port")
    message = str(caught.value)
    assert "on 127.0.0.1, needed for the Dagster UI, is in use by " in message and f"(pid {os.getpid()})" in message
    assert message.endswith("; stop that process, or choose another port with --ui-port")


def test_a_port_whose_connections_just_closed_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()
        client.close()
    processes.require_port_free(port, "the test", "--port")


def test_only_a_socket_that_nobody_listens_at_is_replaced(tmp_path: Path) -> None:
    found, file = tmp_path / "code.sock", tmp_path / "notes.txt"
    processes.require_socket_free(found)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(found))
        server.listen()
        with pytest.raises(
            EnvironmentProblem, match=r"a server listens at .*code\.sock; stop it, or choose another path"
        ):
            processes.require_socket_free(found)
    processes.require_socket_free(found)
    file.write_text("mine")
    for path, why in (
        (file, "is there, and is no socket"),
        (tmp_path / "none" / "code.sock", "is no folder"),
        (tmp_path / ("s" * 100), "is longer than"),
    ):
        with pytest.raises(EnvironmentProblem, match=rf"{why}.*; .*choose another path"):
            processes.require_socket_free(path)


def test_a_port_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentProblem, match=r"port 70000 on 127\.0\.0\.1, needed for x, cannot be used"):
        processes.require_port_free(70000, "x", "--port")
