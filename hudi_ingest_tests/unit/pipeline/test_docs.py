from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.describe import keys, nested_model, purposes
from hudi_ingest_tests.support import configuration_page

pytestmark = pytest.mark.fast


def _models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for info in keys(model).values():
        below = nested_model(info)
        if below is not None:
            yield from _models(below)


def test_the_page_is_what_the_models_say() -> None:
    assert configuration_page.TARGET.read_text(encoding="utf-8") == configuration_page.render(), (
        "docs/configuration.md is not up to date; run: python -m hudi_ingest_tests.support.configuration_page"
    )


def test_every_setting_is_named_by_a_test() -> None:
    assert not configuration_page.settings_named_by_no_test(), "an option exists only with a test"


def test_every_key_is_on_the_page_with_one_or_two_sentences() -> None:
    page = configuration_page.render()
    for model in (*_models(Pipeline), *_models(EngineSettings)):
        for key, purpose in purposes(model).items():
            assert f"| `{key}` |" in page
            assert purpose, f"{model.__name__}.{key} has no docstring"
            assert purpose.endswith("."), f"{model.__name__}.{key}: {purpose}"


def test_the_page_says_what_is_required_and_what_the_defaults_are() -> None:
    page = configuration_page.render()
    assert re.search(r"\| `base_path` \|.*\| required \|", page)
    assert re.search(r"\| `max_records` \| a whole number of at least 1 \| `5000000` \|", page)
    assert re.search(r"\| `protocol` \| SSL, SASL_SSL or SASL_PLAINTEXT \| required \|", page)
    assert re.search(r"\| `transaction` \|.*\| the defaults of its keys \|", page)


def test_the_example_on_the_page_is_a_pipeline(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", configuration_page.render(), re.DOTALL)
    assert example is not None
    assert set(yaml.safe_load(example[1])) == {"name", "source", "table"}
    path = tmp_path / "example.yaml"
    path.write_text(example[1])
    assert load_pipeline(path, {}).name == "orders"


def test_main_writes_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = tmp_path / "configuration.md"
    monkeypatch.setattr(configuration_page, "TARGET", target)
    configuration_page.main()
    assert target.read_text(encoding="utf-8") == configuration_page.render()
