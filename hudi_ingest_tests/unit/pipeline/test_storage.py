"""`table.storage`: where the store is, and that secrets stay references."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.model.storage_options import Credentials, SecretReference, StorageOptions
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline

pytestmark = pytest.mark.fast

SECRET = "v3ry-s3cret"
LOGIN = {"access_key": "${STORE_KEY}", "secret_key": "${STORE_SECRET}"}
ENVIRONMENT = {"STORE_KEY": "key", "STORE_SECRET": SECRET}


def load(folder: Path, storage: object, environment: dict[str, str] | None = None, **table: Any) -> Pipeline:
    path = folder / "shop.yaml"
    settings = {"base_path": "s3a://lake/shop", "schema": "id string", "storage": storage, **table}
    source = {"bootstrap_servers": "k:9092", "topics": ["shop"]}
    path.write_text(yaml.safe_dump({"name": "shop", "source": source, "table": settings}))
    return load_pipeline(path, ENVIRONMENT if environment is None else environment)


def problems(folder: Path, storage: object, environment: dict[str, str] | None = None, **table: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load(folder, storage, environment, **table)
    assert SECRET not in str(raised.value) + repr(raised.value)
    return list(raised.value.problems)


def test_settings_become_options(tmp_path: Path) -> None:
    storage = {
        "endpoint": "http://127.0.0.1:9000/",
        "region": "eu-central-1",
        **LOGIN,
        "session_token": "${file:token}",
    }
    (tmp_path / "token").write_text("t\n")
    options = load(tmp_path, storage).table.storage_options
    assert options == StorageOptions(
        endpoint="http://127.0.0.1:9000",
        region="eu-central-1",
        path_style=True,
        access_key=SecretReference("${STORE_KEY}"),
        secret_key=SecretReference("${STORE_SECRET}"),
        session_token=SecretReference(f"${{file:{tmp_path}/token}}"),
    )
    assert [reference.resolve(ENVIRONMENT) for _, reference in options.secrets] == ["key", SECRET, "t"]
    assert load(tmp_path, None).table.storage_options == StorageOptions()
    assert load(tmp_path, {"profile": "lake", "path_style": True}).table.storage_options.path_style


def test_no_secret_is_in_a_loaded_pipeline(tmp_path: Path) -> None:
    pipeline = load(tmp_path, LOGIN)
    assert SECRET.encode() not in pickle.dumps(pipeline.table.storage_options) + pickle.dumps(pipeline.table.storage)
    assert SECRET not in repr(pipeline) + pipeline.model_dump_json()


def test_resolved_credentials_are_neither_shown_nor_pickled() -> None:
    credentials = Credentials("key", SECRET, SECRET)
    assert SECRET not in repr(credentials)
    with pytest.raises(TypeError, match="stay in the process"):
        pickle.dumps(credentials)


@pytest.mark.parametrize(
    ("storage", "place", "text"),
    [
        (
            {**LOGIN, "secret_key": SECRET},
            "secret_key",
            "found ****, which is not just a reference; allowed: `${NAME}`",
        ),
        ({**LOGIN, "secret_key": "x${STORE_SECRET}"}, "secret_key", "not just a reference"),
        ({**LOGIN, "secret_key": "${STORE_SECRET:-" + SECRET + "}"}, "secret_key", "not just a reference"),
        (
            {"access_key": "${STORE_KEY}"},
            "secret_key",
            "`access_key` and `secret_key` belong together; add the one that",
        ),
        ({"secret_key": "${STORE_KEY}"}, "secret_key", "belong together"),
        ({"session_token": "${STORE_KEY}"}, "session_token", "which are missing"),
        ({**LOGIN, "profile": "lake"}, "profile", "`access_key` is set too"),
        ({"endpoint": f"http://key:{SECRET}@host:9000"}, "endpoint", "must not contain a login"),
        ({"endpoint": "host:9000"}, "endpoint", "not a store's address"),
        ({"endpoint": "http://host:9000/bucket"}, "endpoint", "without a path"),
        ({"endpoint": "http://host:x"}, "endpoint", "not a store's address"),
        ({"region": "eu central"}, "region", "allowed: a region's name"),
        ({"path_style": 3}, "path_style", "must be true or false"),
        ({"secret": SECRET}, "****", "unknown key"),
    ],
)
def test_problems(tmp_path: Path, storage: dict[str, Any], place: str, text: str) -> None:
    [problem] = problems(tmp_path, storage)
    assert problem.startswith(f"table.storage.{place}: ")
    assert text in problem


def test_a_reference_that_cannot_be_resolved_is_a_problem(tmp_path: Path) -> None:
    found = problems(tmp_path, {**LOGIN, "session_token": "${file:gone}"}, {"STORE_KEY": "key"})
    assert [problem.split(";")[0] for problem in found] == [
        "table.storage.secret_key: environment variable STORE_SECRET is not set",
        f"table.storage.session_token: file {tmp_path}/gone cannot be read: No such file or directory",
    ]


def test_storage_belongs_to_tables_on_s3(tmp_path: Path) -> None:
    assert problems(tmp_path, {}, base_path="/tables/shop") == [
        "table.storage: only for tables on S3, and base_path is /tables/shop; remove it (line 9)"
    ]


def test_a_store_without_conditional_writes_needs_a_lock(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, {"conditional_writes": False})
    assert problem.startswith("table.lock: missing; with storage.conditional_writes: false")
    lock = {"zookeeper": "z:2181"}
    assert not load(tmp_path, {"conditional_writes": False}, lock=lock).table.storage_options.conditional_writes


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "cannot be read: No such file"), (b"", "is empty"), (b"\xff", "is not UTF-8 text")],
)
def test_a_secrets_file_that_gives_no_secret(tmp_path: Path, content: bytes | None, text: str) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ValueError, match=text):
        SecretReference.parse("${file:secret}", tmp_path).resolve({})


def test_an_empty_variable_gives_no_secret() -> None:
    with pytest.raises(ValueError, match="KEY is empty"):
        SecretReference("${KEY}").resolve({"KEY": ""})
