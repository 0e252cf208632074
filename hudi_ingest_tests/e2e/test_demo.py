"""The whole path as a new user takes it: broker, engine, Dagster's daemon and sensor, 200,000 records, an outside reader; and a pipeline of
one's own with the package that the wheel installs.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

from hudi_ingest import __version__
from hudi_ingest.home.folder import BOOTSTRAP_VARIABLE, TABLES_VARIABLE, Home
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import accepts_connections, free_port
from hudi_ingest_tests.simulation.trace import judge
from hudi_ingest_tests.support.command_line import COMMAND, environment, hudi_ingest
from hudi_ingest_tests.support.ground import Ground
from hudi_ingest_tests.support.waiting import wait_for
from hudi_ingest_tests.support.wheel import build, install, outside

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.e2e]

PIPELINES = Path(__file__).parent.parent.parent / "pipelines"
README = PIPELINES.parent / "README.md"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `hudi-ingest` of an environment into which the wheel was installed."""
    folder = tmp_path_factory.mktemp("wheel")
    return install(build(folder)[1], folder / "environment")


def test_p1_p2_demo_once_is_exact_leaves_no_process_behind_and_lets_no_other_page_in(tmp_path: Path) -> None:
    home = Home(root=tmp_path, pipelines=PIPELINES, ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}")
    running, ui_port = replace(home, root=tmp_path / "demo-once"), free_port()
    ports = ("--kafka-port", str(free_port()), "--ui-port", str(ui_port))
    demo = subprocess.Popen(
        [*COMMAND, "demo", "--once", "--json", *ports],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: demo.poll() is not None or accepts_connections(ui_port), "the UI is served", 300)
        assert demo.poll() is None, demo.communicate()
        assert status_of_the_page(ui_port, f"localhost:{ui_port}") == 200
        assert status_of_the_page(ui_port, "evil.example") == 403
        assert running.root.stat().st_mode & 0o777 == 0o700
        assert running.stack_file.stat().st_mode & 0o777 == 0o600
        assert "ledger" not in running.stack_file.read_text(), "its URL may hold a password"
        out, told = demo.communicate(timeout=600)
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(300)
    assert demo.returncode == 0, told
    judge(running.transactions_log)
    facts = json.loads(out)
    assert (facts["rows"], facts["lost"], facts["duplicate"], facts["foreign"]) == (200_000, 0, 0, 0)
    assert processes_of(running) == []


@pytest.mark.tier(3)
def test_a_pipeline_of_ones_own_begins_in_an_empty_folder(installed: Path, ground: Ground, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    variables = {BOOTSTRAP_VARIABLE: ground.bootstrap_servers, TABLES_VARIABLE: str(tmp_path / "tables")}

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [installed, *arguments], cwd=folder, env=outside(variables), capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert command("--version").strip() == __version__
    file = re.search(r"```yaml\n(name: payments\n.*?)```", README.read_text(), re.DOTALL)
    record = re.search(r"echo '(.*)' > payment.json", README.read_text())
    assert file is not None and record is not None
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "payments.yaml").write_text(file[1].replace("[payments]", f"[{ground.name}]"))
    create_topic(ground.bootstrap_servers, ground.name, 2)
    ground.send(0, [record[1].encode()])
    assert command("validate", "pipelines/payments.yaml").startswith("pipelines/payments.yaml: ok")
    assert json.loads(command("run", "payments", "--json"))["rows"] == 1
    assert "committed" in command("status")


def status_of_the_page(port: int, host: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/server_info", headers={"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


def processes_of(home: Home) -> list[str]:
    """Command lines of all processes that name the home in them or in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(str(home.root) in word for word in words):
            found.append(" ".join(process.cmdline()))
    return found


def test_a_taken_port_is_said_in_one_sentence(tmp_path: Path) -> None:
    import socket

    home = Home(root=tmp_path, pipelines=PIPELINES, ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        found = hudi_ingest(home, "up", "--kafka-port", port)
    assert found.returncode == 1
    assert f"port {port}" in found.stderr
    assert "--kafka-port" in found.stderr
    assert processes_of(home) == []
