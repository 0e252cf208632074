"""Folders of pipeline files: all, one by its name, and files that conflict."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import PIPELINES_VARIABLE
from hudi_ingest.pipeline.folder import find_pipeline, load_folder
from hudi_ingest_tests.support.pipeline_files import Write, document, load_pipelines

pytestmark = pytest.mark.fast


def folder_of(write: Write, **files: dict[str, Any] | str) -> Path:
    path = Path()
    for name, content in files.items():
        path = write(
            content if isinstance(content, str) else yaml.safe_dump(content),
            name.replace("_yml", ".yml").replace("_yaml", ".yaml"),
        )
    return path.parent


def test_load_pipelines_in_the_order_of_file_names(write: Write) -> None:
    folder = folder_of(
        write,
        b_yaml=document(name="one", table__base_path="/data/one"),
        a_yml=document(name="two", table__base_path="/data/one2"),
        notes="not: [a pipeline",
    )
    (folder / "folder.yaml").mkdir()
    assert [each.name for each in load_pipelines(folder, {})] == ["two", "one"]


def test_an_empty_folder_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_pipelines(tmp_path, {}) == ()
    unreadable = "cannot be read: No such file or directory"
    with pytest.raises(ConfigError, match=f"{unreadable}; create it, or name another one"):
        load_folder(tmp_path / "none", {})
    monkeypatch.chdir(tmp_path)
    working = re.escape(f"{unreadable} (a relative path starts in the working directory, {tmp_path}); create it")
    with pytest.raises(ConfigError, match=working):
        load_folder(Path("none"), {})
    monkeypatch.setenv(PIPELINES_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(
        ConfigError,
        match=f"{unreadable}; `hudi-ingest new TOPIC` makes it with a pipeline file, or set HUDI_INGEST_PIPELINES to another one",
    ):
        load_folder(tmp_path / "none", {})


def test_all_problems_of_all_files_at_once(write: Write) -> None:
    folder = folder_of(
        write,
        a_yaml=document(name="a b", table__compression="lz4"),
        b_yaml="x: [",
        c_yaml=document(name="same", table__base_path="/data/c"),
        d_yaml=document(name="same", table__base_path="file:///data/c/"),
        e_yaml=document(name="inner", table__base_path="/data/c/inner"),
        h_yaml=document(name="beside", table__base_path="/data/cc"),
    )
    loaded = load_folder(folder, {})
    assert [pipeline.name for pipeline in loaded.pipelines] == ["beside"]
    problems = {file.path.name: file.problems for file in loaded.broken}
    assert problems["a.yaml"][0].startswith("name: not allowed; found 'a b'")
    assert problems["a.yaml"][1].startswith("table.compression: ")
    assert problems["b.yaml"][0].startswith("line ")
    name = "c.yaml and d.yaml: both have the name same; rename one"
    table = "c.yaml and d.yaml: both have the table.base_path /data/c; a table has one pipeline"
    nested = "e.yaml: table.base_path /data/c/inner is inside the table /data/c; choose a folder beside it"
    assert problems["c.yaml"] == (name, table, f"c.yaml and {nested}")
    assert problems["d.yaml"] == (name, table, f"d.yaml and {nested}")
    assert problems["e.yaml"] == (f"c.yaml and {nested}", f"d.yaml and {nested}")


def test_find_by_name_and_by_path(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(
        write,
        a_yaml=document(name="one", table__base_path="/data/one"),
        b_yaml=document(name="two", table__base_path="/data/two"),
    )
    assert find_pipeline(folder, "two", {}).name == "two"
    assert find_pipeline(Path("/nowhere"), str(folder / "a.yaml"), {}).name == "one"
    monkeypatch.chdir(folder)
    assert find_pipeline(Path("/nowhere"), "a.yaml", {}).name == "one"
    assert find_pipeline(Path("/nowhere"), "./b.yaml", {}).name == "two"


def test_find_names_what_is_known(write: Write, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="no pipeline is called 'x'; known: none; `hudi-ingest new TOPIC` writes a pipeline file"
    ):
        find_pipeline(tmp_path, "x", {})
    folder = folder_of(
        write,
        a_yaml=document(name="orders", table__base_path="/data/one"),
        b_yaml=document(name="payments", table__base_path="/data/two"),
        c_yaml="x: [",
    )
    with pytest.raises(ConfigError) as raised:
        find_pipeline(folder, "ordres", {})
    assert raised.value.problems[0] == "no pipeline is called 'ordres'; known: orders, payments; did you mean orders?"
    assert raised.value.problems[1].startswith("c.yaml: line ")


def test_one_bucket_is_reached_in_one_way(write: Write) -> None:
    here, there = {"region": "eu-west-1"}, {"region": "us-east-1"}
    folder = folder_of(
        write,
        a_yaml=document(name="one", table__base_path="s3a://lake/one", table__storage=here),
        b_yaml=document(name="two", table__base_path="s3://lake/two", table__storage=here),
        c_yaml=document(name="three", table__base_path="s3a://lake/three", table__storage=there),
        d_yaml=document(name="four", table__base_path="s3a://pond/four", table__storage=there),
    )
    first, second, third = load_folder(folder, {}).broken
    assert [problem.partition(":")[0] for problem in third.problems] == ["a.yaml and c.yaml", "b.yaml and c.yaml"]
    assert (*first.problems, *second.problems) == third.problems
    assert "bucket lake" in third.problems[0]


def test_find_is_not_stopped_by_other_files(write: Write) -> None:
    folder = folder_of(
        write,
        a_yaml=document(name="one", table__base_path="/data/one"),
        b_yaml=document(name="two", table__base_path="relative"),
        c_yaml=document(name="three", table__base_path="/data/three"),
        d_yaml=document(name="four", table__base_path="/data/three/four"),
    )
    assert find_pipeline(folder, "one", {}).name == "one"
    with pytest.raises(ConfigError, match="not an absolute path") as raised:
        find_pipeline(folder, "two", {})
    assert raised.value.where == str(folder / "b.yaml")
    for name in ("three", "four"):
        with pytest.raises(ConfigError, match=r"c\.yaml and d\.yaml: table\.base_path /data/three/four is inside"):
            find_pipeline(folder, name, {})


def test_a_run_loads_its_own_pipeline_only(write: Write) -> None:
    folder = folder_of(
        write,
        mine_yaml=document(name="mine", table__base_path="/data/mine"),
        other_yaml=document(name="other", table__base_path="/data/other"),
        broken_yaml="x: [",
    )
    loaded = load_folder(folder, {}, only="mine")
    assert [pipeline.name for pipeline in loaded.pipelines] == ["mine"]
    assert loaded.broken == ()


def test_a_run_sees_who_else_claims_its_name(write: Write) -> None:
    folder = folder_of(write, a_yaml=document(name="mine"), b_yaml=document(name="mine", table__base_path="/data/b"))
    loaded = load_folder(folder, {}, only="mine")
    assert loaded.pipelines == ()
    assert [file.path.name for file in loaded.broken] == ["a.yaml", "b.yaml"]


@pytest.mark.parametrize(
    "written",
    [
        "name: mine",
        "name: 'mine'",
        'name: "m\\x69ne"',
        'name: "mi\\\n  ne"',
        "name: >-\n  mine",
        "? name\n: !!str mine",
        "name: m${NE}",
        "name: ${NONE:-mine}",
        "name: &name mine",
    ],
)
def test_a_run_finds_its_pipeline_however_its_name_is_written(write: Write, written: str) -> None:
    others = document()
    del others["name"]
    folder = folder_of(write, a_yaml=f"{written}\n{yaml.safe_dump(others)}")
    loaded = load_folder(folder, {"NE": "ine"}, only="mine")
    assert [pipeline.name for pipeline in loaded.pipelines] == ["mine"], loaded.broken
