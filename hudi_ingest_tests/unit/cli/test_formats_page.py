"""docs/formats.md: its pipeline files pass `hudi-ingest validate`, and its converters and records do what it says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

from hudi_ingest.cli import app as cli
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.records.convert.protobuf.schema import compile_protos
from hudi_ingest.records.convert.values import beside, decode_keys
from hudi_ingest.transaction.columns.decoding import converter_of, key_converter_of

PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "formats.md"
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
PIPELINE = re.compile(r"```yaml\n(.*?)```", re.DOTALL)

EXAMPLES = {
    first: record.encode()
    for record, first in re.findall(r'`(\{"(before|schema)":.*\})` becomes', PAGE.read_text("utf-8"))
}
"""The records of envelopes, by their first field."""


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """The page's pipeline files by their pipelines' names, with the files that they name beside them."""
    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2")
    monkeypatch.setenv("HUDI_INGEST_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(tmp_path))
    page = PAGE.read_text(encoding="utf-8")
    for name, text in FILE.findall(page):
        (tmp_path / name).write_text(text, encoding="utf-8")
        if name.endswith(".proto"):
            (tmp_path / name).with_suffix(".pb").write_bytes(compile_protos(name, {name: text}))
    found = {}
    for text in PIPELINE.findall(page):
        path = tmp_path / f"{yaml.safe_load(text)['name']}.yaml"
        path.write_text(text, encoding="utf-8")
        found[path.stem] = path
    yield found
    sys.modules.pop("hexes", None)


def test_every_pipeline_file_is_right(pipelines: dict[str, Path]) -> None:
    formats = {str(yaml.safe_load(path.read_text())["source"]["format"]) for path in pipelines.values()}
    assert formats == {"json", "json_schema", "avro", "protobuf", "csv", "string", "bytes", "hexes:Hex"}
    found = CliRunner().invoke(cli.app, ["validate", *map(str, pipelines.values())])
    assert found.exit_code == 0, found.output
    assert found.output.count(": ok") == len(pipelines) == 15


@pytest.mark.parametrize(
    ("name", "value", "row"),
    [
        ("orders_json", b'{"id":"o-1","price":12.50,"lines":[{"sku":"k7","count":2}]}', "o-1"),
        ("orders_datum", bytes.fromhex("066f2d31d81300"), "o-1"),
        ("orders_protobuf", bytes.fromhex("0a036f2d3110ec09"), "o-1"),
        ("chairs_csv", b'7,"Chair, red",x,49.90', 7),
        ("log_lines", "grüß".encode(), "grüß"),
        ("payloads", b"\xff", b"\xff"),
        ("payloads_in_hex", b"\x00\xff", "00ff"),
        ("customers_cdc", EXAMPLES["before"], 7),
        ("readings", EXAMPLES["schema"], "s1"),
    ],
)
def test_the_records_become_the_rows(pipelines: dict[str, Path], name: str, value: bytes, row: object) -> None:
    found = converter_of(load_pipeline(pipelines[name])).decode(pa.array([value], pa.binary()))
    assert not found.rejected
    (first, *_) = found.rows.to_pylist()[0].values()
    assert first == row
    cents = found.rows.to_pylist()[0].get("cents")
    assert cents in (None, 1260)


def test_a_key_becomes_columns(pipelines: dict[str, Path]) -> None:
    pipeline = load_pipeline(pipelines["orders_with_keys"])
    converter, key = key_converter_of(pipeline), pipeline.source.key
    assert converter is not None and key is not None
    values = converter_of(pipeline).decode(pa.array([b'{"id":"o-1","cents":1260}'], pa.binary()))
    keys = decode_keys(converter, key.columns, pa.array([b'{"customer":7,"region":"eu"}'], pa.binary()))
    rows = beside(values, keys, 1).rows
    assert rows.schema.equals(pipeline.chain.record)
    assert rows.to_pylist() == [{"id": "o-1", "cents": 1260, "customer": 7, "region": "eu"}]


def test_what_does_not_fit_is_told_by_validate(pipelines: dict[str, Path]) -> None:
    path = pipelines["orders_protobuf"]
    path.write_text(path.read_text().replace("note string", "nota string"))
    path.with_name("shop2.yaml").write_text(
        path.read_text().replace("shop.pb", "shopp.pb").replace("orders_p", "more_p")
    )
    found = CliRunner().invoke(cli.app, ["validate", str(path), str(path.with_name("shop2.yaml"))])
    assert found.exit_code == 1
    told = " ".join(found.output.split())
    assert "source.format protobuf: message shop.Order has no field for the column nota; did you mean note?" in told
    assert "shopp.pb cannot be read: No such file or directory" in told
