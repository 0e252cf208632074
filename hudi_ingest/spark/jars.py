"""Fetch the pinned jars of Spark and Kafka from Maven Central into a cache folder, with the Ivy bundled in PySpark.

`jars.lock` names every jar, with its sha256 and size; nothing else is ever fetched. To pin other versions, edit `ROOTS` and run
`python -m hudi_ingest.spark.jars --lock`, which resolves them again and rewrites the lock. HUDI_INGEST_JARS_LOCK names another lock.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.resources
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from xml.sax.saxutils import quoteattr

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.spark.java import find_java

IVY_LIMIT_SECONDS = 900.0
IVY_STALL_SECONDS = 120.0
LOCK_LIMIT_SECONDS = 1200.0
REPORT_SECONDS = 5.0
POLL_SECONDS = 0.1
DISK_MARGIN_BYTES = 64_000_000

_MODULE = r"(?P<org>[^#\s:]+)#(?P<module>[^;\s]+);(?P<version>[^:!\s]+)"
_UNRESOLVED = re.compile(rf"^\s*:: {_MODULE}: (?P<reason>.+)$", re.MULTILINE)
_FAILED = re.compile(rf"\[FAILED\s*\] {_MODULE}!\S+?: *(?P<reason>.*)$", re.MULTILINE)
_ACCESS_ERROR = re.compile(r"Server access error at url \S+ \((?P<reason>.+)\)")
_HOST_ERROR = re.compile(r"(?P<reason>Host \S+ not found)")


@dataclass(frozen=True)
class Roots:
    """The modules that a set of jars consists of (`org:module:version`), with or without their dependencies."""

    modules: tuple[str, ...]
    transitive: bool


HUDI_VERSION = "1.2.0"
ROOTS: Mapping[str, Roots] = {
    # PySpark already includes their other dependencies.
    "spark": Roots(
        (
            f"org.apache.hudi:hudi-spark3.5-bundle_2.12:{HUDI_VERSION}",
            # Commits small transactions; the bundle lacks it, but has what it needs.
            f"org.apache.hudi:hudi-java-client:{HUDI_VERSION}",
            "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7",
            "org.apache.spark:spark-avro_2.12:3.5.7",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.12:3.5.7",
            "org.apache.kafka:kafka-clients:3.4.1",
            "org.apache.commons:commons-pool2:2.11.1",
        ),
        transitive=False,
    ),
    # For tables in S3. PySpark's Hadoop has the same version.
    "s3": Roots(
        ("org.apache.hadoop:hadoop-aws:3.3.4", "com.amazonaws:aws-java-sdk-bundle:1.12.262"),
        transitive=False,
    ),
    "kafka": Roots(("org.apache.kafka:kafka_2.13:4.1.1", "org.slf4j:slf4j-simple:1.7.36"), transitive=True),
    # For `make cdc-demo`, which knows PostgreSQL only.
    "connect": Roots(
        (
            "org.apache.kafka:connect-runtime:4.1.1",
            "org.apache.kafka:connect-json:4.1.1",
            "io.debezium:debezium-connector-postgres:3.3.1.Final",
            "org.slf4j:slf4j-simple:1.7.36",
        ),
        transitive=True,
    ),
}


@dataclass(frozen=True)
class Jar:
    """One pinned jar. `jar_set` is a key of ROOTS; `sha256` is 64 lower-case hex digits."""

    jar_set: str
    organisation: str
    module: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def coordinates(self) -> str:
        return f"{self.organisation}:{self.module}:{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.module}-{self.version}.jar"

    @property
    def line(self) -> str:
        """The jar's line in jars.lock."""
        return f"{self.jar_set} {self.coordinates} {self.sha256} {self.size_bytes}"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Parse a lock text with one jar per line, in order; empty lines and lines that begin with # are ignored.

    Raises ValueError with the line number when a line has another format.
    """
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"(\w+) ([^\s:]+):([^\s:]+):([^\s:]+) ([0-9a-f]{64}) (\d+)", line.strip())
        if match is None:
            raise ValueError(f"jars.lock line {number} is not `set org:module:version sha256 size`: {line!r}")
        jar_set, organisation, module, version, sha256, size = match.groups()
        jars.append(Jar(jar_set, organisation, module, version, sha256, int(size)))
    return tuple(jars)


def lock_text() -> str:
    """Read the lock that HUDI_INGEST_JARS_LOCK names, or the one bundled with this package. Raises EnvironmentProblem."""
    own = os.environ.get("HUDI_INGEST_JARS_LOCK")
    if not own:
        return importlib.resources.files("hudi_ingest.spark").joinpath("jars.lock").read_text(encoding="utf-8")
    try:
        text = Path(own).expanduser().read_text(encoding="utf-8")
        if missing := ROOTS.keys() - {jar.jar_set for jar in parse_lock(text)}:
            raise ValueError(f"it has no jars of {', '.join(sorted(missing))}")
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"HUDI_INGEST_JARS_LOCK names {own}, which is no lock of jars ({error}); begin with a copy of jars.lock in the folder of "
            "hudi_ingest.spark, or unset the variable."
        ) from error
    return text


def cache_root(environment: Mapping[str, str]) -> Path:
    """Return the folder of all jar sets; it need not exist. Raises EnvironmentProblem for one that Spark would take for several."""
    if environment.get("HUDI_INGEST_JARS"):
        folder = Path(environment["HUDI_INGEST_JARS"]).expanduser().absolute()
    else:
        cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
        folder = Path(cache).expanduser().absolute() / "hudi-ingest" / "jars"
    if wrong := {*",:"}.intersection(str(folder)):
        raise EnvironmentProblem(
            f"the folder of the jars is {folder}, and Spark separates paths by {' and '.join(sorted(wrong))}. Set HUDI_INGEST_JARS to a "
            "folder without it."
        )
    return folder


def set_folder(root: Path, jars: Sequence[Jar]) -> Path:
    """Return the folder of one set below `root`; its name changes whenever any jar of the set does."""
    digest = hashlib.sha256("\n".join(jar.line for jar in jars).encode()).hexdigest()
    return root / f"{jars[0].jar_set}-{digest[:12]}"


def is_complete(folder: Path, jars: Iterable[Jar]) -> bool:
    """Whether the set was completely fetched and verified, and every jar still exists with its full size."""
    try:
        return (folder / ".complete").is_file() and all(
            (folder / jar.file_name).stat().st_size == jar.size_bytes for jar in jars
        )
    except FileNotFoundError:
        return False


def ivy_xml(modules: Iterable[str], *, transitive: bool) -> str:
    """Write an Ivy module that depends on each `org:module:version`, with their dependencies if `transitive`."""
    target = "default" if transitive else "master"
    flag = "true" if transitive else "false"
    lines = []
    for coordinates in modules:
        organisation, module, version = coordinates.split(":")
        lines.append(
            f"<dependency org={quoteattr(organisation)} name={quoteattr(module)} rev={quoteattr(version)} "
            f'conf="jars->{target}" transitive="{flag}"/>'
        )
    return "\n".join(
        (
            '<ivy-module version="2.0"><info organisation="hudi-ingest" module="jars"/>',
            '<configurations><conf name="jars"/></configurations>',
            "<dependencies>",
            *lines,
            "</dependencies></ivy-module>\n",
        )
    )


def first_failure(log: str) -> tuple[str | None, str]:
    """Return the first artifact that an Ivy log reports as not fetched (`org:module:version` or None) and the reason."""
    failure = _UNRESOLVED.search(log) or _FAILED.search(log)
    network = _ACCESS_ERROR.search(log) or _HOST_ERROR.search(log)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    reason = network["reason"] if network else failure["reason"] if failure else lines[-1] if lines else "no output"
    coordinates = f"{failure['org']}:{failure['module']}:{failure['version']}" if failure else None
    return coordinates, reason.strip()


def advice(reason: str) -> str:
    """Suggest what to check when Ivy gave up for `reason`."""
    if "certification path" in reason:
        return (
            "Java does not trust the server's certificate; if a proxy here uses its own, set a trust store that contains "
            "it with JAVA_TOOL_OPTIONS='-Djavax.net.ssl.trustStore=FILE'"
        )
    return (
        "check that this machine can reach Maven Central; behind a proxy, set "
        "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'"
    )


def progress_text(jars: Sequence[Jar], described: int, sizes: Mapping[Jar, int]) -> str:
    """Format one line of progress. `described`: number of Ivy descriptors read; `sizes`: bytes on disk of each jar begun."""
    done = sum(1 for jar, size in sizes.items() if size >= jar.size_bytes)
    total = sum(jar.size_bytes for jar in jars)
    text = f"fetching {jars[0].jar_set} jars from Maven Central: "
    if not sizes:
        return text + f"read {described} of {len(jars)} module descriptors, then {_megabytes(total)} to fetch"
    return text + f"{done} of {len(jars)} ({_megabytes(sum(sizes.values()))} of {_megabytes(total)})"


def spark_jars(report: Callable[[str], None]) -> tuple[Path, ...]:
    """Return the jars that Spark needs for Hudi, Kafka and Avro, and fetch them into the cache if missing.

    `report` gets a line of progress every few seconds while jars are fetched, and is not called otherwise.
    Raises EnvironmentProblem when they cannot be fetched.
    """
    return cached_jars("spark", report)


def s3_jars(report: Callable[[str], None]) -> tuple[Path, ...]:
    """Return the jars with which Spark and Hudi reach S3; see `spark_jars`."""
    return cached_jars("s3", report)


def kafka_jars(report: Callable[[str], None]) -> tuple[Path, ...]:
    """Return the jars of a Kafka broker; see `spark_jars`."""
    return cached_jars("kafka", report)


def write_lock(path: Path, report: Callable[[str], None]) -> None:
    """Resolve ROOTS from Maven Central with an empty cache and write the result to `path`, jars.lock.

    Raises EnvironmentProblem, and leaves `path` unchanged, when something cannot be fetched.
    """
    jars: list[Jar] = []
    with tempfile.TemporaryDirectory(prefix="hudi-ingest-lock-") as name:
        scratch = Path(name)
        for jar_set, roots in ROOTS.items():
            retrieved = scratch / jar_set

            def measure(retrieved: Path = retrieved) -> str:
                count = sum(1 for _ in (scratch / "ivy").rglob("*.jar"))
                return f"resolving the {retrieved.name} jars: {count} fetched for the lock so far"

            log = path.with_name(f"{path.name}.ivy.log")
            pattern = f"{retrieved}/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
            xml = ivy_xml(roots.modules, transitive=roots.transitive)
            outcome = _run_ivy(xml, pattern, scratch, log, measure, report)
            if outcome is not None:
                _raise_not_fetched(first_failure(_read(log))[0] or roots.modules[0], outcome, scratch, log)
            log.unlink()
            jars.extend(_measured(jar_set, file) for file in retrieved.glob("*/*/*/*.jar"))
    lines = [jar.line for jar in sorted(jars, key=lambda jar: (list(ROOTS).index(jar.jar_set), jar.coordinates))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _measured(jar_set: str, file: Path) -> Jar:
    organisation, module, version = file.parts[-4:-1]
    jar = Jar(jar_set, organisation, module, version, sha256_of(file), file.stat().st_size)
    if jar.file_name != file.name:
        raise ValueError(f"{file.name} of {jar.coordinates} is not named after its module and version")
    return jar


def cached_jars(jar_set: str, report: Callable[[str], None]) -> tuple[Path, ...]:
    """Return the jars of one of ROOTS; see `spark_jars`."""
    jars = tuple(jar for jar in parse_lock(lock_text()) if jar.jar_set == jar_set)
    root = cache_root(os.environ)
    folder = set_folder(root, jars)
    try:
        if not is_complete(folder, jars):
            root.mkdir(parents=True, exist_ok=True)
            with _only_fetcher(root / "fetch.lock", report) as lock:
                if not is_complete(folder, jars):
                    _fetch(root, folder, jars, report, lock)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot store the {jar_set} jars in {root} ({error}); make that folder writable, "
            "or set HUDI_INGEST_JARS to a folder that is."
        ) from error
    return tuple(folder / jar.file_name for jar in jars)


@contextlib.contextmanager
def _only_fetcher(path: Path, report: Callable[[str], None]) -> Iterator[int]:
    """Hold the cache's lock and yield its descriptor. Waits for another process that holds it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        began = reported = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                now = time.monotonic()
                if now - began > LOCK_LIMIT_SECONDS:
                    raise EnvironmentProblem(
                        f"another process has held {path} for {LOCK_LIMIT_SECONDS / 60:.0f} minutes, so the jars could "
                        f"not be fetched into {path.parent}; end that process (`fuser {path}` shows its pid), "
                        "then run this again."
                    ) from None
                if now - reported > REPORT_SECONDS:
                    reported = now
                    report(f"waiting for another process that is fetching jars into {path.parent}")
                time.sleep(POLL_SECONDS)
        yield lock
    finally:
        os.close(lock)


def _fetch(root: Path, folder: Path, jars: Sequence[Jar], report: Callable[[str], None], lock: int) -> None:
    _require_space(root, jars)
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    ivy = root / "ivy"
    log = root / f"ivy-{jars[0].jar_set}.log"

    def measure() -> str:
        sizes = {jar: size for jar in jars if (size := _fetched_bytes(ivy, jar))}
        return progress_text(jars, sum(1 for jar in jars if _description(ivy, jar).exists()), sizes)

    xml = ivy_xml((jar.coordinates for jar in jars), transitive=False)
    outcome = _run_ivy(xml, f"{partial}/[artifact]-[revision].[ext]", root, log, measure, report, lock)
    missing = [jar for jar in jars if not (partial / jar.file_name).is_file()]
    if outcome is not None or missing:
        named = first_failure(_read(log))[0] or next(
            (jar.coordinates for jar in jars if not _fetched_bytes(ivy, jar)), jars[0].coordinates
        )
        _raise_not_fetched(named, outcome or "Ivy did not deliver it", root, log)
    for jar in jars:
        _verify(partial / jar.file_name, jar, ivy)
    (folder / ".complete").unlink(missing_ok=True)
    folder.mkdir(exist_ok=True)
    for jar in jars:
        os.replace(partial / jar.file_name, folder / jar.file_name)
    (folder / ".complete").touch()
    shutil.rmtree(partial, ignore_errors=True)
    # Only holders of the lock use Ivy's cache, and every jar in it is now in place or belongs to an older lock.
    shutil.rmtree(ivy, ignore_errors=True)


def _run_ivy(
    xml: str,
    pattern: str,
    root: Path,
    log: Path,
    measure: Callable[[], str],
    report: Callable[[str], None],
    lock: int | None = None,
) -> str | None:
    """Resolve `xml` and copy the jars to `pattern`, with Ivy's cache in `root`/ivy and its output in `log`.

    Returns None when Ivy reports success, otherwise the reason for the failure.
    """
    java, ivy_jar = find_java(), _ivy_jar()
    module = root / "ivy.xml"
    module.write_text(xml, encoding="utf-8")
    home = root / "ivy"
    command = [str(java), f"-Divy.home={home}", f"-Divy.cache.dir={home}", "-jar", str(ivy_jar)]
    command += ["-ivy", str(module), "-retrieve", pattern, "-types", "jar", "bundle"]
    # The child inherits the lock, so if this process is killed, no other fetcher starts while Ivy still runs.
    inherited = () if lock is None else (lock,)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=root, pass_fds=inherited
        )
    try:
        return _watch_ivy(process, log, measure, report)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        module.unlink(missing_ok=True)


def _watch_ivy(
    process: subprocess.Popen[bytes], log: Path, measure: Callable[[], str], report: Callable[[str], None]
) -> str | None:
    began = progressed = time.monotonic()
    reported = float("-inf")
    seen: tuple[int, str] | None = None
    while (code := process.poll()) is None:
        now = time.monotonic()
        if now - reported >= REPORT_SECONDS:
            text = measure()
            report(text)
            reported = now
            state = (log.stat().st_size, text)
            if state != seen:
                seen, progressed = state, now
        if now - began > IVY_LIMIT_SECONDS:
            return f"it was incomplete after {IVY_LIMIT_SECONDS / 60:.0f} minutes"
        if now - progressed > IVY_STALL_SECONDS:
            return f"no progress for {IVY_STALL_SECONDS:.0f} seconds"
        time.sleep(POLL_SECONDS)
    if code == 0:
        report(measure())
        return None
    return first_failure(_read(log))[1]


def _raise_not_fetched(coordinates: str, reason: str, root: Path, log: Path) -> NoReturn:
    raise EnvironmentProblem(
        f"cannot fetch {coordinates} from Maven Central into {root} ({reason}); {advice(reason)}, then run this "
        f"again (Ivy's output is in {log})."
    )


def _verify(file: Path, jar: Jar, ivy: Path) -> None:
    sha256, size = sha256_of(file), file.stat().st_size
    if (sha256, size) == (jar.sha256, jar.size_bytes):
        return
    file.unlink()
    shutil.rmtree(ivy / jar.organisation / jar.module, ignore_errors=True)
    raise EnvironmentProblem(
        f"{jar.coordinates} from Maven Central is not the pinned file: expected sha256 {jar.sha256} "
        f"and {jar.size_bytes} bytes, found {sha256} and {size} bytes, and {file} was deleted; run this again, and if "
        "it happens again, ask the owner of the proxy or mirror between this machine and Maven Central."
    )


def _require_space(root: Path, jars: Iterable[Jar]) -> None:
    """Require twice the size of the jars, because Ivy's copy and the retrieved one exist side by side."""
    needed = 2 * sum(jar.size_bytes for jar in jars) + DISK_MARGIN_BYTES
    free = shutil.disk_usage(root).free
    if free < needed:
        raise EnvironmentProblem(
            f"the disk of {root} has {_megabytes(free)} free, but fetching the jars needs {_megabytes(needed)}; free "
            "up some space, or set HUDI_INGEST_JARS to a folder on another disk."
        )


def pyspark_jars() -> Path:
    """Return the folder of PySpark's own jars. Raises EnvironmentProblem."""
    package = importlib.util.find_spec("pyspark")
    for folder in (package.submodule_search_locations if package else None) or ():
        return Path(folder, "jars")
    raise EnvironmentProblem(
        f"PySpark was not found for {sys.executable}; run `pip install pyspark==3.5.7` in that environment."
    )


def _ivy_jar() -> Path:
    ivy_jars = sorted(pyspark_jars().glob("ivy-*.jar"))
    if ivy_jars:
        return ivy_jars[-1]
    raise EnvironmentProblem(
        f"PySpark's Ivy jar was not found for {sys.executable}, and without it no jars can be fetched; "
        "run `pip install --force-reinstall pyspark==3.5.7` in that environment."
    )


def _description(ivy: Path, jar: Jar) -> Path:
    return ivy / jar.organisation / jar.module / f"ivy-{jar.version}.xml"


def _fetched_bytes(ivy: Path, jar: Jar) -> int:
    """Return the jar's bytes in Ivy's cache, which names folders by packaging and incomplete files `.part`."""
    for kind in ("jars", "bundles"):
        for suffix in ("", ".part"):
            with contextlib.suppress(FileNotFoundError):
                return (ivy / jar.organisation / jar.module / kind / (jar.file_name + suffix)).stat().st_size
    return 0


def sha256_of(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1_000_000:.0f} MB"


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m hudi_ingest.spark.jars", description=__doc__)
    parser.add_argument("--lock", action="store_true", required=True, help="resolve ROOTS again and rewrite jars.lock")
    parser.parse_args(arguments)
    write_lock(Path(__file__).with_name("jars.lock"), _say)


if __name__ == "__main__":
    _main(sys.argv[1:])
