"""Connect to S3 stores, with credentials resolved in this process; a connection serves all users of the same options and login."""

from __future__ import annotations

import logging
import os  # files: the environment and profiles of this machine
import platform
import threading
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path  # files: certificates and profiles
from typing import Any

import pyarrow.fs as pafs  # files: the tables', on S3

from hudi_ingest.home.folder import Home, file_version, pipeline_environment
from hudi_ingest.hudi.storage.storage import StoreError, store_error
from hudi_ingest.model.storage_options import Credentials, StorageOptions, bucket_and_key, is_s3

CONNECT_SECONDS = 5
REQUEST_SECONDS = 10
TRIES = 4
"""So a store that is down is noticed at once, and one that never answers within a minute."""
_READ_TRIES = 3
"""A try of pyarrow takes twice as long when nothing answers."""
_DEFAULT_REGION = "us-east-1"
_CONNECTIONS = 8
"""Options and logins whose connections a process keeps: refreshed temporary credentials are another login."""
_SHARED_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
_botocore = threading.RLock()
"""botocore's sessions load their parts, and make clients, for one thread at a time."""


def credentials_of(options: StorageOptions) -> Credentials:
    """Resolve the login, in this process's environment and files. Raises StoreError."""
    if options.access_key is not None:
        values = {key: _resolved(key, options) for key, _ in options.secrets}
        return Credentials(values["access_key"], values["secret_key"], values.get("session_token"))
    try:
        with _botocore:
            credentials = _session(options.profile, _versions()).get_credentials()
        frozen = credentials.get_frozen_credentials() if credentials is not None else None
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(
            f"no credentials for {options.endpoint or 'AWS S3'}: {' '.join(str(error).split())[:200]}",
            f"Correct the AWS configuration files of {_process()}, or set table.storage.access_key and secret_key.",
        ) from error
    if frozen is None:
        raise StoreError(
            f"no credentials for {options.endpoint or 'AWS S3'}: there are none in the environment, in a default profile, or "
            "from a role of this machine",
            f"Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of {_process()}, or set "
            "table.storage.access_key and secret_key.",
        )
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token)


def client_of(options: StorageOptions) -> Any:
    """Return botocore's S3 client. Raises StoreError."""
    return _client_with(options, credentials_of(options))


def _client_with(options: StorageOptions, credentials: Credentials) -> Any:
    with _botocore:
        return _client(options, credentials)


def filesystem_of(options: StorageOptions) -> pafs.S3FileSystem:
    """Return pyarrow's file system, for reading Parquet. Raises StoreError."""
    return _filesystem(options, credentials_of(options))


def hudi_rs_options(base_path: str, options: StorageOptions) -> Mapping[str, str]:
    """Return hudi-rs's options for a table: none for a local path. They hold the login. Raises StoreError."""
    if not is_s3(base_path):
        return {}
    credentials = credentials_of(options)
    endpoint = _endpoint(options, credentials)
    if not options.path_style and options.endpoint is not None:
        scheme, _, host = endpoint.partition("://")
        endpoint = f"{scheme}://{bucket_and_key(base_path)[0]}.{host}"
    return {
        "aws_access_key_id": credentials.access_key,
        "aws_secret_access_key": credentials.secret_key,
        **({"aws_session_token": credentials.session_token} if credentials.session_token else {}),
        "aws_region": _region(options),
        "aws_endpoint": endpoint,
        "aws_allow_http": str(endpoint.startswith("http://")).lower(),
        "aws_virtual_hosted_style_request": str(not options.path_style and options.endpoint is not None).lower(),
    }


def iceberg_options(base_path: str, options: StorageOptions) -> Mapping[str, str]:
    """Return pyiceberg's options for the files of a table's metadata: none for a local path. They hold the login. Raises StoreError."""
    if not is_s3(base_path):
        return {}
    credentials = credentials_of(options)
    return {
        "s3.endpoint": _endpoint(options, credentials),
        "s3.region": _region(options),
        "s3.access-key-id": credentials.access_key,
        "s3.secret-access-key": credentials.secret_key,
        **({"s3.session-token": credentials.session_token} if credentials.session_token else {}),
        "s3.force-virtual-addressing": str(not options.path_style).lower(),
        "s3.connect-timeout": str(CONNECT_SECONDS),
        "s3.request-timeout": str(REQUEST_SECONDS),
    }


def _resolved(key: str, options: StorageOptions) -> str:
    reference = dict(options.secrets)[key]
    try:
        try:
            return reference.resolve(os.environ)
        except ValueError:
            # A variable of the running embedded stack.
            return reference.resolve(pipeline_environment(Home.from_environment()))
    except ValueError as error:
        raise StoreError(
            f"table.storage.{key} is {reference}, and {error}",
            f"Set it for {_process()}: in the environment in which the engine (`hudi-ingest up`) or Dagster is started; for a "
            "cluster's executors, as spark.executorEnv.NAME in engine.yaml or as a file on their hosts.",
        ) from None


def _process() -> str:
    return f"process {os.getpid()} on {platform.node()}"


def _endpoint(options: StorageOptions, credentials: Credentials) -> str:
    return options.endpoint or str(_client_with(options, credentials).meta.endpoint_url)


def _region(options: StorageOptions) -> str:
    if options.region is not None:
        return options.region
    # botocore itself only looks at the second.
    of_environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    with _botocore:
        return of_environment or _session(options.profile, _versions()).get_config_variable("region") or _DEFAULT_REGION


def _versions() -> tuple[tuple[int, int, int] | None, ...]:
    """Return the versions of AWS's configuration files, which other programs rewrite to renew temporary credentials. botocore reads them once."""
    return tuple(file_version(Path(os.environ.get(name, place)).expanduser()) for name, place in _SHARED_FILES.items())


@lru_cache(_CONNECTIONS)
def _session(profile: str | None, _files: tuple[tuple[int, int, int] | None, ...]) -> Any:
    # Imported here because it is an extra, and slow.
    try:
        import botocore.session
    except ModuleNotFoundError as error:
        raise StoreError(
            f"{(error.name or 'botocore').partition('.')[0]} is not installed for {_process()}",
            "Run `pip install 'hudi-ingest[s3]'` where the pipeline runs, and in the Python of Spark's executors.",
        ) from None
    # At DEBUG it logs session tokens.
    logger = logging.getLogger("botocore")
    logger.setLevel(max(logging.INFO, logger.getEffectiveLevel()))
    return botocore.session.Session(profile=profile)


@lru_cache(_CONNECTIONS)
def _client(options: StorageOptions, credentials: Credentials) -> Any:
    session = _session(options.profile, _versions())
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=REQUEST_SECONDS,
        retries={"total_max_attempts": TRIES, "mode": "standard"},
        s3={"addressing_style": "path" if options.path_style else "auto" if options.endpoint is None else "virtual"},
        # Endpoints come from the pipeline file alone, for all clients of a table alike.
        ignore_configured_endpoint_urls=True,
        # Other stores than AWS do not know its newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        return session.create_client(
            "s3",
            region_name=_region(options),
            endpoint_url=options.endpoint,
            aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret_key,
            aws_session_token=credentials.session_token,
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        raise store_error(error, options, "") from error


@lru_cache(_CONNECTIONS)
def _filesystem(options: StorageOptions, credentials: Credentials) -> pafs.S3FileSystem:
    scheme, _, host = _endpoint(options, credentials).partition("://")
    return pafs.S3FileSystem(
        access_key=credentials.access_key,
        secret_key=credentials.secret_key,
        session_token=credentials.session_token,
        region=_region(options),
        scheme=scheme,
        endpoint_override=host,
        force_virtual_addressing=not options.path_style,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_READ_TRIES),
    )


def _forget() -> None:
    """Forget the clients in a forked process, which must not use its parent's sockets, nor wait for a lock that a thread of its
    parent holds."""
    global _botocore
    _botocore = threading.RLock()
    _client.cache_clear()
    _filesystem.cache_clear()


os.register_at_fork(after_in_child=_forget)
