"""The way into Spark's driver: from this machine only, and only with the secret."""

from __future__ import annotations

import ast
import ipaddress
import os
import socket
import stat
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError

from hudi_ingest.exceptions import EngineLost
from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.spark.driver_jvm import shorten_settings, use_system_calls
from hudi_ingest.spark.session import EngineConnection, answers, attached_session, current_session, session_options
from hudi_ingest_tests.support.command_line import environment

pytestmark = pytest.mark.spark


def test_a_wrong_secret_is_refused_at_once_and_the_driver_goes_on(spark_home: Home) -> None:
    session = current_session(spark_home)
    gateway: Any = session.sparkContext._gateway
    stranger = EngineConnection.of_this_process(gateway.gateway_parameters.port, "not-the-secret")
    began = time.monotonic()
    with pytest.raises(EngineLost, match="it refused the secret of its connection file") as raised:
        attached_session(stranger)
    assert time.monotonic() - began < 60
    assert "not-the-secret" not in str(raised.value)
    assert gateway.gateway_parameters.auth_token not in str(raised.value)
    assert answers(session)
    assert session.range(3).count() == 3


def test_a_process_that_attaches_looks_for_no_java(spark_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask a Java for its version is to start a JVM: once for each run."""
    gateway: Any = current_session(spark_home).sparkContext._gateway
    monkeypatch.setenv("JAVA_HOME", "/no/java")
    with pytest.raises(EngineLost):
        attached_session(EngineConnection.of_this_process(gateway.gateway_parameters.port, "not-the-secret"))
    assert os.environ["JAVA_HOME"] == "/no/java"


def test_p7_a_session_beside_an_engine_is_known_as_one_of_another_driver(
    spark_home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Here a session older than an engine, whose file names another port and, as that engine's process, this one."""
    session = current_session(spark_home)
    gateway: Any = session.sparkContext._gateway
    own = EngineConnection.of_this_process(gateway.gateway_parameters.port, gateway.gateway_parameters.auth_token)
    other = replace(own, port=own.port + 1)
    home = replace(spark_home, root=tmp_path)
    for engine, warned in ((own, False), (other, True)):
        engine.write(home.engine_file)
        assert engine.serves(session) is not warned
        assert current_session(home) is session
        assert ("has its own Spark driver" in caplog.text) is warned


def test_workers_are_forked_with_the_modules_of_a_write_task(spark_home: Home) -> None:
    modules = current_session(spark_home).sparkContext.parallelize([0], 1).map(lambda number: [*sys.modules])
    assert {"numba", "hudi_ingest.kafka.range_reader", "hudi_ingest.transaction.write.task"} <= {*modules.first()}


_ATTACHED = """
import sys
from pathlib import Path
from py4j.java_gateway import JVMView
from hudi_ingest.spark.session import EngineConnection, attached_session

ask, asked = JVMView.__getattr__, []
JVMView.__getattr__ = lambda view, name: asked.append(name) or ask(view, name)
session = attached_session(EngineConnection.read(Path(sys.argv[1])))
print(session.sparkContext.parallelize([1], 1).mapPartitions(list).collect(), asked)
"""


@pytest.mark.tier(1)
def test_x7_a_process_that_attaches_asks_the_driver_for_no_names(spark_home: Home, tmp_path: Path) -> None:
    """For each it would look for a class in all jars."""
    gateway: Any = current_session(spark_home).sparkContext._gateway
    parameters = gateway.gateway_parameters
    EngineConnection.of_this_process(parameters.port, parameters.auth_token).write(tmp_path / "engine.json")
    command = [sys.executable, "-c", _ATTACHED, str(tmp_path / "engine.json")]
    attached = subprocess.run(command, env=environment(spark_home), capture_output=True, text=True, timeout=120)
    assert attached.stdout == "[1] []\n", attached.stderr


_ENDED = """
import multiprocessing, sys
from pathlib import Path
from hudi_ingest.spark.session import EngineConnection, attached_session

def run():
    jvm = attached_session(EngineConnection.read(Path(sys.argv[1]))).sparkContext._jvm
    kept, dropped = jvm.java.util.Date(), jvm.java.util.Date()
    print(kept._target_id, dropped._target_id, flush=True)
    del dropped

child = multiprocessing.get_context("fork").Process(target=run)
child.start()
child.join()
run()
"""


def test_a_driver_keeps_no_objects_of_processes_that_have_ended(spark_home: Home, tmp_path: Path) -> None:
    gateway: Any = current_session(spark_home).sparkContext._gateway
    parameters = gateway.gateway_parameters
    EngineConnection.of_this_process(parameters.port, parameters.auth_token).write(tmp_path / "engine.json")
    own = gateway.jvm.java.util.Date()
    command = [sys.executable, "-c", _ENDED, str(tmp_path / "engine.json")]
    ended = subprocess.run(command, env=environment(spark_home), capture_output=True, text=True, timeout=120)
    ids = ended.stdout.split()
    assert len(ids) == 4, ended.stderr
    for each in ids:
        with pytest.raises(Py4JError, match="does not exist"):
            JavaObject(each, gateway._gateway_client).toString()
    assert own.toString()


def test_hadoops_settings_lack_the_defaults_of_yarn_unless_it_runs_the_driver(spark_home: Home) -> None:
    context: Any = current_session(spark_home).sparkContext

    def shortened(master: str, **own: str) -> dict[str, str]:
        new = context._jvm.org.apache.hadoop.conf.Configuration()
        for name, value in own.items():
            new.set(f"yarn.{name}", value)
        shorten_settings(context._jvm, SimpleNamespace(hadoopConfiguration=lambda: new, master=lambda: master))
        return dict(new.getPropsWithPrefix("yarn."))

    of_user = {"resourcemanager.hostname": "one"}
    assert shortened("local[2]", **of_user) == {**shortened("local[2]"), **of_user}
    assert "resourcemanager.address" in shortened("yarn").keys() - shortened("local[2]").keys()


def test_a_hadoop_that_cannot_be_given_system_calls_goes_on_without(
    spark_home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    gateway: Any = current_session(spark_home).sparkContext._gateway
    no_configuration = SimpleNamespace(hadoopConfiguration=lambda: gateway.jvm.java.util.Date())
    use_system_calls(gateway.jvm, no_configuration)
    assert "Hadoop starts a process for each file" in caplog.text
    assert "ClassCastException" in caplog.text


def test_hadoop_lists_and_creates_local_files_without_a_process_for_each(spark_home: Home, tmp_path: Path) -> None:
    """By default it runs `ls` for each file that it lists with its blocks, and `chmod` for each that it creates."""
    gateway: Any = current_session(spark_home).sparkContext._gateway
    hadoop = gateway.jvm.org.apache.hadoop
    files = hadoop.fs.FileSystem.getLocal(hadoop.conf.Configuration())
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    before = _faults_of_ended_children(gateway.proc.pid)
    for number in range(3):
        stream = files.create(hadoop.fs.Path(f"{tmp_path}/listed/deeper/{number}"))
        stream.write(number)
        stream.close()
    listed = files.listFiles(hadoop.fs.Path(f"{tmp_path}/listed"), True)
    statuses = {}
    while listed.hasNext():
        status = listed.next()
        statuses[status.getPath().getName()] = status
    assert _faults_of_ended_children(gateway.proc.pid) == before
    assert sorted(statuses) == ["0", "1", "2"]
    for name, status in statuses.items():
        path = tmp_path / "listed" / "deeper" / name
        assert status.getPermission().toString() == stat.filemode(path.stat().st_mode)[1:] == "rw-r--r--"
        assert (status.getOwner(), status.getGroup()) == (path.owner(), path.group())
        assert status.getBlockLocations()[0].getHosts()[0] == "localhost"
    private = hadoop.fs.permission.FsPermission("700")
    files.setPermission(hadoop.fs.Path(f"{tmp_path}/listed/deeper/0"), private)
    assert stat.S_IMODE((tmp_path / "listed" / "deeper" / "0").stat().st_mode) == 0o700
    # chmod(1) leaves the group of a shared folder to the files in it.
    files.setPermission(hadoop.fs.Path(str(shared)), private)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o2700
    sticky = hadoop.fs.permission.FsPermission("1777")
    files.setPermission(hadoop.fs.Path(str(shared)), sticky)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o3777
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a:b").write_text("12345")
    (tmp_path / ".a:b.crc").write_text("")
    found = {each.getPath().getName(): each for each in files.listStatus(hadoop.fs.Path(str(tmp_path)))}
    assert {*found} == {"listed", "shared", "a:b"}, "no checksums, and nothing that leads nowhere"
    assert found["shared"].getPermission().toString() == "rwxrwxrwt"
    assert (found["shared"].isDirectory(), found["a:b"].getLen()) == (True, 5)
    for name, status in found.items():
        path, facts = tmp_path / name, (tmp_path / name).stat()
        assert status.getPath().toString() == f"file:{path}"
        assert status.getModificationTime() == facts.st_mtime_ns // 1_000_000
        assert (status.getOwner(), status.getGroup()) == (path.owner(), path.group())
        assert files.getFileStatus(hadoop.fs.Path(str(path))).getLen() == status.getLen() == facts.st_size
    (tmp_path / "a:b").unlink()
    (tmp_path / "a:b").mkdir()
    (tmp_path / "new").write_text("123")
    shared.rmdir()
    found = {each.getPath().getName(): each for each in files.listStatus(hadoop.fs.Path(str(tmp_path)))}
    assert {*found} == {"listed", "a:b", "new"}, "only the paths are kept from one listing to the next"
    assert (found["a:b"].isDirectory(), found["new"].getLen()) == (True, 3)
    assert found["new"].getPermission().toString() == "rw-r--r--"
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        files.getFileStatus(hadoop.fs.Path(str(tmp_path / "broken")))
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        files.listStatus(hadoop.fs.Path(str(tmp_path / "nowhere")))


def _faults_of_ended_children(pid: int) -> int:
    """Page faults of the process's children that it has waited for: any process has some."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[8])


def test_spark_s_own_port_asks_for_a_secret_that_is_told_nowhere(spark_home: Home) -> None:
    context = current_session(spark_home).sparkContext
    body = b"open, sesame"
    # A request of Spark's network protocol: length of the frame, type, number, length of the body.
    frame = struct.pack(">qbqi", 21 + len(body), 3, 1, len(body)) + body
    with socket.create_connection(("127.0.0.1", int(context.getConf().get("spark.driver.port") or 0)), 60) as asked:
        asked.settimeout(60)
        asked.sendall(frame)
        answer = asked.recv(4096)
    assert b"Expected SaslMessage" in answer
    assert not [name for name, _ in context.getConf().getAll() if name.startswith("spark.authenticate.")]


KEYS = (
    "spark.master",
    "spark.driver.memory",
    "spark.serializer",
    "spark.authenticate",
    "spark.local.dir",
    "spark.hadoop.login",
)
OP_WITHOUT_ENGINE = """
import psutil
from dagster import Definitions, OpExecutionContext, job, op
from hudi_ingest.orchestration.jobs.resources import ingest_resources

@op(required_resource_keys={"hudi_ingest_spark"})
def show(context: OpExecutionContext) -> None:
    context_of_spark = context.resources.hudi_ingest_spark.spark_context
    print(psutil.Process(context_of_spark._gateway.proc.pid).cmdline())
    print({key: context_of_spark.getConf().get(key) for key in %r}, flush=True)

@job
def shown():
    show()

spark = {"master": "local[1]", "driver": {"memory": "512m"}, "hadoop": {"login": "s3cret"}}
resources = ingest_resources({"spark": spark})
Definitions(jobs=[shown], resources=resources).resolve_job_def("shown").execute_in_process()
"""
DRIVER_THAT_ENDS = """
import os, signal
from hudi_ingest.exceptions import EngineLost
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.java_errors import java_errors
from hudi_ingest.spark.session import current_session

session = current_session(Home.from_environment())
jvm, context = session._jvm, session._jsc
java = jvm.java.lang.ProcessHandle.current().pid()

def stopped():
    session.sparkContext._jsc.stop()
    context.sc().defaultParallelism()

def killed_after_it_failed():
    try:
        jvm.java.lang.Integer.parseInt("x")
    except Exception:
        os.kill(java, signal.SIGKILL)
        raise

for end in (stopped, killed_after_it_failed):
    try:
        with java_errors("compact s3a://lake/orders"):
            end()
    except EngineLost as lost:
        print(repr(str(lost)))
"""


@pytest.fixture(scope="module")
def op_without_engine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, list[Any]]:
    """A home, and what a process prints there: an op about the Spark that it starts, and what is said when that is stopped and killed."""
    root = tmp_path_factory.mktemp("op") / "home"
    home = Home(root, root.parent, f"sqlite:///{root / 'ledger.db'}")
    done = subprocess.run(
        [sys.executable, "-c", OP_WITHOUT_ENGINE % (KEYS,) + DRIVER_THAT_ENDS],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return home, [ast.literal_eval(line) for line in done.stdout.splitlines()[-4:]]


def test_an_op_without_engine_starts_spark_with_the_locations_settings_on_top_of_ours(
    op_without_engine: tuple[Home, list[Any]],
) -> None:
    home, (command_line, settings, *_) = op_without_engine
    assert "org.apache.spark.deploy.SparkSubmit" in command_line
    assert "s3cret" not in " ".join(command_line)
    ours = ["local[1]", "512m", "org.apache.spark.serializer.KryoSerializer", "true", str(home.spark), "s3cret"]
    assert settings == dict(zip(KEYS, ours, strict=True))
    assert home.root.stat().st_mode & 0o777 == 0o700


def test_a_driver_that_is_stopped_or_killed_is_lost_and_not_a_table_out_of_reach(
    op_without_engine: tuple[Home, list[Any]],
) -> None:
    _, (*_, stopped, killed) = op_without_engine
    for text in (stopped, killed):
        assert text.startswith("the Spark driver went away while trying to compact s3a://lake/orders: ")
        assert "\n" not in text and len(text) < 500


@pytest.mark.parametrize("master", ["spark://one:7077", "yarn", "k8s://https://one", "local-cluster[2,1,1024]"])
def test_who_may_join_a_cluster_is_the_clusters_to_say(master: str) -> None:
    assert "spark.authenticate" not in session_options([], EngineSettings(master=master, driver_host="one"))


def test_what_spark_shuffles_is_this_users_alone(spark_home: Home) -> None:
    session: Any = current_session(spark_home)
    assert session.range(10).repartition(2).count() == 10
    manager = session.sparkContext._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    (folder,) = manager.localDirsString()
    private = [path for path in Path(folder).parents if path.stat().st_mode & 0o077 == 0]
    assert private, f"{folder} is open to everybody"


def test_nothing_of_spark_listens_to_other_machines(spark_home: Home) -> None:
    gateway: Any = current_session(spark_home).sparkContext._gateway
    driver = psutil.Process(gateway.proc.pid)
    listening = [
        each.laddr
        for process in (driver, *driver.children(recursive=True))
        for each in process.net_connections(kind="inet")
        if each.status == psutil.CONN_LISTEN
    ]
    assert gateway.gateway_parameters.port in {each.port for each in listening}
    assert [each for each in listening if not _is_loopback(each.ip)] == []


def _is_loopback(ip: str) -> bool:
    address = ipaddress.ip_address(ip)
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
