"""Data as others have met it, from `field_cases/`: each case goes through a broker into a table, and two readers find what its
`case.json` says.

`right` says why that is right. Each of the `steps` registers `schemas`, sends `records` (records.jsonl unless it says otherwise, null:
none) and gives a `command`, which is `refused` with a text or not. Then the table has `rows`, and the records at the offsets of
`bad` are dead letters.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTable

from hudi_ingest.local.broker import create_topic
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground
from hudi_ingest_tests.support.registry import canned_registry

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

CASES = Path(__file__).parent.parent / "field_cases"
QUICK = {"avro-alias-registry", "toast-placeholder-in-arrays", "wrapped-records-become-null-rows"}
"""Those that every run tries; the others are for the long one."""


NAMES = [
    pytest.param(folder.name, marks=[] if folder.name in QUICK else [pytest.mark.tier(3)])
    for folder in sorted(CASES.iterdir())
]


@pytest.mark.parametrize("name", NAMES)
def test_a_case_of_the_field(name: str, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CASES / name
    case = json.loads((folder / "case.json").read_text())
    create_topic(ground.bootstrap_servers, ground.name, 1)
    registered: dict[str, object] = {}
    ids: dict[str, int] = {}
    with canned_registry(registered) as (url, _):
        _write_files(ground, folder, url)
        monkeypatch.chdir(ground.home.pipelines)
        for step in case["steps"]:
            _register(step.get("schemas", ()), folder, ground.name, registered, ids)
            if step.get("records", "") is not None:
                _send(ground, folder / step.get("records", "records.jsonl"), ids)
            done = answer(ground.home, step["command"], ground.name)
            refused = step.get("refused")
            if refused is None:
                assert done.returncode == 0, done.stderr
            else:
                assert done.returncode != 0, done.stdout
                assert refused in " ".join(done.stderr.split())
    by_hudi_rs, by_spark = _rows(ground)
    shown = answer(ground.home, "dead-letters", "show", ground.name, "--json", "--limit", "100")
    bad = sorted(letter["offset"] for letter in json.loads(shown.stdout)) if shown.returncode == 0 else []
    assert {"rows": by_hudi_rs, "bad": bad} == {"rows": case.get("rows", []), "bad": case.get("bad", [])}
    assert by_spark == by_hudi_rs


def _write_files(ground: Ground, folder: Path, registry: str) -> None:
    """All of the case's files, where the pipeline file looks for them."""
    values = {
        "NAME": ground.name,
        "TOPIC": ground.name,
        "TABLE": ground.base_path,
        "KAFKA_BOOTSTRAP_SERVERS": ground.bootstrap_servers,
        "REGISTRY_URL": registry,
    }
    ground.home.pipelines.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        content = file.read_bytes()
        if file.name == "pipeline.yaml":
            content = re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], content.decode()).encode()
        (ground.home.pipelines / file.name).write_bytes(content)


def _register(schemas: Any, folder: Path, topic: str, registered: dict[str, object], ids: dict[str, int]) -> None:
    """As a registry that checks nothing, so that it also has schemas that a stricter one refuses."""
    for schema in schemas:
        subject = schema["subject"].replace("TOPIC", topic)
        versions = f"/subjects/{subject}/versions"
        numbers = registered.setdefault(versions, [])
        assert isinstance(numbers, list)
        numbers.append(len(numbers) + 1)
        ids[schema["name"]] = len(ids) + 1
        references = [
            {**reference, "subject": reference["subject"].replace("TOPIC", topic)}
            for reference in schema.get("references", ())
        ]
        text = {
            "schema": (folder / schema["file"]).read_text(),
            "schemaType": schema.get("type", "AVRO"),
            "references": references,
        }
        version = {**text, "subject": subject, "version": numbers[-1], "id": ids[schema["name"]]}
        registered |= {
            f"{versions}/{numbers[-1]}": version,
            f"{versions}/latest": version,
            f"/schemas/ids/{ids[schema['name']]}": text,
        }


def _send(ground: Ground, file: Path, ids: Mapping[str, int]) -> None:
    for line in file.read_text().splitlines():
        record = json.loads(line)
        headers = [(name, None if text is None else base64.b64decode(text)) for name, text in record.get("headers", ())]
        ground.producer.produce(
            ground.name,
            _bytes(record.get("value"), ids),
            _bytes(record.get("key"), ids),
            partition=record.get("partition", 0),
            headers=headers,
            timestamp=record.get("timestamp", 0),
        )
    assert ground.producer.flush(120) == 0


def _bytes(value: Any, ids: Mapping[str, int]) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    body = base64.b64decode(value["b64"]) if "b64" in value else str(value["text"]).encode()
    return b"\0" + ids[value["schema"]].to_bytes(4, "big") + body if "schema" in value else body


def _rows(ground: Ground) -> tuple[list[Any], list[Any]]:
    """The declared columns of all rows, by hudi-rs and by Spark, in JSON's types and in one order."""
    if not Path(ground.base_path, ".hoodie").exists():
        return [], []
    batches = HudiTable(ground.base_path).read()
    by_hudi_rs = pa.Table.from_batches(batches).to_pylist(maps_as_pydicts="strict") if batches else []
    frame = current_session(ground.home).read.format("hudi").load(ground.base_path)
    by_spark = [row.asDict(recursive=True) for row in frame.collect()]
    return _plain_rows(by_hudi_rs), _plain_rows(by_spark)


def _plain_rows(rows: list[dict[str, Any]]) -> list[Any]:
    shown = [{name: _plain(value) for name, value in row.items() if name[0] != "_"} for row in rows]
    return sorted(shown, key=lambda row: json.dumps(row, sort_keys=True))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_plain(member) for member in value]
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, (Decimal, date)):
        return str(value)
    return str(value) if isinstance(value, float) and not float("-inf") < value < float("inf") else value
