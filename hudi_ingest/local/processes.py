"""Starts long-lived child processes, remembers them across restarts of this program, and stops everything they started.

A process is identified by its pid and start time, so a pid that the system has reused is never taken for ours. Each child
starts in its own session and carries a mark in its environment, which finds whatever it leaves behind when it dies. Nothing is
ever stopped by its name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.liveness import same_start, started_since_boot

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
LONGEST_SOCKET_PATH = 100
"""Bytes; the system's limit is 107, or 103 on macOS."""
MARK = "HUDI_INGEST_PROCESS"
KILL_SECONDS = 10.0
FIRST_POLL_SECONDS = 0.02
LAST_POLL_SECONDS = 0.25
LOG_TAIL_LINES = 5
LOG_TAIL_BYTES = 65_536
_OWN_PORTS = range(20_000, 32_768)
"""Below those that Linux and macOS give to sockets that ask for any port."""

_FRAME = re.compile(r"\s+(at \S+\(.*\)|\.\.\. \d+ more|File \".*\", line \d+.*|[~^]+)\s*$")
_PROBLEM = re.compile(
    r"(?i)\b\w*(error|exception|fatal|killed|failed|failure|refused|denied)\b|cannot|could not|no space left"
)
_PROBLEM_LINES = 3

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Children of this process by pid, ended ones too, whose pid another process may have by now."""
_children_lock = threading.Lock()


@dataclass(frozen=True)
class ProcessRecord:
    """A process, `started` that many seconds after the machine's boot. `log` is a file's path.

    `mark`: a random text in the environment of the process and of everything it starts; "" if there is none.
    `log_begins`: the size of the log in bytes before the process started.
    """

    name: str
    pid: int
    started: float
    log: str
    mark: str = ""
    log_begins: int = 0


class ProcessEnded(EnvironmentProblem):
    """A process ended before it was ready. `killed`: a signal may have ended it, so that starting another may help; the exit
    code is known only for children of this process."""

    def __init__(self, text: str, *, killed: bool) -> None:
        super().__init__(text)
        self.killed = killed


def start(
    name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str], cwd: Path | None = None
) -> ProcessRecord:
    """Start `command` in its own session, without input and with its output appended to `log`.

    `env` is its whole environment. Raises EnvironmentProblem if it cannot be started or the log cannot be written.
    """
    log, mark = log.absolute(), uuid.uuid4().hex
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            log_begins = output.tell()
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**env, MARK: mark},
                cwd=cwd,
                start_new_session=True,
            )
    except OSError as problem:
        raise EnvironmentProblem(
            f"{name} could not be started with {command[0]} and its log in {log} ({problem}); check that the program "
            "and the folders exist and that this user may use them."
        ) from problem
    # Until poll() is called on it the pid cannot be reused, even when the child has ended: it is at least a zombie.
    record = ProcessRecord(name, child.pid, started_since_boot(child.pid), str(log), mark, log_begins)
    with _children_lock:
        _children[child.pid] = child
    return record


def ready(
    record: ProcessRecord, condition: Callable[[], object], *, what: str, timeout_seconds: float
) -> ProcessRecord:
    """Wait until the condition holds, and return the process's record; `what` describes the condition in error messages.

    Raises EnvironmentProblem if it does not in time; then nothing is left running.
    """
    try:
        wait_until(condition, what=what, timeout_seconds=timeout_seconds, records_to_watch=[record])
    except BaseException:
        stop([record])
        raise
    return record


def is_alive(record: ProcessRecord) -> bool:
    """Whether the recorded process itself is still running; a zombie, or another process with the same pid, does not count."""
    return _leader(record) is not None


def running_seconds(record: ProcessRecord) -> float:
    """Return for how long the recorded process has run; 0 if it has ended."""
    leader = _leader(record)
    try:
        return time.time() - leader.create_time() if leader is not None else 0.0
    except psutil.NoSuchProcess:
        return 0.0


def kill(record: ProcessRecord) -> None:
    """Kill the recorded process, not what it has started, and return when it has ended."""
    leader = _leader(record)
    if leader is not None:
        _signal(leader, signal.SIGKILL)
        wait_until(lambda: not is_alive(record), what=f"{record.name} has ended", timeout_seconds=KILL_SECONDS)


def stop(records: Iterable[ProcessRecord], grace_seconds: float = 10) -> None:
    """End the recorded processes and everything they started; processes that are already gone are fine.

    Each recorded process gets SIGTERM and may end its own children. Whatever a dead process has left behind gets SIGTERM
    as well, and everything that remains after `grace_seconds` is killed. Never ends the caller. Raises EnvironmentProblem if a
    process survives even that.
    """
    records = tuple(records)
    known: set[psutil.Process] = set()
    signalled: set[psutil.Process] = set()
    deadline = time.monotonic() + grace_seconds
    pause = FIRST_POLL_SECONDS
    while time.monotonic() < deadline:
        # The caller is never ended, so its children cannot be left for it to end.
        leaders = [
            leader for record in records if record.pid != os.getpid() and (leader := _leader(record)) is not None
        ]
        alive = _belonging(records, known)
        if not alive:
            return
        under_leader = {child for leader in leaders for child in [leader, *_descendants(leader)]}
        for process in alive - signalled:
            if process in leaders or process not in under_leader:
                signalled.add(process)
                _signal(process, signal.SIGTERM)
        time.sleep(pause)
        pause = min(pause * 2, LAST_POLL_SECONDS)
    deadline = time.monotonic() + KILL_SECONDS
    while alive := _belonging(records, known):
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in alive)
            raise EnvironmentProblem(
                f"The processes {pids} of {', '.join(record.name for record in records)} did not end within "
                f"{KILL_SECONDS:.0f} seconds of SIGKILL, most likely because a disk or network folder does not respond; "
                "inspect them with `ps -o pid,stat,wchan,cmd -p PID`, then stop again."
            )
        for process in alive:
            _signal(process, signal.SIGKILL)
        time.sleep(FIRST_POLL_SECONDS)


def wait_until(
    condition: Callable[[], T | None],
    *,
    what: str,
    timeout_seconds: float,
    records_to_watch: Iterable[ProcessRecord] = (),
) -> T:
    """Poll `condition` and return its first truthy value. `what` describes the condition, as text for errors.

    Raises ProcessEnded if a watched process ends first, EnvironmentProblem after `timeout_seconds`.
    """
    watched = tuple(records_to_watch)
    deadline = time.monotonic() + timeout_seconds
    pause = FIRST_POLL_SECONDS
    while True:
        dead = next((record for record in watched if not is_alive(record)), None)
        value = condition()
        if value:
            return value
        if dead is not None:
            raise _ended(dead, what)
        if time.monotonic() >= deadline:
            logs = ", ".join(record.log for record in watched)
            log_lines = "".join(
                f" {record.name} said: {' | '.join(lines)}." for record in watched if (lines := problem_lines(record))
            )
            raise EnvironmentProblem(
                f"Timed out after {timeout_seconds:g} seconds waiting until {what}.{log_lines} "
                + (
                    f"Look for the reason in {logs}, then try again."
                    if logs
                    else "Check that it is running, then try again."
                )
            )
        time.sleep(pause)
        pause = min(pause * 1.5, LAST_POLL_SECONDS)


def require_running(records: Iterable[ProcessRecord], what: str) -> None:
    """Raises ProcessEnded if one of them has ended; `what` describes what it should have lived for."""
    for record in records:
        if not is_alive(record):
            raise _ended(record, what)


def _ended(record: ProcessRecord, what: str) -> ProcessEnded:
    child = _children.get(record.pid)
    code = child.returncode if child is not None else None
    how = "ended" if code is None else f"ended with exit code {code}"
    by_signal = code is not None and code < 0
    if code is not None and by_signal:
        how = f"was killed by {signal.Signals(-code).name}"
    lines = problem_lines(record) or (() if by_signal else log_tail(Path(record.log), after=record.log_begins))
    if lines:
        why = f"Its log says: {' | '.join(lines)}. Correct that and start it again"
    elif by_signal:
        why = "Its log gives no reason: a user or the system killed it, often because memory ran out (see `dmesg`). Start it again"
    else:
        why = "Its log is empty. Start it again"
    return ProcessEnded(
        f"{record.name} (pid {record.pid}) {how} before {what}. {why} (full log: {record.log}).",
        killed=by_signal or code is None,
    )


def problem_lines(record: ProcessRecord) -> tuple[str, ...]:
    """Return the log lines that report a problem, oldest first, and the lines after the last of them; () if there are none."""
    lines = log_tail(Path(record.log), lines=None, after=record.log_begins)
    places = [place for place, line in enumerate(lines) if _PROBLEM.search(line)][-_PROBLEM_LINES:]
    following = lines[places[-1] + 1 :] if places else ()
    return tuple(dict.fromkeys([*(lines[place] for place in places), *following]))[:LOG_TAIL_LINES]


def log_tail(log: Path, lines: int | None = LOG_TAIL_LINES, after: int = 0) -> tuple[str, ...]:
    """Return the last meaningful lines of a log, oldest first, ignoring its first `after` bytes.

    Empty lines and stack frames do not count; () if the log cannot be read.
    """
    try:
        with log.open("rb") as content:
            size = os.fstat(content.fileno()).st_size
            # A log that has been cut back since then has only newer lines.
            content.seek(max(0, size - LOG_TAIL_BYTES, after if after <= size else 0))
            text = content.read().decode("utf-8", errors="replace")
    except OSError:
        return ()
    kept = [line.strip() for line in text.splitlines() if line.strip() and not _FRAME.match(line)]
    return tuple(kept if lines is None else kept[-lines:])


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on now and that no other caller gets before its server listens.

    The system does not hand it out as a free port, and no other call returns it, in no process, until this one ends.
    """
    while True:
        port = secrets.choice(_OWN_PORTS)
        # TCP and UDP ports are apart: a server can listen on the port while this process holds its number.
        reservation = socket.socket(type=socket.SOCK_DGRAM)
        try:
            reservation.bind((LOOPBACK, port))
            with socket.socket() as probe:
                probe.bind((LOOPBACK, port))
        except OSError:
            reservation.close()
        else:
            # It stays open as long as the process lives; the system closes it however that ends.
            reservation.detach()
            return port


def accepts_connections(address: int | Path) -> bool:
    """Whether something listens at `address`: a TCP port of 127.0.0.1, or the path of a Unix socket."""
    if isinstance(address, int):
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, address)) == 0
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(address)) == 0


def require_socket_free(path: Path) -> None:
    """Raises EnvironmentProblem unless a server can make the Unix socket at `path`, or replace one that nobody listens at."""
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise EnvironmentProblem(
            f"{path} is longer than the {LONGEST_SOCKET_PATH} bytes of a socket's path; choose another path"
        )
    if not path.parent.is_dir():
        raise EnvironmentProblem(
            f"{path.parent}, for the socket {path.name}, is no folder; make it, or choose another path"
        )
    if path.exists() and not path.is_socket():
        raise EnvironmentProblem(f"{path} is there, and is no socket; choose another path")
    if accepts_connections(path):
        raise EnvironmentProblem(f"a server listens at {path}; stop it, or choose another path")


def require_port_free(port: int, purpose: str, option: str = "", host: str = LOOPBACK) -> None:
    """Raises EnvironmentProblem if it is impossible to listen on `port` of `host`.

    `purpose` says what needs the port; `option` is the command line option that chooses another, if there is one.
    """
    choose = f"choose another port with {option}" if option else "choose another port"
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            # As servers do: connections that a stopped server left in TIME_WAIT do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, OverflowError) as problem:
        if isinstance(problem, OSError) and problem.errno == errno.EADDRINUSE:
            raise EnvironmentProblem(
                f"port {port} on {host}, needed for {purpose}, is in use{_holder(port)}; stop that process, or {choose}"
            ) from problem
        raise EnvironmentProblem(
            f"port {port} on {host}, needed for {purpose}, cannot be used ({problem}); {choose}"
        ) from problem


def _running(process: psutil.Process) -> bool:
    """Whether the process has not ended; reaps it if it is an ended child of this process.

    A zombie with more than one thread is still ending: until the last of them is gone it holds its ports and files.
    """
    with _children_lock:
        child = _children.get(process.pid)
        if child is not None and child.poll() is None:
            return True
    try:
        if not process.is_running():
            return False
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


def _leader(record: ProcessRecord) -> psutil.Process | None:
    """Return the recorded process if it is running, else None."""
    try:
        process = psutil.Process(record.pid)
        same = same_start(started_since_boot(record.pid), record.started)
    except psutil.NoSuchProcess:
        return None
    return process if same and _running(process) else None


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _belonging(records: Sequence[ProcessRecord], known: set[psutil.Process]) -> set[psutil.Process]:
    """Return all running processes of the records, and add them to `known`, whose members stay ours when their parents end."""
    leaders = {record.pid: leader for record in records if (leader := _leader(record)) is not None}
    marks = {record.mark for record in records if record.mark}
    members = [member for leader in leaders.values() for member in [leader, *_descendants(leader)]]
    # While its leader runs, a session's or group's number cannot be another's.
    members += [process for process in psutil.process_iter() if _led_by(process, leaders) or is_marked(process, marks)]
    members += [child for process in known for child in _descendants(process)]
    known.update(process for process in members if process.pid != os.getpid())
    return {process for process in known if _running(process)}


def _led_by(process: psutil.Process, leaders: Mapping[int, psutil.Process]) -> bool:
    try:
        return os.getsid(process.pid) in leaders or os.getpgid(process.pid) in leaders
    except OSError:
        return False


def is_marked(process: psutil.Process, marks: set[str]) -> bool:
    """Whether the process, or one that started it, was started with one of the marks, also if its parents are dead."""
    try:
        return process.environ().get(MARK) in marks
    except (psutil.Error, OSError):
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    """Send a signal. psutil checks the creation time again first, so a reused pid is never hit."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        process.send_signal(number)


def _holder(port: int) -> str:
    """Return ` by NAME (pid N)` of the process that listens on the port, or "" if this user may not know."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return ""
