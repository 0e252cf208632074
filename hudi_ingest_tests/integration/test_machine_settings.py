"""P1, P5: the settings of the machine, which a JVM and a Python read from their environment, do not decide whether it works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hudi import HudiTable

from hudi_ingest.home.folder import Home
from hudi_ingest.local.broker import create_topic
from hudi_ingest_tests.support.command_line import environment, hudi_ingest
from hudi_ingest_tests.support.engine import running_engine
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, write_pipeline

_CORE_SITE = """<configuration>
  <property><name>fs.defaultFS</name><value>hdfs://127.0.0.1:1</value></property>
</configuration>
"""


def _send(ground: Ground, first: int) -> None:
    values = [
        json.dumps({"id": str(n), "n": n, "dt": ("Zürich", "東京")[n % 2]}).encode() for n in range(first, first + 6)
    ]
    ground.send(0, values, [str(n) for n in range(first, first + 6)])


def _done(home: Home, *commands: tuple[str, str]) -> None:
    """In one process of their own, which reads the machine's settings as `hudi-ingest` does and imports everything once."""
    code = (
        "import sys; from hudi_ingest import cli\n"
        "for words in sys.argv[1:]:\n"
        "    sys.argv = ['hudi-ingest', *words.split()]\n"
        "    try: cli.main()\n"
        "    except SystemExit as ended:\n"
        "        if ended.code: raise\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(" ".join, commands)],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.tier(3)
@pytest.mark.kafka
@pytest.mark.spark
def test_p1_p5_a_transaction_its_rollback_and_services_work_under_any_locale_and_default_file_system(
    ground: Ground, fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core-site.xml").write_text(_CORE_SITE)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8-which-this-machine-lacks")
    options = (
        f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Duser.language=ar -Duser.country=EG -Dfile.encoding=ISO-8859-1"
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    create_topic(ground.bootstrap_servers, ground.name, 1)
    write_pipeline(ground)
    keyed = f"{ground.name}_keyed"
    keyed_path = f"{ground.base_path}_keyed"
    table = {"base_path": keyed_path, "schema": "id string not null, n long, dt string", "key": ["id"]}
    write_pipeline(ground, keyed, table={**table, "mode": "upsert", "buckets": 1})
    with running_engine(ground.home):
        _send(ground, 0)
        _done(ground.home, ("run", ground.name), ("run", keyed))
        committed = ground.data_files()
        _send(ground, 6)
        fault.arm("slices_written", "raise")
        assert hudi_ingest(ground.home, "run", ground.name).returncode != 0
        assert fault.was_reached("slices_written")
        assert ground.data_files() == committed, "the rollback left no file"
        again = [(command, pipeline) for command in ("run", "services") for pipeline in (ground.name, keyed)]
        _done(ground.home, *again)
    for base_path in (ground.base_path, keyed_path):
        rows = [row for batch in HudiTable(base_path).read() for row in batch.select(["id", "dt"]).to_pylist()]
        assert sorted(int(row["id"]) for row in rows) == [*range(12)]
        folders = {path.name for path in Path(base_path).iterdir() if path.name != ".hoodie"}
        assert folders == {"dt=Zürich", "dt=東京"} or folders == {"Zürich", "東京"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user's id")
def test_a_user_id_without_a_name_is_refused_with_the_remedy() -> None:
    code = "import os; from hudi_ingest.spark.driver_jvm import require_usable_account as r; os.setuid(54321); r()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "EnvironmentProblem: user id 54321 has no name on this machine" in ended.stderr
    assert "/etc/passwd" in ended.stderr


def test_a_python_that_does_not_name_files_in_utf_8_is_refused() -> None:
    code = (
        "import sys; sys.getfilesystemencoding = lambda: 'iso8859-1'; "
        "from hudi_ingest.spark.driver_jvm import require_usable_account as r; r()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "EnvironmentProblem: Python encodes the names of files as iso8859-1" in ended.stderr
