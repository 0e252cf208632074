"""Where a table is and how it is reached: `table.base_path`, `table.storage` and `table.lock` of a pipeline file."""

from __future__ import annotations

import posixpath
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, ValidationInfo, field_validator

from hudi_ingest.exceptions.problems import quoted
from hudi_ingest.model.storage_options import S3_SCHEME, SecretReference, StorageOptions, is_s3
from hudi_ingest.pipeline.settings.model import Model, broker_addresses


def _reference(value: object, info: ValidationInfo) -> object:
    if value is None or isinstance(value, SecretReference):
        return value
    folder = (info.context or {}).get("folder", Path())
    try:
        return SecretReference.parse(str(value), folder)
    except ValueError:
        raise ValueError(
            "found ****, which is not just a reference; allowed: `${NAME}` or `${file:PATH}` alone, because Spark's workers "
            "get only the reference and read the secret themselves"
        ) from None


Secret = Annotated[
    SecretReference | None,
    BeforeValidator(_reference),
    Field(json_schema_extra={"allowed": "`${NAME}` or `${file:PATH}`"}),
]


class Storage(Model):
    """How to reach the S3 store of an `s3a://` table. Without credentials here, every process uses AWS's default chain:
    environment variables, the default profile, the role of its machine; see docs/object-stores.md."""

    endpoint: str | None = Field(default=None, json_schema_extra={"allowed": "http://host:port or https://…"})
    """The store's address; without it, AWS in `region`."""

    region: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")] | None = Field(
        default=None, json_schema_extra={"allowed": "a region's name, like eu-central-1"}
    )
    """The bucket's region. Without it, AWS_REGION, AWS_DEFAULT_REGION or the profile's, else us-east-1."""

    path_style: bool | None = Field(default=None, json_schema_extra={"default": "true with endpoint, else false"})
    """Whether requests name the bucket in their path and not in the host's name."""

    access_key: Secret = None
    """The access key's id."""

    secret_key: Secret = Field(default=None, validate_default=True)
    """The access key's secret. Required with `access_key`, refused without."""

    session_token: Secret = Field(default=None, validate_default=True)
    """The token of temporary credentials; refused without `access_key`."""

    profile: Annotated[str, StringConstraints(min_length=1)] | None = Field(default=None, validate_default=True)
    """A profile of the AWS configuration files, which must be on Spark's workers too; refused with `access_key`."""

    conditional_writes: bool = True
    """Whether the store honours `If-Match` and `If-None-Match` when an object is written, which keeps a stale coordinator
    out. The first transaction on the table tests it. With `false`, `table.lock` is required."""

    @field_validator("endpoint")
    @classmethod
    def _endpoint(cls, value: str | None) -> str | None:
        if value is None:
            return None
        expected = "allowed: http://host:port or https://…, without a path"
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            raise ValueError(f"not a store's address; {expected}") from None
        if "@" in value:
            raise ValueError(
                "must not contain a login; remove everything before the @, and set access_key and secret_key"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError(f"not a store's address; found {value[:60]!r}; {expected}")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host):
            raise ValueError(f"not a store's address; found {value[:60]!r}; {expected}")
        return f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")

    @field_validator("secret_key", "session_token", "profile")
    @classmethod
    def _complete(cls, value: Any, info: ValidationInfo) -> Any:
        if "access_key" not in info.data:
            return value  # it has its own problem
        with_key = info.data["access_key"] is not None
        if info.field_name == "secret_key" and (value is not None) != with_key:
            raise ValueError(
                "`access_key` and `secret_key` belong together; add the one that is missing, or remove both"
            )
        if info.field_name == "session_token" and value is not None and not with_key:
            raise ValueError(
                "belongs to temporary access_key and secret_key, which are missing; add them, or remove it"
            )
        if info.field_name == "profile" and value is not None and with_key:
            raise ValueError("`access_key` is set too; keep one of the two ways to log in")
        return value

    def options(self) -> StorageOptions:
        """Return the form in which these settings travel to every process that reaches the store."""
        return StorageOptions(
            endpoint=self.endpoint,
            region=self.region,
            path_style=self.endpoint is not None if self.path_style is None else self.path_style,
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
            profile=self.profile,
            conditional_writes=self.conditional_writes,
        )


_LOCAL = "an absolute path like /data/orders or file:///data/orders"
_S3 = "s3a://bucket/path"
_UNTRIED = {
    "s3n": "Hadoop has removed it; write s3a:// for the same bucket",
    "gs": "tables on Google Cloud Storage have not been tried",
    "abfs": "tables on Azure storage have not been tried",
    "abfss": "tables on Azure storage have not been tried",
    "wasb": "tables on Azure storage have not been tried",
    "wasbs": "tables on Azure storage have not been tried",
    "hdfs": "tables on HDFS have not been tried",
}
"""Why schemes are refused."""


def normal_path(value: str) -> str:
    """Return `table.base_path` in its canonical form. Raises ValueError, which says what is allowed."""
    scheme, separator, rest = value.partition("://")
    if separator and scheme.lower() in ("s3", "s3a"):
        return _normal_s3_path(rest)
    if not separator:
        path = value
        if not path.startswith("/"):
            raise ValueError(f"not an absolute path; found {quoted(value)}; allowed: {_LOCAL}, or {_S3}")
    else:
        path = rest
        # Show only the scheme: the rest may contain a login.
        if scheme.lower() != "file":
            store = f"{scheme}://" if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]{0,20}", scheme) else "a store's address"
            why = _UNTRIED.get(scheme.lower(), "it is not a store that hudi-ingest knows")
            raise ValueError(
                f"found {store}; {why}, so there is no telling whether its promises hold there; allowed: {_LOCAL}, which may "
                f"be a mounted bucket, or {_S3}"
            )
        if not path.startswith("/"):
            raise ValueError(f"a file: path begins with three slashes; allowed: {_LOCAL}")
    _require_plain(path, quoted(value))
    path = posixpath.normpath("/" + path.strip("/"))
    if path == "/":
        raise ValueError(f"names no folder; found {quoted(value)}; allowed: {_LOCAL}")
    return path


def local_path(value: str) -> str:
    """The same for a folder that must be on a local or mounted file system."""
    path = normal_path(value)
    if is_s3(path):
        raise ValueError(f"found s3://; allowed: {_LOCAL}, so copy the checkpoint's folder there")
    return path


def _normal_s3_path(rest: str) -> str:
    bucket, _, key = rest.partition("/")
    if "@" in bucket or ":" in bucket:
        raise ValueError(
            f"must not contain a login or a port; allowed: {_S3}, with the login and the endpoint in table.storage"
        )
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
        raise ValueError(
            f"not a bucket's name; found {quoted(bucket)}; allowed: 3 to 63 lower-case letters, digits, `.` and `-`"
        )
    _require_plain(key, quoted(key))
    folders = [folder for folder in key.split("/") if folder]
    if not folders:
        raise ValueError(f"names no folder in the bucket; allowed: {_S3}")
    return f"{S3_SCHEME}{bucket}/{'/'.join(folders)}"


def _require_plain(path: str, path_shown: str) -> None:
    if re.search(r"[*?{}\[\]\x00-\x1f\x7f]", path):
        raise ValueError(
            f"contains a character that readers treat as a pattern; found {path_shown}; allowed: a path without * ? {{ }} [ ]"
        )
    if {".", ".."} & set(path.split("/")):
        raise ValueError(f"contains a . or .. folder; found {path_shown}; write the path without it")


class Lock(Model):
    """A table lock shared by writers in several JVMs. Without it, each JVM has a lock of its own."""

    zookeeper: Annotated[str, AfterValidator(partial(broker_addresses, server="ZooKeeper server"))] = Field(
        json_schema_extra={"allowed": "host:port, or several separated by commas"}
    )
    """Servers of the ZooKeeper ensemble that holds the lock."""

    path: str = Field(
        default="/hudi-ingest/locks", json_schema_extra={"allowed": "an absolute ZooKeeper path, like /hudi/locks"}
    )
    """The parent node. Each table has a lock node below it, named by a digest of `table.base_path`."""

    @field_validator("path")
    @classmethod
    def _path(cls, value: str) -> str:
        if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+", value) or {".", ".."} & set(value.split("/")):
            raise ValueError(
                f"not a ZooKeeper path; found {quoted(value)}; allowed: /name/name…, of letters, digits, `.`, `_` and `-`"
            )
        return value
