"""The Hadoop settings of a pipeline's bucket."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.model.storage_options import SecretReference, StorageOptions
from hudi_ingest.spark.s3 import bucket_settings, store_jar


def test_a_store_of_ones_own_is_reached_by_its_address_and_path() -> None:
    settings = bucket_settings(StorageOptions(endpoint="http://minio:9000", region="eu-west-1", path_style=True))
    assert settings["endpoint"] == "http://minio:9000"
    assert settings["endpoint.region"] == "eu-west-1"
    assert settings["path.style.access"] == "true"
    assert settings["connection.ssl.enabled"] == "false"


def test_aws_is_reached_by_hadoops_defaults_and_awss_chain() -> None:
    settings = bucket_settings(StorageOptions())
    assert not {"endpoint", "endpoint.region", "connection.ssl.enabled"} & settings.keys()
    assert settings["aws.credentials.provider"] == "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"


def test_settings_hold_references_that_hadoop_does_not_expand_and_no_secret() -> None:
    options = StorageOptions(
        access_key=SecretReference.parse("${STORE_KEY}", Path("/p")),
        secret_key=SecretReference.parse("${file:store.secret}", Path("/p")),
    )
    settings = bucket_settings(options)
    assert settings["hudi-ingest.access.key"] == "env:STORE_KEY"
    assert settings["hudi-ingest.secret.key"] == "file:/p/store.secret"
    assert settings["aws.credentials.provider"] == "HudiIngestCredentials"
    assert not any("${" in value for value in settings.values())


def test_a_profile_is_passed_by_name() -> None:
    settings = bucket_settings(StorageOptions(profile="lake"))
    assert (settings["hudi-ingest.profile"], settings["aws.credentials.provider"]) == ("lake", "HudiIngestCredentials")


def test_every_wait_for_a_store_is_bounded() -> None:
    settings = bucket_settings(StorageOptions())
    assert {key: settings[key] for key in ("attempts.maximum", "retry.limit", "retry.throttle.limit")} == {
        "attempts.maximum": "3",
        "retry.limit": "5",
        "retry.throttle.limit": "6",
    }


def test_a_jar_is_stored_whole_or_what_prevents_it_is_said(tmp_path: Path) -> None:
    jar = tmp_path / "cache" / "credentials.jar"
    store_jar(jar, {"A": b"code"})
    with zipfile.ZipFile(jar) as archive:
        assert archive.read("A.class") == b"code"
    assert [*jar.parent.iterdir()] == [jar]
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match=r"cannot store credentials\.jar in .* set HUDI_INGEST_JARS"):
        store_jar(tmp_path / "file" / "credentials.jar", {})
