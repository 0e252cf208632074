"""Whatever a file says, the pipelines of the other files are loaded, and `validate` accepts exactly those that Dagster loads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import AssetKey
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import ALERTS_VARIABLE, HOUSEKEEPING_VARIABLE
from hudi_ingest.operations.validation import require_valid
from hudi_ingest.orchestration import code_location
from hudi_ingest.orchestration.code_location import ingest_definitions
from hudi_ingest.orchestration.definitions import build_definitions
from hudi_ingest.pipeline.folder import LoadedFolder, folder_version, load_file_alone, load_folder
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.describe import keys, nested_model
from hudi_ingest.transaction.columns.decoding import format_problems
from hudi_ingest_tests.support.pipeline_files import document


def _places(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for key, info in keys(model).items():
        yield f"{above}{key}"
        if inner := nested_model(info):
            yield from _places(inner, f"{above}{key}__")


EXTREMES: list[Any] = [
    *(0, -1, 1, 59, 10**9, 2**31, 2**63 - 1, 2**63, 10**14, 10**59, 10**4299),
    *(0.5, 1e14, 1e300, -1e300, float("inf"), float("nan"), 5e-324),
    *("0001-01-01", "0999-12-31", "2999-12-31", "9999-12-31", "1969-07-20T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
    *(
        "",
        " ",
        "x",
        "\0",
        "\u2028",
        "ü" * 70,
        "a" * 5000,
        "1:1:1",
        "1e999",
        "0x10",
        "True",
        "/",
        "../..",
        "s3a://",
        "${",
        "{topic}",
    ),
    *("type", "class", "orders_sweep", "orders__begin", "hudi_ingest_overview", "(a+)+b", "team:x", "orders"),
    *(True, None, [], {}, [[]], ["a", "a"], [None], {"a": None}, {"": ""}, [1], {"a": {"b": {"c": 1}}}),
]
OTHER = {"name": "other", "table__base_path": "/data/other", "asset__owners": ["team:a"], "transaction__retries": 1}
PLAIN = yaml.safe_dump(document(**OTHER))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A right file with some settings at extremes, or with some of its text replaced."""
    if draw(st.booleans()):
        changes = draw(st.dictionaries(st.sampled_from([*_places(Pipeline)]), st.sampled_from(EXTREMES), max_size=2))
        changed = document(**OTHER)
        for place, value in changes.items():
            *above, last = place.split("__")
            inner: Any = changed
            for key in above:
                if not isinstance(inner.get(key), dict):
                    inner[key] = {}
                inner = inner[key]
            inner[last] = value
        return yaml.safe_dump(changed).replace("\n...\n", "\n")
    text = PLAIN
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 12)))
        piece = st.sampled_from(
            [*"\n\t :-[]{}&*!|>'\"%@`#?,=<0~", "<<: ", "? ", "- ", "${", "1:1:1", "0x" + "f" * 5000]
        )
        text = text[:start] + draw(piece | st.text(max_size=4)) + text[end:]
    return text


@given(texts())
@example(PLAIN.replace("retries: 1", "retries: 0x" + "f" * 5000))
@example(PLAIN.replace("retries: 1", "retries: " + "1:" * 300 + "1.5"))
@example(PLAIN + "asset: {backfill_from: 0001-01-01}\n")
def test_the_other_file_is_loaded_and_validate_says_what_dagster_does(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "orders.yaml").write_text(yaml.safe_dump(document()))
    path = folder / "wrong.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    loaded = load_folder(folder, {}, check=format_problems)
    claimed = {pipeline.name for pipeline in _alone(path)} & {"orders"} or any(
        "both have the table.base_path" in problem or "is inside the table" in problem
        for file in loaded.broken
        for problem in file.problems
    )
    if claimed:
        return
    definitions, built = code_location.definitions_of(loaded)
    build_definitions(loaded.pipelines, broken=loaded.broken).get_repository_def().get_all_jobs()
    assert definitions.resolve_asset_graph().has(AssetKey(["orders"]))
    names = {pipeline.name for pipeline in built.pipelines}
    assert "orders" in names
    belongs_to_orders = any(
        "of an op of the pipeline orders" in text for file in built.broken for text in file.problems
    )
    assert belongs_to_orders or names == {"orders", *(pipeline.name for pipeline in _alone(path))}


def _alone(path: Path) -> tuple[Pipeline, ...]:
    """What `validate` finds in a file. () if it finds it wrong."""
    try:
        pipelines = load_file_alone(path, {}).pipelines
        for pipeline in pipelines:
            require_valid(pipeline, str(path))
    except ConfigError:
        return ()
    return pipelines


def test_a_pipeline_that_dagster_refuses_is_an_asset_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("orders", "payments"):
        settings = document(name=name, table__base_path=f"/data/{name}", asset__fresh_within_seconds=3600)
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    loaded = load_folder(tmp_path, {})
    beyond = loaded.pipelines[1].asset.model_copy(update={"fresh_within_seconds": 1e300})
    changed = (loaded.pipelines[0], loaded.pipelines[1].model_copy(update={"asset": beyond}))
    definitions, built = code_location.definitions_of(LoadedFolder(changed, paths=loaded.paths))
    assert [pipeline.name for pipeline in built.pipelines] == ["orders"]
    assert [(file.path, file.name) for file in built.broken] == [(tmp_path / "payments.yaml", "payments")]
    assert "Traceback" in caplog.text
    node = definitions.resolve_asset_graph().get(AssetKey(["payments"]))
    assert "payments.yaml is not loaded" in str(node.description)
    assert "OverflowError" in str(node.description)


def test_an_error_of_a_check_breaks_only_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(document()))
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}
    tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": None}
    (tmp_path / "wrong.avsc").write_text(yaml.safe_dump({**schema, "fields": [*schema["fields"], tags]}))
    settings = document(
        name="wrong",
        source__format="avro",
        source__avro={"wire_format": "single_object", "schema_files": ["wrong.avsc"]},
    )
    settings["table"] = {"base_path": "/data/wrong", "schema": "id string"}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(settings))
    graph = ingest_definitions(tmp_path).resolve_asset_graph()
    assert graph.has(AssetKey(["orders"]))
    assert graph.has(AssetKey(["wrong"]))


@pytest.mark.parametrize("place", ["schema_file", "writer"])
def test_a_default_that_does_not_fit_its_type_breaks_no_file(tmp_path: Path, place: str) -> None:
    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(document()))
    fields = [
        {"name": "id", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": None},
    ]
    (tmp_path / "odd.avsc").write_text(json.dumps({"type": "record", "name": "r", "fields": fields}))
    avro = {"wire_format": "datum", "schema_files": ["odd.avsc"]}
    settings = document(name="odd", source__format="avro", source__avro=avro)
    columns = {"schema_file": "odd.avsc"} if place == "schema_file" else {"schema": "id string"}
    settings["table"] = {"base_path": "/data/odd", **columns}
    (tmp_path / "odd.yaml").write_text(yaml.safe_dump(settings))
    definitions, built = code_location.definitions_of(load_folder(tmp_path, {}))
    assert [pipeline.name for pipeline in built.pipelines] == ["odd", "orders"] and not built.broken
    assert definitions.resolve_asset_graph().has(AssetKey(["orders"]))


@pytest.mark.parametrize("text", ["runs: 5\n", "runs: [", "runs: 0x" + "f" * 5000])
def test_wrong_settings_of_the_location_stop_no_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "orders.yaml").write_text(yaml.safe_dump(document()))
    for variable, name in ((HOUSEKEEPING_VARIABLE, "housekeeping"), (ALERTS_VARIABLE, "alerts")):
        (tmp_path / f"{name}.yaml").write_text(text)
        monkeypatch.setenv(variable, str(tmp_path / f"{name}.yaml"))
    loaded = load_folder(pipelines, {})
    repository = build_definitions(loaded.pipelines).get_repository_def()
    assert repository.asset_graph.has(AssetKey(["orders"]))
    assert repository.get_job("hudi_ingest_housekeeping")
    for name, effect in (("housekeeping", "nothing old is deleted"), ("alerts", "no alerts are sent")):
        described = repository.asset_graph.get(AssetKey([f"hudi_ingest_{name}_file"])).description
        assert f"{name}.yaml is not loaded, so {effect}" in str(described)


def test_a_link_to_nothing_hides_no_change(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text("a: 1")
    (tmp_path / ".#orders.yaml").symlink_to("somebody@somewhere.4711")
    (tmp_path / "zz.yaml").symlink_to("/nowhere")
    before = folder_version(tmp_path)
    assert [name for name, *_ in before] == ["orders.yaml"]
    (tmp_path / "third.yaml").write_text("a: 1")
    assert folder_version(tmp_path) != before


@pytest.mark.parametrize(
    "text",
    [
        "name: " + "1:" * 240_000 + "1",
        "name: 0x" + "f" * 400_000,
        "\n".join(f"k{number}: ${{A{number}}}" for number in range(20_000)),
        "\n".join(f"k{number}: x" for number in range(20_000)),
    ],
    ids=["base 60", "hexadecimal", "unset variables", "unknown keys"],
)
def test_a_file_of_nonsense_is_refused_quickly_with_few_problems(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigError) as raised:
        load_file_alone(path, {})
    assert time.process_time() - began < 30, "a few are for YAML itself"
    assert len(raised.value.problems) <= 110
    assert len(str(raised.value)) < 100_000


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"(a|a)*b", r"(?:a?){60}a{60}", r"(.*)*x"])
def test_a_pattern_takes_no_time_however_it_is_written(tmp_path: Path, pattern: str) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(document(source__topics=None, source__topics_pattern=pattern)))
    (pipeline,) = load_file_alone(path, {}).pipelines
    began = time.process_time()
    assert not pipeline.source.reads("a" * 200 + "-")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("pattern", "topic", "is_right"),
    [
        (r"(?!internal\.).*\.orders", "shop.orders", True),
        (r"(?!internal)(a+)+b", "aab", False),
        (r".*(?!x).*.*.*y", "y", False),
        (r"(?!a).{,3}", "bcd", True),
    ],
)
def test_a_pattern_that_only_python_knows_must_be_simple(
    tmp_path: Path, pattern: str, topic: str, is_right: bool
) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(document(source__topics=None, source__topics_pattern=pattern)))
    if is_right:
        assert load_file_alone(path, {}).pipelines[0].source.reads(topic)
        return
    with pytest.raises(ConfigError, match="may take hours to match"):
        load_file_alone(path, {})
