"""Settings of formats that need more than a name: how CSV is written, where Protobuf's types are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from hudi_ingest.pipeline.settings.model import Model, Whole, beside_the_file
from hudi_ingest.records.convert.csv import CsvOptions

_Name = Annotated[str, StringConstraints(min_length=1)]


class CsvValues(Model):
    """How the values of CSV records are written: one record per value, without a header line."""

    delimiter: str = ","
    """Between fields: one character."""

    quote: str | None = '"'
    """Around fields: one character; null when quotes have no meaning."""

    escape: str | None = None
    """Before a character to be taken literally; null when there is none."""

    null: str = ""
    """The content of an unquoted field that means null."""

    columns: tuple[_Name, ...] | None = Field(default=None, json_schema_extra={"allowed": "a list of names"})
    """Names of a record's fields, in order; names that the schema does not have are ignored. Without it, the fields are
    the schema's columns in their order."""

    optional_fields: Annotated[Whole, Field(ge=0)] = 0
    """How many fields a record may lack at its end; they become null. For columns that producers added later."""

    @model_validator(mode="after")
    def _fit_together(self) -> CsvValues:
        self.options()
        return self

    def options(self) -> CsvOptions:
        """The options for reading CSV. Raises ValueError when the characters conflict."""
        return CsvOptions(self.delimiter, self.quote, self.escape, self.null, self.columns, self.optional_fields)


class ProtobufValues(Model):
    """The type of Protobuf messages. With `descriptor_file` they are plain messages of one type; without it they are in
    Confluent's wire format, and their schemas are in `source.schema_registry`."""

    descriptor_file: Path | None = None
    """File of a FileDescriptorSet (`protoc --include_imports --descriptor_set_out=FILE`), relative to the pipeline file."""

    message: _Name | None = Field(default=None, validate_default=True)
    """Full name of the message type, like `shop.Order`; messages of other types are bad records. Required with
    `descriptor_file`. Without either, it is the first type of the topics' schemas, which serializers write by default."""

    truncate_nanoseconds: bool = False
    """Truncate timestamps to whole microseconds instead of refusing finer ones."""

    @field_validator("descriptor_file")
    @classmethod
    def _file(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        return None if value is None else beside_the_file(value, info)

    @field_validator("message")
    @classmethod
    def _message_of_the_file(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("descriptor_file") is not None:
            raise ValueError("missing; descriptor_file needs the full name of the message type, like shop.Order")
        return value
