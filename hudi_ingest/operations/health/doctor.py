"""Diagnoses of this machine, the Spark engine and the ledger for `hudi-ingest doctor`. Nothing here changes anything; what it
writes on trial is taken back."""

from __future__ import annotations

import importlib.metadata
import os  # files: the folders of this machine
import platform
import resource
import shutil  # files: free space
import stat
import tempfile  # files: a probe in the home
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path  # files: the home
from pwd import getpwuid

import psutil

from hudi_ingest.home.folder import HOME_VARIABLE, Home, stack_runs
from hudi_ingest.hudi.java_errors import OTHER_TEMPORARY
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.finding import Finding, examined, ok, problem, warning
from hudi_ingest.pipeline.engine import load_engine_settings
from hudi_ingest.spark.driver_jvm import inherited_arguments, require_own_spark, require_usable_account
from hudi_ingest.spark.executors import require_master
from hudi_ingest.spark.jars import cache_root, is_complete, lock_text, parse_lock, set_folder
from hudi_ingest.spark.java import find_java, probe
from hudi_ingest.spark.session import EngineConnection, require_answer

ENGINE = "engine"
LEDGER = "ledger"


LEAST_BYTES, FEW_BYTES, FEW_SHARE = 1 << 30, 5 << 30, 0.1
"""Free disk space below which nothing may start, and below which it is a warning: bytes and share."""
LEAST_INODES = 0.02
LEAST_MEMORY = 0.05
LEAST_FILES = 1024
MOST_SKEW_SECONDS = 5.0
_NO_LIMIT = 1 << 60
"""Version 1 has such a number for none."""
_SHOWN = ("hudi-ingest", "dagster", "pyspark", "confluent-kafka", "pyarrow", "hudi", "sqlalchemy")
_IN_STEP = ("dagster", "dagster-webserver", "dagster-graphql", "dagster-pipes", "dagster-shared")
"""Packages that must all have the same version."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """A file system that holds `folders`; `inodes_free` is a share, 1.0 where the file system has no limit."""

    folders: tuple[str, ...]
    total_bytes: int
    free_bytes: int
    inodes_free: float


def machine_diagnoses(home: Home, tables: Iterable[Path]) -> Iterator[Finding]:
    """Examine the machine. `tables`: folders of the tables that are on its file systems."""
    yield from version_diagnoses(_versions(), platform.python_version())
    yield from examined("account", _account)
    yield from examined("java", _java)
    yield from examined("jars", _jars)
    yield from disk_diagnoses(_disk_usage([home.root, Path(tempfile.gettempdir()), *tables]))
    yield from memory_diagnoses(*_memory())
    yield from noexec_diagnoses(_java_temporary(), os.statvfs(_java_temporary()).f_flag)
    yield from _open_files()
    yield from _home(home)


def version_diagnoses(versions: Mapping[str, str], python: str) -> Iterator[Finding]:
    """Judge installed versions, by package; pure."""
    shown = ", ".join(f"{name} {versions[name]}" for name in _SHOWN if name in versions)
    dagster = {name: versions[name] for name in _IN_STEP if name in versions}
    if len(set(dagster.values())) > 1:
        yield problem(
            "versions",
            f"Dagster's packages have different versions: {', '.join(f'{name} {version}' for name, version in dagster.items())}.",
            "Install the same version of all: pip install "
            + " ".join(f"{name}=={max(dagster.values())}" for name in dagster),
        )
    yield ok("versions", f"Python {python}, {shown}")


def disk_diagnoses(usages: Iterable[DiskUsage]) -> Iterator[Finding]:
    """Judge free space and inodes; pure."""
    for usage in usages:
        where = ", ".join(usage.folders)
        if not usage.total_bytes:
            text = f"The file system of {where} stores nothing: it has no space at all."
            yield problem("disk", text, "Correct the path: table.base_path, HUDI_INGEST_HOME or TMPDIR.")
            continue
        share = usage.free_bytes / usage.total_bytes
        text = f"{_gigabytes(usage.free_bytes)} of {_gigabytes(usage.total_bytes)} free for {where}"
        remedy = (
            "Free some space. `hudi-ingest sweep` lists files in tables that nothing needs, `hudi-ingest housekeeping` removes "
            "old runs and logs."
        )
        if usage.inodes_free < LEAST_INODES:
            yield problem(
                "disk",
                f"Only {usage.inodes_free:.1%} of the inodes are free for {where} (`df -i`); new files fail when there are none.",
                "Delete files there that nothing needs. `hudi-ingest services` merges small files and `hudi-ingest sweep` lists orphans.",
            )
        if usage.free_bytes < LEAST_BYTES:
            yield problem("disk", f"Only {text}; transactions fail when it is full.", remedy)
        elif usage.free_bytes < FEW_BYTES or share < FEW_SHARE:
            yield warning("disk", f"Only {text}.", remedy)
        elif usage.inodes_free >= LEAST_INODES:
            yield ok("disk", text)


def noexec_diagnoses(folder: Path, flags: int) -> Iterator[Finding]:
    """Judge a file system's flags; pure."""
    if flags & os.ST_NOEXEC:
        yield problem(
            "temporary files",
            f"{folder} allows no programs (noexec), and Java unpacks its libraries for zstd, lz4 and snappy there: merging and compaction fail.",
            f"{OTHER_TEMPORARY} or mount it without noexec.",
        )


def memory_diagnoses(available_bytes: int, total_bytes: int) -> Iterator[Finding]:
    """Judge free memory; pure."""
    text = f"{_gigabytes(available_bytes)} of {_gigabytes(total_bytes)} memory available"
    if available_bytes < LEAST_MEMORY * total_bytes:
        remedy = "Stop something, or lower the engine's --memory: the system kills processes when there is none left."
        yield problem("memory", f"Only {text}.", remedy)
    else:
        yield ok("memory", text)


def _memory() -> tuple[int, int]:
    """Free and total bytes of memory for processes like this one: the machine's, or those of its container if they are fewer."""
    machine = psutil.virtual_memory()
    return min([(machine.available, machine.total), *cgroup_memory(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def cgroup_memory(of_process: Path, root: Path) -> Iterator[tuple[int, int]]:
    """Yield free bytes and limit of each control group with a limit that the process is in, of version 1 or 2."""
    try:
        lines = of_process.read_text().splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        base = root / "memory" if controllers else root
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        group = base / path.lstrip("/")
        # Inside a container its own group is the root of what it sees. A limit of any group above it holds, too.
        for folder in {base, *(each for each in (group, *group.parents) if each.is_relative_to(base))}:
            try:
                limit, used = ((folder / name).read_text().strip() for name in names)
                # File pages can be given back.
                stat_lines = dict(each.split(" ", 1) for each in (folder / "memory.stat").read_text().splitlines())
            except OSError:
                continue
            if limit.isdigit() and int(limit) < _NO_LIMIT:
                freed = int(stat_lines.get("inactive_file", stat_lines.get("total_inactive_file", "0")))
                yield max(0, int(limit) - int(used) + freed), int(limit)


def _java_temporary() -> Path:
    """Where Java unpacks libraries, whatever TMPDIR says."""
    return Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())


def _versions() -> dict[str, str]:
    versions = {}
    for name in {*_SHOWN, *_IN_STEP}:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _account() -> Iterator[Finding]:
    require_usable_account()
    yield ok("account", f"user {getpwuid(os.geteuid()).pw_name}, names of files in UTF-8")


def _java() -> Iterator[Finding]:
    require_own_spark()
    if inherited := inherited_arguments():
        yield warning("java", inherited.strip(), "They go to Spark's JVM beside our settings, and win over them.")
    java = find_java()
    facts = probe(java)
    yield ok("java", f"Java {facts.version if facts else 'unknown'} at {java}")


def _jars() -> Iterator[Finding]:
    jars = [jar for jar in parse_lock(lock_text()) if jar.jar_set == "spark"]
    root = cache_root(os.environ)
    if is_complete(set_folder(root, jars), jars):
        yield ok("jars", f"Spark's and Hudi's jars are in {root}")
        return
    megabytes = sum(jar.size_bytes for jar in jars) / 1e6
    yield warning(
        "jars",
        f"Spark's and Hudi's jars are not in {root} yet; the first start of Spark fetches {megabytes:.0f} MB.",
        "If this machine cannot reach Maven Central, copy that folder from one that can, or set HUDI_INGEST_JARS to where they are.",
    )


def _disk_usage(folders: Iterable[Path]) -> list[DiskUsage]:
    by_device: dict[int, list[Path]] = {}
    for folder in folders:
        existing = next((path for path in (folder, *folder.parents) if path.exists()), None)
        if existing is not None:
            seen = by_device.setdefault(existing.stat().st_dev, [])
            if folder not in seen:
                seen.append(folder)
    usages = []
    for same_disk in by_device.values():
        path = next(path for path in (same_disk[0], *same_disk[0].parents) if path.exists())
        space, inodes = shutil.disk_usage(path), os.statvfs(path)
        free = inodes.f_favail / inodes.f_files if inodes.f_files else 1.0
        shown = [str(folder) for folder in same_disk[:3]]
        more = [f"{len(same_disk) - 3} more"] if len(same_disk) > 3 else []
        usages.append(DiskUsage((*shown, *more), space.total, space.free, free))
    return usages


def _open_files() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_FILES:
        text = f"A process of this user may open {soft} files, which many partitions exceed."
        yield warning("limits", text, "Raise `ulimit -n` to 65536 (LimitNOFILE in a systemd unit).")
    else:
        yield ok("limits", f"{'any number of' if soft == resource.RLIM_INFINITY else f'{soft:,}'} open files a process")


def _home(home: Home) -> Iterator[Finding]:
    if not home.root.exists():
        text = f"{home.root} does not exist yet; the first command that needs it makes it."
        yield warning("home", text, f"If you expected an installation there, set {HOME_VARIABLE}.")
        return
    facts = home.root.stat()
    if facts.st_uid != os.geteuid():
        text = f"{home.root} belongs to user {facts.st_uid}, and this is user {os.geteuid()}."
        yield problem("home", text, f"Run hudi-ingest as the user who runs the engine, or set {HOME_VARIABLE}.")
    elif facts.st_mode & 0o077 and not facts.st_mode & stat.S_ISVTX:
        text = f"{home.root} is open to other users ({stat.filemode(facts.st_mode)}); it holds records and access to the engine."
        yield problem("home", text, f"chmod 700 {home.root}")
    elif not os.access(home.root, os.W_OK | os.X_OK):
        yield problem(
            "home", f"This user cannot write to {home.root}.", f"Check its file system, or set {HOME_VARIABLE}."
        )
    else:
        yield ok("home", f"{home.root} is private to this user")
        yield from clock_diagnoses(str(home.root), _skew_seconds(home.root))


def clock_diagnoses(where: str, skew_seconds: float) -> Iterator[Finding]:
    """Judge by how much another clock is ahead of this machine's; pure."""
    if abs(skew_seconds) > MOST_SKEW_SECONDS:
        yield problem(
            "clock",
            f"The clock of {where} is {abs(skew_seconds):,.0f} s {'ahead of' if skew_seconds > 0 else 'behind'} this machine's. "
            "Hudi orders commits by time, and leases end by it.",
            "Let all machines take their time from NTP (`timedatectl` shows whether this one does).",
        )
    else:
        yield ok("clock", f"this machine's clock and that of {where} agree")


def _skew_seconds(folder: Path) -> float:
    """Seconds by which the clock of the folder's file system is ahead; a network file system has its server's clock."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock-") as file:
        before = time.time()
        os.utime(file.fileno())
        modified = os.fstat(file.fileno()).st_mtime
        # File systems round down to their tick of up to 10 ms.
        return modified - before if not before - 0.1 <= modified <= time.time() else 0.0


def _gigabytes(size_bytes: int) -> str:
    unit, shift = ("GiB", 30) if size_bytes >= 1 << 30 else ("MiB", 20)
    return f"{size_bytes / (1 << shift):,.1f} {unit}"


def engine_diagnoses(home: Home) -> Iterator[Finding]:
    """Examine the engine of this home. Raises ConfigError, EnvironmentProblem, EngineLost."""
    settings = load_engine_settings(home)
    require_master(settings.master)
    connection = EngineConnection.read(home.engine_file)
    if connection is not None:
        connection.require_same_python()
        require_answer(connection)
        yield ok(ENGINE, f"serves {settings.master}, pid {connection.pid}, Python {connection.python_version}")
    elif home.kafka.exists() and (home.engine_file.exists() or not stack_runs(home)):
        return  # The home's stack is examined, too, and that says that its engine has ended.
    elif home.engine_file.exists():
        yield problem(
            ENGINE,
            f"{home.engine_file} names an engine that has ended, or that runs in another container.",
            "Start it with `hudi-ingest up` or `hudi-ingest engine`, on the machine and in the container where the ops run.",
        )
    else:
        yield warning(
            ENGINE,
            "No engine runs for this home, so each op starts a Spark driver of its own, which takes some seconds.",
            "Start one with `hudi-ingest engine`, unless this machine is not meant to run ops.",
        )


def existing_ledger(home: Home) -> Ledger | None:
    """Open the home's ledger unless that would create its file. Raises ConfigError, EnvironmentProblem, LedgerUnreachable."""
    file = home.ledger_url.partition("///")[2] if home.ledger_url.startswith("sqlite") else None
    return None if file and not Path(file).exists() else Ledger.open(home.ledger_url)


def ledger_diagnoses(home: Home) -> Iterator[Finding]:
    """Examine the home's ledger. Raises ConfigError, EnvironmentProblem, LedgerUnreachable."""
    ledger = existing_ledger(home)
    if ledger is None:
        yield ok(LEDGER, f"{home.ledger_url} does not exist yet; the first transaction makes it")
        return
    damage = ledger.damage()
    if damage:
        yield problem(
            LEDGER,
            f"{ledger.place} is damaged: {damage}. The tables are not affected.",
            "Stop everything that uses it, move the file away, and restore what the tables know with `hudi-ingest recover PIPELINE` "
            "for each pipeline.",
        )
    else:
        ledger.require_writable()
        yield ok(LEDGER, f"{ledger.place} is open and whole, and may be written to")
    clock = ledger.clock()
    if clock is not None:
        yield from clock_diagnoses("the ledger's server", (clock - datetime.now(timezone.utc)).total_seconds())
