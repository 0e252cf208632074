"""The engine's file: who may have written it, and who may read it."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import EngineLost, EnvironmentProblem
from hudi_ingest.home.folder import Home
from hudi_ingest.spark import session
from hudi_ingest.spark.session import EngineConnection, has_own_driver
from hudi_ingest_tests.support.clock import set_wall_clock_back


@pytest.fixture
def connection() -> EngineConnection:
    """Of this process, which is alive."""
    return EngineConnection.of_this_process(port=1, secret="s3cret")


def test_what_is_written_is_read_and_is_private_from_the_start(tmp_path: Path, connection: EngineConnection) -> None:
    path = tmp_path / "engine.json"
    kept = os.umask(0)
    try:
        connection.write(path)
    finally:
        os.umask(kept)
    assert path.stat().st_mode & 0o777 == 0o600
    assert EngineConnection.read(path) == connection
    assert "s3cret" not in repr(connection)


@pytest.mark.parametrize(("port", "same"), [(1, True), (2, False)])
def test_p7_whether_a_session_is_of_the_engine_its_gateway_tells(
    connection: EngineConnection, port: int, same: bool
) -> None:
    """Not the engine's file: a session that is older than the engine stays in its own driver."""
    assert connection.serves(session_at(port)) is same


def session_at(port: int) -> Any:
    gateway = SimpleNamespace(gateway_parameters=GatewayParameters(port=port))
    return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))


def test_p7_a_process_with_a_spark_of_its_own_is_known(
    tmp_path: Path, connection: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path, tmp_path, "")
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    assert not has_own_driver(home)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session_at(connection.port))
    assert has_own_driver(home), "the engine has ended"
    connection.write(home.engine_file)
    assert not has_own_driver(home)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session_at(connection.port + 1))
    assert has_own_driver(home)


def test_an_engine_that_hangs_after_a_process_has_attached_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path, tmp_path, "")
    monkeypatch.setattr(session, "_ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        connection = EngineConnection.of_this_process(hangs.getsockname()[1], "s3cret")
        connection.write(home.engine_file)
        monkeypatch.setattr(SparkSession, "_instantiatedSession", session_at(connection.port))
        with pytest.raises(EngineLost, match="did not answer"):
            session.current_session(home)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o666])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, connection: EngineConnection, mode: int) -> None:
    path = tmp_path / "engine.json"
    connection.write(path)
    path.chmod(mode)
    with pytest.raises(EnvironmentProblem, match="is not private: it belongs to user") as raised:
        EngineConnection.read(path)
    assert "s3cret" not in str(raised.value)


def test_another_users_file_is_refused(
    tmp_path: Path, connection: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "engine.json"
    connection.write(path)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(EnvironmentProblem, match=f"belongs to user {owner} .* must belong to this user"):
        EngineConnection.read(path)


def test_no_file_a_torn_file_and_a_dead_engine_are_no_engine(tmp_path: Path, connection: EngineConnection) -> None:
    path = tmp_path / "engine.json"
    assert EngineConnection.read(path) is None
    connection.write(path)
    path.write_text('{"port": 1')
    assert EngineConnection.read(path) is None
    replace(connection, started=connection.started - 1).write(path)
    assert EngineConnection.read(path) is None


def test_p7_an_engine_in_another_container_is_not_taken_for_a_process_here(
    tmp_path: Path, connection: EngineConnection
) -> None:
    """Containers that share a home number their processes alike, and start them at like times."""
    host, boot, namespace = connection.host.split("/")
    for elsewhere in (f"{host}/{boot}/1", f"{host}/0123456789ab/{namespace}", f"other/{boot}/{namespace}"):
        replace(connection, host=elsewhere).write(tmp_path / "engine.json")
        assert EngineConnection.read(tmp_path / "engine.json") is None


def test_a_step_of_the_wall_clock_does_not_make_an_engine_dead(
    tmp_path: Path, connection: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.write(tmp_path / "engine.json")
    set_wall_clock_back(monkeypatch, 1)
    assert EngineConnection.read(tmp_path / "engine.json") == connection
