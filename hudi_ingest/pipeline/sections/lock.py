"""`table.lock` of a pipeline file: where Hudi's table lock is held."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from hudi_ingest.exceptions.problems import quoted
from hudi_ingest.pipeline.settings.model import Model, broker_addresses


class Lock(Model):
    """A table lock shared by writers in several JVMs. Without it, each JVM has a lock of its own."""

    zookeeper: str = Field(json_schema_extra={"allowed": "host:port, or several separated by commas"})
    """Servers of the ZooKeeper ensemble that holds the lock."""

    path: str = Field(
        default="/hudi-ingest/locks", json_schema_extra={"allowed": "an absolute ZooKeeper path, like /hudi/locks"}
    )
    """The parent node. Each table has a lock node below it, named by a digest of `table.base_path`."""

    @field_validator("zookeeper")
    @classmethod
    def _servers(cls, value: str) -> str:
        return broker_addresses(value, "ZooKeeper server")

    @field_validator("path")
    @classmethod
    def _path(cls, value: str) -> str:
        if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+", value) or {".", ".."} & set(value.split("/")):
            raise ValueError(
                f"not a ZooKeeper path; found {quoted(value)}; allowed: /name/name…, of letters, digits, `.`, `_` and `-`"
            )
        return value
