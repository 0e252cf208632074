"""The settings of Kafka Connect and of Debezium's connector."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from hudi_ingest_tests.lab.cdc_stack import ConnectSettings, connect_command, connector_properties, worker_properties

SETTINGS = ConnectSettings(
    home=Path("/h/connect"),
    port=8083,
    bootstrap_servers="127.0.0.1:9092",
    database=sa.make_url("postgresql+psycopg2://reader:se=cret@127.0.0.1:5432/shop"),
    tables=("public.customers", "public.orders"),
    prefix="shop",
    more={"decimal.handling.mode": "string"},
)


def test_only_the_connectors_settings_hold_the_password_and_only_loopback_is_listened_on() -> None:
    assert connector_properties(SETTINGS)["database.password"] == "se=cret"
    assert "se=cret" not in str(SETTINGS)
    worker = worker_properties(SETTINGS)
    assert "se=cret" not in worker.values()
    assert worker["listeners"] == "http://127.0.0.1:8083"
    assert worker["offset.storage.file.filename"] == "/h/connect/offsets"


def test_the_connector_reads_the_tables_alone_and_its_settings_can_be_overridden() -> None:
    connector = connector_properties(SETTINGS)
    assert (connector["database.dbname"], connector["table.include.list"]) == ("shop", "public.customers,public.orders")
    assert connector["decimal.handling.mode"] == "string"
    assert SETTINGS.topics == ("shop.public.customers", "shop.public.orders")


def test_names_are_read_in_utf_8_whatever_the_locale() -> None:
    command = connect_command(Path("/java"), [Path("a.jar")], [Path("worker"), Path("connector")])
    assert command[0] == "/java"
    assert "-Dfile.encoding=UTF-8" in command[: command.index("-cp")]
    assert command[-2:] == ["worker", "connector"]
