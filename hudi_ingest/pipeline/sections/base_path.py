"""Where a table may be: checks and normalizes the paths in pipeline files."""

from __future__ import annotations

import posixpath
import re

from hudi_ingest.exceptions.problems import quoted
from hudi_ingest.model.storage_options import S3_SCHEME, is_s3

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
"""By scheme: why it is refused."""


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
