"""Installs a wheel with all it needs into empty environments, by pip and by `uv tool install`, and uses it there as a newcomer does, from
an empty folder: `python -m hudi_ingest_tests.wheel_check WHEEL [UV]`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hudi_ingest.local.processes import free_port
from hudi_ingest_tests.support.wheel import REPOSITORY, outside

_EXTRAS = "all,java"
_TOPIC = """
import sys
from confluent_kafka import Producer
from hudi_ingest.local.broker import create_topic
create_topic(sys.argv[1], "payments", partitions=4)
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("payments", sys.argv[2])
producer.flush()
"""


def by_pip(wheel: Path, folder: Path) -> Path:
    """Return the folder with the commands of a new virtual environment."""
    run([sys.executable, "-m", "venv", str(folder / "pip")], folder)
    run([str(folder / "pip" / "bin" / "pip"), "install", "--quiet", f"{wheel}[{_EXTRAS}]"], folder)
    return folder / "pip" / "bin"


def by_uv(wheel: Path, folder: Path, uv: Path) -> Path:
    """Return the folder with the commands of the tool's environment."""
    places = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "commands")}
    run([str(uv), "tool", "install", "--quiet", "--python", sys.executable, f"{wheel}[{_EXTRAS}]"], folder, **places)
    assert (folder / "commands" / "hudi-ingest").exists()
    return folder / "tools" / "hudi-ingest" / "bin"


def use(commands: Path, folder: Path) -> None:
    """Take the README's way: the demo, then a pipeline of one's own. Raises AssertionError."""
    folder.mkdir()
    command, kafka_port, ui_port = str(commands / "hudi-ingest"), free_port(), str(free_port())
    ports = ["--kafka-port", str(kafka_port), "--ui-port", ui_port]
    demo = json.loads(run([command, "demo", "--once", "--json", *ports], folder))
    assert (demo["rows"], demo["lost"], demo["duplicate"], demo["foreign"]) == (200_000, 0, 0, 0), demo
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    file = re.search(r"```yaml\n(name: payments\n.*?)```", readme, re.DOTALL)
    record = re.search(r"echo '(.*)' > payment.json", readme)
    assert file is not None and record is not None
    (folder / "pipelines" / "payments.yaml").write_text(file[1], encoding="utf-8")
    run([command, "up", *ports], folder)
    try:
        run([str(commands / "python"), "-c", _TOPIC, f"127.0.0.1:{kafka_port}", record[1]], folder)
        run([command, "validate", "--online", "pipelines/payments.yaml"], folder)
        receipt = json.loads(run([command, "run", "payments", "--json"], folder))
        assert receipt["rows"] == 1, receipt
    finally:
        run([command, "down"], folder)


def run(command: list[str], folder: Path, **more: str) -> str:
    """Run a command outside the repository and return its output. Raises AssertionError with what it printed if it fails."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=outside(more), capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    sys.stderr.write(f"· {time.monotonic() - began:.0f} s: {Path(command[0]).name} {' '.join(command[1:])[:100]!r}\n")
    return done.stdout


def main() -> None:
    wheel = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        use(by_pip(wheel, folder), folder / "used-by-pip")
        if sys.argv[2:]:
            use(by_uv(wheel, folder, Path(sys.argv[2]).resolve()), folder / "used-by-uv")
    sys.stdout.write(f"{wheel.name} works by itself\n")


if __name__ == "__main__":
    main()
