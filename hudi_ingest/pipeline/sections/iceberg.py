"""`table.iceberg` of a pipeline file: Iceberg metadata over the Hudi table's files, in any catalog that pyiceberg knows."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, StringConstraints, field_validator

from hudi_ingest.exceptions.problems import PlacedProblems, quoted
from hudi_ingest.pipeline import extras
from hudi_ingest.pipeline.settings.model import A_YEAR, Model, Seconds, as_text
from hudi_ingest.pipeline.settings.references import Secret

_TYPES = ("rest", "hive", "glue", "dynamodb", "bigquery", "sql")
_SCHEMES = ("http", "https", "thrift", "sqlite", "postgresql", "postgresql+psycopg2")
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,128}(\.[A-Za-z0-9_]{1,128})*$")]


class Iceberg(Model):
    """Where Iceberg's readers find the table; see docs/iceberg.md. Each commit's files are a snapshot there, too, and are written once."""

    catalog: dict[str, Annotated[Secret, BeforeValidator(as_text)]] = Field(
        default_factory=dict,
        validate_default=True,
        json_schema_extra={
            "allowed": "{option: value}, with pyiceberg's names",
            "default": "a SQLite file in the home folder",
        },
    )
    """The catalog, as pyiceberg names its settings, like `{uri: "thrift://metastore:9083"}`, `{type: glue}` or `{uri: "https://…",
    credential: "${CREDENTIAL}"}`; `name` is the catalog's own name. What reaches the store comes from `table.storage`. Values are treated as
    secrets."""

    namespace: _Name = Field(
        default="default", json_schema_extra={"allowed": "names of letters, digits and _ with dots"}
    )
    """The namespace, or database, which is created if it does not exist."""

    table: _Name | None = Field(
        default=None,
        json_schema_extra={"allowed": "letters, digits and _", "default": "the pipeline's name in small letters"},
    )
    """The table's name there. One of that name that others have made is left alone, and the check `iceberg_up_to_date` fails."""

    every_seconds: Annotated[Seconds, Field(ge=0, le=A_YEAR)] = 0
    """A snapshot is made at most so often; then it brings all commits since the last. 0: each commit is a snapshot of its own."""

    timeout_seconds: Annotated[Seconds, Field(ge=1, le=3600)] = 20
    """How long a transaction waits for the catalog after its commit, which is not affected: the next one, or a run within a minute, makes up
    for it."""

    @field_validator("catalog")
    @classmethod
    def _catalog(cls, value: dict[str, Secret]) -> dict[str, Secret]:
        extras.require("iceberg")
        kind = value["type"].get_secret_value() if "type" in value else None
        if kind is not None and kind not in _TYPES:
            raise PlacedProblems([(("type",), f"not a kind of catalog that pyiceberg has; allowed: {', '.join(_TYPES)}")])
        if value and kind is None and "uri" not in value:
            raise ValueError("has neither `type` nor `uri`, which say what kind of catalog it is; add one")
        if kind in ("rest", "hive", "sql") and "uri" not in value:
            raise PlacedProblems([(("uri",), f"missing; a catalog of type {kind} needs its address")])
        if "uri" in value:
            scheme = value["uri"].get_secret_value().partition(":")[0]
            if scheme not in _SCHEMES:
                allowed = ", ".join(f"{each}://…" for each in _SCHEMES)
                raise PlacedProblems([(("uri",), f"begins with {quoted(scheme)}; allowed: {allowed}")])
        return value

    @field_validator("table")
    @classmethod
    def _one_name(cls, value: str | None) -> str | None:
        if value is not None and "." in value:
            raise ValueError(f"found {quoted(value)}, which has a dot; put what is before it into `namespace`")
        return value
