"""`route` of a pipeline file: one topic's records to several tables."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator

from hudi_ingest.exceptions.problems import Place, PlacedProblems
from hudi_ingest.pipeline.settings.model import Model
from hudi_ingest.records.routing import Rest, Routing

ROUTE = "{route}"
REST = "others"
"""The name of the table of the rest."""


class Route(Model):
    """Writes a topic's records to several tables, by the value of a field."""

    field: Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+)*$")] = Field(
        json_schema_extra={"allowed": "a field of the records, like `type` or `header.type`"}
    )
    """The field, whose value must be text. It need not be a column of the tables."""

    tables: dict[str, dict[str, Any]] = Field(
        json_schema_extra={"allowed": "{value: {}}, or {value: {key: …}} with keys of `table` that differ for this one"}
    )
    """A table for each value, with what it has other than `table` says, such as its `schema`. `{route}` in `name` and
    `table.base_path` is the value."""

    others: Literal["fail", "skip", "table"] = "fail"
    """What happens to records with another value. `fail`: they are bad records of the first table, as are those whose field is
    missing, null or no text, and those that are no JSON. `skip`: they are left out, but the latter stay bad. `table`: all of these
    go to a table of their own, with `{route}` as `others`."""

    @field_validator("tables")
    @classmethod
    def _names_differ(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        if not value:
            raise ValueError("found an empty mapping; allowed: at least one value")
        problems: list[tuple[Place, str]] = []
        for name, changes in value.items():
            if name == REST:
                problems.append(((name,), f"{REST} is the table of the rest; set `others: table` instead"))
            problems += [
                ((name, "base_path"), f"use {ROUTE} in table.base_path") for key in changes if key == "base_path"
            ]
        if problems:
            raise PlacedProblems(problems)
        return value

    @property
    def names(self) -> tuple[str, ...]:
        """What `{route}` becomes, one for each table."""
        return (*self.tables, *([REST] if self.others == "table" else []))

    def routing(self, name: str) -> Routing:
        """The part of the table with this name. What no value claims is exactly one table's, or nobody's."""
        values, other_values, without_value = tuple(self.tables), "filtered", "filtered"
        if name == REST:
            other_values = without_value = "own"
        elif name == values[0] and self.others != "table":
            other_values = "bad" if self.others == "fail" else "filtered"
            without_value = "bad"
        path = tuple(self.field.split("."))
        return Routing(path, None if name == REST else name, values, _rest(other_values), _rest(without_value))


def _rest(text: str) -> Rest:
    assert text in ("own", "bad", "filtered")
    return text  # type: ignore[return-value]
