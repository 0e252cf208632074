"""Pinned jars: the lock, the cache, and what is said when a fetch goes wrong. A small program plays Ivy's part."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import psutil
import pytest

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.local.processes import wait_until
from hudi_ingest.spark import jars

COORDINATES = ("org.a:one:1.0", "org.b:two_2.13:2.0")

FAKE_JAVA = """#!{python}
import os, pathlib, sys, time
from xml.etree import ElementTree

if "-version" in sys.argv:
    print("    java.home = {folder}")
    print("    java.specification.version = 17")
    sys.exit(0)
with open("{folder}/runs", "a") as runs:
    runs.write(str(os.getpid()) + "\\n")
pattern = sys.argv[sys.argv.index("-retrieve") + 1]
trouble = os.environ.get("FAKE_IVY", "")
if trouble == "slow":
    time.sleep(1)
if trouble == "hang":
    time.sleep(600)
for each in ElementTree.parse(sys.argv[sys.argv.index("-ivy") + 1]).iter("dependency"):
    org, name, rev = each.get("org"), each.get("name"), each.get("rev")
    if trouble == "missing " + name:
        print("\\t\\t:: " + org + "#" + name + ";" + rev + ": not found")
        sys.exit(1)
    path = pattern.replace("[artifact]", name).replace("[revision]", rev).replace("[ext]", "jar")
    path = pathlib.Path(path.replace("[organisation]", org).replace("[module]", name).replace("(-[classifier])", ""))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("other" if trouble == "corrupt " + name else org + ":" + name + ":" + rev)
"""


class Machine(NamedTuple):
    """A cache folder, and a Java whose Ivy delivers files that hold their own coordinates."""

    root: Path
    lock: str
    runs: Callable[[], int]


def locked(coordinates: str) -> jars.Jar:
    organisation, module, version = coordinates.split(":")
    content = coordinates.encode()
    return jars.Jar("kafka", organisation, module, version, hashlib.sha256(content).hexdigest(), len(content))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE_JAVA.format(python=sys.executable, folder=java.parent))
    java.chmod(0o755)
    lock = "".join(locked(each).line + "\n" for each in COORDINATES)
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    monkeypatch.setenv("HUDI_INGEST_JARS", str(tmp_path / "cache"))
    monkeypatch.delenv("FAKE_IVY", raising=False)
    monkeypatch.setattr(jars, "lock_text", lambda: lock)
    runs = java.parent / "runs"
    return Machine(tmp_path / "cache", lock, lambda: len(runs.read_text().splitlines()) if runs.exists() else 0)


def silent(_: str) -> None:
    pass


def test_the_lock_of_the_package_has_each_jar_once_and_every_root() -> None:
    found = jars.parse_lock(jars.lock_text())
    assert Counter(jar.jar_set for jar in found) == {"spark": 7, "s3": 2, "kafka": 46, "connect": 66}
    assert len({(jar.jar_set, jar.file_name) for jar in found}) == len(found)
    for name, roots in jars.ROOTS.items():
        assert set(roots.modules) <= {jar.coordinates for jar in found if jar.jar_set == name}


def test_a_lock_of_ones_own_takes_the_place_of_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = jars.lock_text()
    file = tmp_path / "own.lock"
    file.write_text(bundled.replace(f":{jars.HUDI_VERSION} ", ":9.9.9 "))
    monkeypatch.setenv("HUDI_INGEST_JARS_LOCK", str(file))
    hudi = {jar.version for jar in jars.parse_lock(jars.lock_text()) if jar.organisation == "org.apache.hudi"}
    assert hudi == {"9.9.9"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("spark org.apache.hudi:hudi-java-client:9.9.9", "line 1 is not"),
        ("\n", "it has no jars of connect, kafka, s3, spark"),
    ],
)
def test_a_lock_of_ones_own_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, why: str
) -> None:
    file = tmp_path / "own.lock"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("HUDI_INGEST_JARS_LOCK", str(file))
    with pytest.raises(EnvironmentProblem, match=f"names {file}, which is no lock of jars .*{why}.*unset the variable"):
        jars.lock_text()


def test_a_lock_line_round_trips_and_remarks_are_skipped() -> None:
    text = f"# pinned\n\nspark org.a:one:1.0 {'0' * 64} 12\n"
    (jar,) = jars.parse_lock(text)
    assert (jar.coordinates, jar.file_name, jar.size_bytes) == ("org.a:one:1.0", "one-1.0.jar", 12)
    assert jar.line == text.splitlines()[-1]


@pytest.mark.parametrize("line", ["spark org.a:one 00 1", f"spark a:b:c {'0' * 63} 1", f"spark a:b:c {'0' * 64} -1"])
def test_a_wrong_lock_line_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        jars.parse_lock(f"# first\n{line}\n")


def test_where_the_cache_is() -> None:
    assert jars.cache_root({"HUDI_INGEST_JARS": "/j", "XDG_CACHE_HOME": "/c"}) == Path("/j")
    assert jars.cache_root({"XDG_CACHE_HOME": "/c"}) == Path("/c/hudi-ingest/jars")
    assert jars.cache_root({}) == Path.home() / ".cache" / "hudi-ingest" / "jars"


@pytest.mark.parametrize("folder", ["/j,1", "/j:1"])
def test_a_folder_that_spark_would_take_for_two_is_refused(folder: str) -> None:
    with pytest.raises(
        EnvironmentProblem, match=rf"{folder}, and Spark separates paths by {folder[2]}. Set HUDI_INGEST_JARS"
    ):
        jars.cache_root({"HUDI_INGEST_JARS": folder})


def test_another_lock_has_another_folder() -> None:
    both = tuple(locked(each) for each in COORDINATES)
    folders = {jars.set_folder(Path("/c"), both), jars.set_folder(Path("/c"), both[:1])}
    assert len(folders) == 2
    assert all(len(folder.name) == len("kafka-") + 12 for folder in folders)


def test_ivy_is_told_to_resolve_nothing_but_what_is_listed() -> None:
    dependencies = list(ElementTree.fromstring(jars.ivy_xml(COORDINATES, transitive=False)).iter("dependency"))
    assert [(each.get("org"), each.get("name"), each.get("rev")) for each in dependencies] == [
        tuple(each.split(":")) for each in COORDINATES
    ]
    assert {each.get("transitive") for each in dependencies} == {"false"}


def test_the_first_failure_in_what_ivy_says() -> None:
    missing = (
        "\t\tmodule not found: org.a#one;1.0\n\n\t\t:: org.a#one;1.0: not found\n\n\t\t:: org.b#two;2: not found\n"
    )
    assert jars.first_failure(missing) == ("org.a:one:1.0", "not found")
    refused = f"{missing}\tServer access error at url https://x/y.pom (java.net.ConnectException: Connection refused)\n"
    assert jars.first_failure(refused) == ("org.a:one:1.0", "java.net.ConnectException: Connection refused")
    damaged = "\t[FAILED     ] org.a#one;1.0!one.jar: invalid sha1: expected=1 computed=2 (5ms)\n"
    assert jars.first_failure(damaged) == ("org.a:one:1.0", "invalid sha1: expected=1 computed=2 (5ms)")
    assert jars.first_failure("Error: Could not create the JVM\n") == (None, "Error: Could not create the JVM")
    assert jars.first_failure("") == (None, "no output")


def test_the_advice_fits_the_reason() -> None:
    assert "-Djavax.net.ssl.trustStore" in jars.advice("SSLHandshakeException: unable to find valid certification path")
    assert "-Dhttps.proxyHost" in jars.advice("java.net.ConnectException: Connection refused")


def test_progress_counts_descriptions_first_and_then_jars() -> None:
    one, two = jars.Jar("kafka", "a", "a", "1", "", 3_000_000), jars.Jar("kafka", "b", "b", "1", "", 5_000_000)
    start = "fetching kafka jars from Maven Central: "
    assert jars.progress_text((one, two), 1, {}) == f"{start}read 1 of 2 module descriptors, then 8 MB to fetch"
    assert jars.progress_text((one, two), 2, {one: 3_000_000, two: 2_000_000}) == f"{start}1 of 2 (5 MB of 8 MB)"


def test_a_set_is_fetched_once(machine: Machine) -> None:
    said: list[str] = []
    found = jars.kafka_jars(said.append)
    assert [path.read_text() for path in found] == list(COORDINATES)
    assert all(line.startswith("fetching kafka jars from Maven Central: ") for line in said) and said
    assert sorted(path.name for path in machine.root.iterdir() if path.is_dir()) == [found[0].parent.name]

    said.clear()
    assert jars.kafka_jars(said.append) == found
    assert (machine.runs(), said) == (1, [])


def test_a_set_that_lost_a_jar_is_fetched_again(machine: Machine) -> None:
    first, second = jars.kafka_jars(silent)
    first.unlink()
    assert jars.kafka_jars(silent) == (first, second)
    second.write_text("short")
    assert jars.kafka_jars(silent)[1].read_text() == COORDINATES[1]
    assert machine.runs() == 3


def test_a_set_without_its_last_file_is_not_complete(machine: Machine) -> None:
    (jars.kafka_jars(silent)[0].parent / ".complete").unlink()
    jars.kafka_jars(silent)
    assert machine.runs() == 2


def test_two_fetchers_at_once_fetch_once(machine: Machine) -> None:
    program = (
        "import sys\nfrom hudi_ingest.spark import jars\n"
        f"jars.lock_text = lambda: {machine.lock!r}\n"
        "for path in jars.kafka_jars(lambda line: None): assert path.read_text()\n"
    )
    environment = {**os.environ, "FAKE_IVY": "slow", "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [each.wait(300) for each in both] == [0, 0]
    assert machine.runs() == 1


def test_waiting_for_another_fetcher_has_an_end(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "LOCK_LIMIT_SECONDS", 0.3)
    monkeypatch.setattr(jars, "REPORT_SECONDS", 0.1)
    machine.root.mkdir()
    said: list[str] = []
    with jars._only_fetcher(machine.root / "fetch.lock", silent), pytest.raises(EnvironmentProblem, match="has held"):
        jars.kafka_jars(said.append)
    assert "waiting for another process" in said[0]


def test_another_file_than_the_pinned_one_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_IVY", "corrupt one")
    with pytest.raises(EnvironmentProblem) as caught:
        jars.kafka_jars(silent)
    message = str(caught.value)
    assert "org.a:one:1.0" in message
    assert locked("org.a:one:1.0").sha256 in message
    assert hashlib.sha256(b"other").hexdigest() in message
    assert not list(machine.root.rglob("one-1.0.jar"))
    monkeypatch.delenv("FAKE_IVY")
    assert len(jars.kafka_jars(silent)) == 2


def test_an_artifact_that_is_not_there_is_named_and_the_log_kept(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_IVY", "missing two_2.13")
    with pytest.raises(EnvironmentProblem) as caught:
        jars.kafka_jars(silent)
    message = str(caught.value)
    log = machine.root / "ivy-kafka.log"
    assert "cannot fetch org.b:two_2.13:2.0" in message and "(not found)" in message
    assert "JAVA_TOOL_OPTIONS" in message and str(log) in message
    assert "org.b#two_2.13" in log.read_text()


@pytest.mark.parametrize("limit", ["IVY_STALL_SECONDS", "IVY_LIMIT_SECONDS"])
def test_an_ivy_that_hangs_is_ended(machine: Machine, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setenv("FAKE_IVY", "hang")
    monkeypatch.setattr(jars, "REPORT_SECONDS", 0.05)
    monkeypatch.setattr(jars, limit, 0.5)
    with pytest.raises(EnvironmentProblem, match=r"cannot fetch org\.a:one:1\.0"):
        jars.kafka_jars(silent)


def test_ivy_is_ended_with_its_caller(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_IVY", "hang")
    monkeypatch.setattr(jars, "REPORT_SECONDS", 0.05)

    def interrupt(_: str) -> None:
        if machine.runs():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jars.kafka_jars(interrupt)
    pid = int((Path(os.environ["JAVA_HOME"]) / "bin" / "runs").read_text())
    assert not psutil.pid_exists(pid)


def test_an_ivy_that_outlives_its_caller_keeps_others_out(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "from hudi_ingest.spark import jars\n"
        f"jars.lock_text = lambda: {machine.lock!r}\n"
        "jars.kafka_jars(lambda line: None)\n"
    )
    environment = {**os.environ, "FAKE_IVY": "hang", "PYTHONPATH": os.pathsep.join(sys.path)}
    caller = subprocess.Popen([sys.executable, "-c", program], env=environment)
    wait_until(machine.runs, what="Ivy runs", timeout_seconds=120)
    ivy = psutil.Process(int((Path(os.environ["JAVA_HOME"]) / "bin" / "runs").read_text()))
    caller.kill()
    caller.wait()
    monkeypatch.setattr(jars, "LOCK_LIMIT_SECONDS", 0.3)
    with pytest.raises(EnvironmentProblem, match="has held"):
        jars.kafka_jars(silent)
    ivy.kill()
    monkeypatch.setattr(jars, "LOCK_LIMIT_SECONDS", 30)
    assert len(jars.kafka_jars(silent)) == 2


def test_a_full_disk_is_told_before_anything_is_fetched(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100_000_000, 90_000_000, 10_000_000))
    with pytest.raises(EnvironmentProblem, match="has 10 MB free, but fetching the jars needs 64 MB"):
        jars.kafka_jars(silent)
    assert machine.runs() == 0


def test_a_cache_that_cannot_be_made_is_told(machine: Machine) -> None:
    machine.root.write_text("a file where the folder should be")
    with pytest.raises(EnvironmentProblem, match="set HUDI_INGEST_JARS"):
        jars.kafka_jars(silent)


def test_the_lock_is_written_from_what_was_resolved(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "ROOTS", {"kafka": jars.Roots(COORDINATES[::-1], transitive=True)})
    jars.write_lock(tmp_path / "jars.lock", silent)
    assert (tmp_path / "jars.lock").read_text() == machine.lock
