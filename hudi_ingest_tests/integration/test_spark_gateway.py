"""The way into Spark's driver: from this machine only, and only with the secret."""

from __future__ import annotations

import ipaddress
import os
import time
from typing import Any

import psutil
import pytest

from hudi_ingest.exceptions import EngineLost
from hudi_ingest.home import Home
from hudi_ingest.spark import EngineConnection, answers, attached_session, current_session

pytestmark = pytest.mark.spark


def test_a_wrong_secret_is_refused_at_once_and_the_driver_goes_on(spark_home: Home) -> None:
    session = current_session(spark_home)
    gateway: Any = session.sparkContext._gateway
    me = psutil.Process()
    stranger = EngineConnection(gateway.gateway_parameters.port, "not-the-secret", os.getpid(), me.create_time())
    began = time.monotonic()
    with pytest.raises(EngineLost, match="it refused the secret of its connection file") as raised:
        attached_session(stranger)
    assert time.monotonic() - began < 10
    assert "not-the-secret" not in str(raised.value)
    assert gateway.gateway_parameters.auth_token not in str(raised.value)
    assert answers(session)
    assert session.range(3).count() == 3


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
