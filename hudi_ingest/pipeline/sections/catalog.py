"""`catalog` of a pipeline file: where query engines find the table."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from hudi_ingest.exceptions.problems import quoted
from hudi_ingest.pipeline.settings.model import Model, broker_addresses

_SCHEME = "thrift://"


def _legal_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", value, re.ASCII):
        raise ValueError(
            f"Hive refuses this name; found {quoted(value)}; allowed: up to 128 letters, digits and _, not beginning with a digit"
        )
    # Hive keeps names in lower case, and finds them in any.
    return value.lower()


class Catalog(Model):
    """The catalog in which query engines find the table; see docs/catalogs.md. Without it, they need the table's path."""

    type: Literal["hms"]
    """`hms` is a Hive metastore, or a service with the same Thrift interface."""

    uris: str = Field(json_schema_extra={"allowed": "thrift://host:port, or several separated by commas"})
    """The metastore's address. If there are several, another is tried when one does not answer."""

    database: Annotated[str, Field(json_schema_extra={"allowed": "a name that Hive takes"})] = "default"
    """The table's database, which is created if it does not exist."""

    table: str | None = Field(
        default=None, json_schema_extra={"allowed": "a name that Hive takes", "default": "the pipeline's name"}
    )
    """The table's name. A keyed table is also there as `<name>_rt` and `<name>_ro`. A table of such a name at another location is
    left alone, and the check `catalog_synced` fails."""

    location_scheme: Literal["s3a", "s3"] = "s3a"
    """How the catalog names the location of a table on S3. Spark outside of EMR reads `s3a://`, Athena `s3://`, Trino both."""

    @field_validator("uris")
    @classmethod
    def _uris(cls, value: str) -> str:
        addresses = [address.strip() for address in value.split(",")]
        if not all(address.startswith(_SCHEME) for address in addresses):
            raise ValueError(
                f"not a metastore's address; found {quoted(value)}; allowed: {_SCHEME}host:port, several separated by commas"
            )
        hosts = broker_addresses(",".join(address.removeprefix(_SCHEME) for address in addresses), "metastore")
        return ",".join(f"{_SCHEME}{host}" for host in hosts.split(","))

    @field_validator("database")
    @classmethod
    def _database(cls, value: str) -> str:
        return _legal_name(value)

    @field_validator("table")
    @classmethod
    def _table(cls, value: str | None) -> str | None:
        return None if value is None else _legal_name(value)
