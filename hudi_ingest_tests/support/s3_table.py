"""Tables on moto's S3 server in the test's own process, behind the proxy that counts and breaks requests."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from hudi_ingest.hudi.storage.s3 import S3Storage
from hudi_ingest.hudi.storage.s3_access import client_of
from hudi_ingest.local.processes import LOOPBACK, free_port
from hudi_ingest.model.storage_options import SecretReference, StorageOptions
from hudi_ingest_tests.support.s3_proxy import S3Proxy, s3_proxy

BUCKET = "lake"
SECRET = "v3ry-s3cret"
_LOGIN = {"TEST_STORE_KEY": "key", "TEST_STORE_SECRET": SECRET}


@dataclass(frozen=True)
class S3Tables:
    """A store with one bucket. Its login is in this process's environment."""

    proxy: S3Proxy
    options: StorageOptions

    def table(self) -> S3Storage:
        """A table of its own, empty."""
        return S3Storage(f"s3a://{BUCKET}/{uuid4().hex}/orders", self.options)

    def fill(self, table: S3Storage, paths: Iterable[str]) -> None:
        """Put empty files into the table, without a request for each."""
        folder = table.base_path.removeprefix(f"s3a://{BUCKET}/")
        for path in paths:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(BUCKET, f"{folder}/{path}", b"")


@contextmanager
def s3_tables() -> Iterator[S3Tables]:
    server = ThreadedMotoServer(ip_address=LOOPBACK, port=free_port(), verbose=False)
    server.start()
    os.environ.update(_LOGIN)
    try:
        with s3_proxy(server._port) as proxy:
            key, secret = (SecretReference(f"${{{name}}}") for name in _LOGIN)
            options = StorageOptions(proxy.endpoint, "us-east-1", path_style=True, access_key=key, secret_key=secret)
            client_of(options).create_bucket(Bucket=BUCKET)
            yield S3Tables(proxy, options)
    finally:
        for name in _LOGIN:
            os.environ.pop(name, None)
        server.stop()
