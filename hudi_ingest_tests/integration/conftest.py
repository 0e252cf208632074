"""The table that a file's faults strike one after another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hudi_ingest.local.broker import create_topic
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.ground import Ground, fresh_ground
from hudi_ingest_tests.support.struck_table import pipeline_of


@pytest.fixture(scope="module")
def shared(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Its ground, in a home of its own; the topic has two partitions."""
    with fresh_ground(bootstrap_servers, tmp_path_factory.mktemp("shared")) as ground:
        create_topic(bootstrap_servers, ground.name, 2)
        create_topic(bootstrap_servers, f"{ground.name}.dead", 1)
        yield ground


@pytest.fixture(scope="module")
def struck(shared: Ground) -> Pipeline:
    return pipeline_of(shared)
