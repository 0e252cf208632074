"""How others see the table: `asset` for Dagster, `catalog` for query engines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from hudi_ingest.exceptions.problems import Place, PlacedProblems, describe, quoted
from hudi_ingest.pipeline.settings.model import A_YEAR, Model, Seconds, Whole, broker_addresses

# What Dagster accepts as owners, tags and groups.
_OWNER = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}|team:\S+")
_KEY_PART = re.compile(r"[A-Za-z0-9_.-]+")
_TAG_KEY = re.compile(r"([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{0,63}")
_GROUP = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*")


class AssetSettings(Model):
    """How Dagster shows the table, and when its checks fail. None of these settings changes what is written."""

    key: tuple[str, ...] | None = Field(
        default=None,
        json_schema_extra={
            "allowed": "a list like [lake, orders], of letters, digits, `_`, `.` and `-`",
            "default": "the pipeline's name",
        },
    )
    """The asset's key. Set it before the first commit: the history of a former key stays with that one."""

    description: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, json_schema_extra={"default": "the table's path and its topics"}
    )
    """What the table holds, in Markdown."""

    owners: tuple[str, ...] = Field(
        default=(), json_schema_extra={"allowed": "a list of mail addresses and of teams like team:orders"}
    )
    """Who is responsible for the table."""

    tags: Mapping[str, str] = Field(
        default_factory=dict, json_schema_extra={"allowed": "a mapping of text to text", "default": "none"}
    )
    """Tags of the asset, to find it by."""

    group: str | None = Field(
        default=None, json_schema_extra={"allowed": "letters, digits, _ and /", "default": "the pipeline's name"}
    )
    """The asset group that shows the table and its topics."""

    max_lag: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None, json_schema_extra={"default": "the records of two transactions, 2 × transaction.max_records"}
    )
    """The check `lag_below_limit` fails while more offsets than this are waiting."""

    late_after_seconds: Annotated[Seconds, Field(ge=1, le=A_YEAR)] | None = Field(
        default=None,
        json_schema_extra={
            "default": "60 + 2 × transaction.interval_seconds, and twice what the last transaction took"
        },
    )
    """The check `up_to_date` fails while the oldest waiting record is older than this, by its Kafka timestamp, and nothing
    has been committed for that long."""

    fresh_within_seconds: Annotated[Seconds, Field(ge=60, le=A_YEAR)] | None = None
    """How long ago the time may be through which the table is complete, with `asset.complete` or `source.lateness_seconds`: the check
    `up_to_date` fails beyond it. An idle topic is not late; a partition that lags or is stopped is, and a producer that leaves a
    transaction open. Without these settings it is Dagster's freshness policy: the asset is overdue when it has not been materialized for this long, for
    whatever reason, including an idle topic and a sensor that is turned off."""

    complete: Literal["hourly", "daily"] | None = None
    """Adds the asset `<name>_hours` or `<name>_days` downstream of the table, whose partitions are materialized when all records of that
    time, by their Kafka timestamps in UTC, are in the table. `backfill_from` is its first day. See docs/ui.md."""

    backfill_from: Annotated[date, Field(ge=date(2000, 1, 1), le=date(2999, 12, 31))] = Field(
        default_factory=lambda: (datetime.now(timezone.utc).date().replace(day=1) - timedelta(days=1)).replace(day=1),
        json_schema_extra={
            "allowed": "a day like 2026-01-31, not before 2000",
            "default": "the first day of the last month",
        },
    )
    """The first day whose hours the job `hudi_ingest_backfill_hours` offers, in UTC; the earliest of all pipelines counts. Use
    `hudi_ingest_backfill` for older history."""

    @field_validator("key")
    @classmethod
    def _key(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and not (value and all(map(_KEY_PART.fullmatch, value))):
            raise ValueError(
                f"not an asset's key; found {quoted('/'.join(value))}; allowed: a list like [lake, orders], of letters, digits, `_`, `.` and `-`"
            )
        return value

    @field_validator("owners")
    @classmethod
    def _owners(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        problems: list[tuple[Place, str]] = [
            ((index,), f"not an owner; found {quoted(owner)}; allowed: a mail address, or team: and a name")
            for index, owner in enumerate(value)
            if not _OWNER.fullmatch(owner)
        ]
        if problems:
            raise PlacedProblems(problems)
        return value

    @field_validator("tags", mode="before")
    @classmethod
    def _tags(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a mapping of text to text; found {describe(value)}")
        problems: list[tuple[Place, str]] = []
        for key, text in value.items():
            if not _TAG_KEY.fullmatch(str(key)):
                allowed = "up to 63 letters, digits, `_`, `-` and `.`, optionally after a namespace and a `/`"
                problems.append(((str(key),), f"not a tag's name; allowed: {allowed}"))
            elif not isinstance(text, str) or not _TAG_VALUE.fullmatch(text):
                allowed = "up to 63 letters, digits, `_`, `-` and `.`, in quotes if they look like a number"
                problems.append(((str(key),), f"not a tag's value; found {describe(text)}; allowed: {allowed}"))
        if problems:
            raise PlacedProblems(problems)
        return dict(value)

    @field_validator("group")
    @classmethod
    def _group(cls, value: str | None) -> str | None:
        if value is not None and not _GROUP.fullmatch(value):
            raise ValueError(
                f"not a group's name; found {quoted(value)}; allowed: letters, digits and _, levels with /"
            )
        return value


_SCHEME = "thrift://"


def _legal_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", value, re.ASCII):
        raise ValueError(
            f"Hive refuses this name; found {quoted(value)}; allowed: up to 128 letters, digits and _, not beginning with a digit"
        )
    # Hive keeps names in lower case, and finds them in any.
    return value.lower()


_HiveName = Annotated[str, AfterValidator(_legal_name)]


class Catalog(Model):
    """The catalog in which query engines find the table; see docs/catalogs.md. Without it, they need the table's path."""

    type: Literal["hms"]
    """`hms` is a Hive metastore, or a service with the same Thrift interface."""

    uris: str = Field(json_schema_extra={"allowed": "thrift://host:port, or several separated by commas"})
    """The metastore's address. If there are several, another is tried when one does not answer."""

    database: Annotated[_HiveName, Field(json_schema_extra={"allowed": "a name that Hive takes"})] = "default"
    """The table's database, which is created if it does not exist."""

    table: _HiveName | None = Field(
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

    @property
    def readers_warning(self) -> str | None:
        """What the engines that the catalog is for cannot read; None if there is nothing to warn of."""
        if self.location_scheme != "s3":
            return None
        return (
            "catalog.location_scheme s3 is for Athena and EMR, but no Athena reads table version 9, which hudi-ingest writes, nor does an EMR "
            "whose Hudi is older than 1.1. Set table.iceberg with a catalog that they know, such as Glue, or read the table with Spark and Hudi "
            "1.1 or later; docs/readers.md lists what each engine reads."
        )
