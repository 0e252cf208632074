"""What a pipeline file may say about a schema registry and Avro values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hudi_ingest.pipeline.sections.registry import AvroValues, SchemaRegistry

URL = "http://registry:8081"


@pytest.mark.parametrize(
    ("keys", "topic", "subject"),
    [
        ({}, "orders", "orders-value"),
        ({"subject": "record", "record": "shop.Order"}, "orders", "shop.Order"),
        ({"subject": "topic_record", "record": "shop.Order"}, "orders", "orders-shop.Order"),
    ],
)
def test_the_subject_of_a_topic(keys: dict[str, Any], topic: str, subject: str) -> None:
    assert SchemaRegistry(url=URL, **keys).subject_of(topic) == subject


def test_several_addresses_and_files_beside_the_pipeline_file() -> None:
    found = SchemaRegistry.model_validate(
        {"url": "https://a:8081/ , https://b/api", "ca_file": "ca.pem"}, context={"folder": Path("/etc/pipelines")}
    )
    assert (found.url, found.ca_file) == ("https://a:8081,https://b/api", Path("/etc/pipelines/ca.pem"))


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"url": "registry:8081"}, "not a registry's address"),
        ({"url": "http://me:secret@registry"}, "must not contain a login"),
        ({"username": "u"}, "one of them is missing"),
        ({"password": "secret"}, "one of them is missing"),
        ({"username": "u", "password": "secret", "token": "secret"}, "keep one of the two"),
        ({"certificate_file": "c.pem"}, "certificate_file and key_file"),
        ({"subject": "record"}, "needs the full name of the record"),
        ({"record": "shop.Order"}, "not used by subject topic"),
        ({"timeout_seconds": 0}, "greater than 0"),
        ({"timeout_seconds": True}, "not a boolean"),
    ],
)
def test_what_is_wrong_is_named_and_no_secret_shown(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as error:
        SchemaRegistry.model_validate({"url": URL, **keys})
    assert "secret" not in str(error.value).replace("secret_str", "")


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"schema_files": ["a.avsc"]}, "not used by wire_format confluent"),
        ({"wire_format": "datum"}, "needs one"),
        ({"wire_format": "datum", "schema_files": ["a.avsc", "b.avsc"]}, "found 2 files"),
        ({"wire_format": "single_object"}, "found no file"),
    ],
)
def test_schema_files_fit_the_wire_format(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        AvroValues.model_validate(keys)
