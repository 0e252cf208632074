"""`hudi-ingest new`: from a topic to its rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground
from hudi_ingest_tests.support.registry import Registry, basic, door
from hudi_ingest_tests.support.secured_broker import PASSWORD, USER, SecuredBroker
from hudi_ingest_tests.support.serializers import avro_bytes

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ORDER = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}]}
)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    registry = Registry(tmp_path_factory.mktemp("registry"))
    registry.start()
    yield registry
    registry.stop()


def create(ground: Ground, topic: str, **config: str) -> None:
    new = NewTopic(topic, num_partitions=1, replication_factor=1, config=config)
    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
    admin.create_topics([new])[topic].result(60)


def rows_after(
    ground: Ground, topic: str, *options: str, pipeline: str = "", brokers: str = "", at_once: int = 0
) -> list[dict[str, object]]:
    """The rows of the table that the proposed file makes, in transactions of so many records `at_once`, if it is not 0."""
    pipeline = pipeline or topic
    servers = ("--bootstrap-servers", brokers or ground.bootstrap_servers, *options)
    dry = answer(ground.home, "new", topic, *servers, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "sampled records become rows" in dry.stderr
    found = answer(ground.home, "new", topic, *servers)
    assert found.returncode == 0, found.stderr
    assert f"then: hudi-ingest run {pipeline}" in found.stdout or pipeline != topic
    [file] = [path for path in ground.home.pipelines.iterdir() if str(path) in found.stdout]
    assert file.read_text() == dry.stdout, "it was shown, and not written"
    if at_once:
        file.write_text(f"{file.read_text()}transaction: {{max_records: {at_once}}}\n")
    checked = answer(ground.home, "validate", "--online", str(file))
    assert checked.returncode == 0, checked.stderr + file.read_text()
    assert answer(ground.home, "new", topic, *servers).returncode == 1, "the file is there"
    if pipeline != topic:
        assert answer(ground.home, "topics", file.stem, "--refresh").returncode == 0
    done = answer(ground.home, "run", pipeline, "--until-caught-up")
    assert done.returncode == 0, done.stderr
    if at_once:
        assert done.stdout.count("committed ") > 1
    assert "nothing to do" in answer(ground.home, "run", pipeline).stdout, "all is read"
    shown = answer(
        ground.home, "query", pipeline, f"select * exclude (_kafka_timestamp) from {pipeline} order by id", "--json"
    )
    assert shown.returncode == 0, shown.stderr
    return [{name: value for name, value in row.items() if name[0] != "_"} for row in json.loads(shown.stdout)]


def test_a_topic_of_avro_that_is_compacted_becomes_a_keyed_table(
    ground: Ground, registry: Registry, tmp_path: Path
) -> None:
    create(ground, ground.name, **{"cleanup.policy": "compact"})
    for name, n in (("a", 1), ("b", 2), ("a", 3)):
        value = avro_bytes(registry, ground.name, ORDER, {"id": name, "n": n})
        ground.producer.produce(ground.name, value, name.encode())
    ground.producer.produce(ground.name, None, b"b")
    assert ground.producer.flush(120) == 0
    options = ("--schema-registry", registry.url, "--base-path", str(tmp_path / "t"))
    assert rows_after(ground, ground.name, *options) == [{"n": 3, "id": "a"}]


@pytest.mark.tier(1)
def test_s21_a_topic_of_json_becomes_a_table_of_its_records(ground: Ground) -> None:
    create(ground, ground.name)
    rows = [{"id": str(n), "day": f"2026-01-0{n}", "amount": n / 2, "price": f"{n}.50"} for n in range(1, 5)]
    ground.send(0, [json.dumps(row).encode() for row in rows])
    assert rows_after(ground, ground.name, at_once=3) == rows
    assert [*(ground.home.tables / ground.name).rglob("*.parquet")], "where this user may write"


def test_the_topics_of_a_connector_get_one_file(ground: Ground, tmp_path: Path) -> None:
    for table in ("orders", "logins"):
        create(ground, f"{ground.name}.{table}")
    for n in (1, 2, 1):
        event = {"before": None, "after": {"id": n, "n": 7}, "op": "c", "source": {}, "ts_ms": 1}
        ground.producer.produce(f"{ground.name}.orders", json.dumps(event), json.dumps({"id": n}))
        ground.producer.produce(f"{ground.name}.logins", json.dumps(event))
    assert ground.producer.flush(120) == 0
    name = f"{ground.name}_{ground.name}_orders"
    found = rows_after(
        ground, f"{ground.name}.*", "--base-path", str(tmp_path / "{topic}"), "--name", ground.name, pipeline=name
    )
    assert found == [{"id": 1, "n": 7}, {"id": 2, "n": 7}]


def test_logins_at_brokers_and_registry_are_in_the_file_as_they_were_given(
    secured: SecuredBroker,
    secured_ground: Ground,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = secured_ground.name
    for name, n in (("a", 1), ("b", 2)):
        secured_ground.producer.produce(topic, avro_bytes(registry, topic, ORDER, {"id": name, "n": n}))
    assert secured_ground.producer.flush(120) == 0
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    monkeypatch.setenv("SHOP_REGISTRY", "sesame")
    secured_ground.home.pipelines.mkdir()
    shutil.copy(secured.authority.certificate, secured_ground.home.pipelines / "ca.pem")
    security = {
        "protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "username": USER,
        "password": "${SHOP_PASSWORD}",
        "ca_file": "ca.pem",
    }
    login = {"username": "me", "password": "${SHOP_REGISTRY}"}
    given = [f"security.{key}={value}" for key, value in security.items()]
    given += [f"schema_registry.{key}={value}" for key, value in login.items()]
    with door(registry, basic("me", "sesame")) as url:
        options = ["--schema-registry", url, "--base-path", str(tmp_path / "t")]
        options += [word for each in given for word in ("--source", each)]
        brokers = secured.listeners["LOGIN"]
        assert rows_after(secured_ground, topic, *options, brokers=brokers) == [
            {"id": "a", "n": 1},
            {"id": "b", "n": 2},
        ]
        source = yaml.safe_load((secured_ground.home.pipelines / f"{topic}.yaml").read_text())["source"]
        assert (source["security"], source["schema_registry"]) == (security, {"url": url, **login})
        monkeypatch.setenv("SHOP_PASSWORD", "wrong")
        refused = answer(secured_ground.home, "new", topic, "--bootstrap-servers", brokers, *options, "--name", "other")
    assert refused.returncode == 1 and "source.security" in refused.stderr
    assert "Traceback" not in refused.stderr and PASSWORD not in refused.stderr
