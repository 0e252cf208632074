"""The sections of a pipeline file about the bytes of records: the formats, their settings, and the records' keys."""

from __future__ import annotations

from typing import Annotated, Protocol

import pyarrow as pa
from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, field_validator, model_validator

from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.pipeline import extras
from hudi_ingest.pipeline.sections.registry import AvroValues
from hudi_ingest.pipeline.settings.model import File, Model, Whole
from hudi_ingest.records.convert.csv import CsvOptions
from hudi_ingest.records.convert.formats import is_built_in, known_formats
from hudi_ingest.records.schema.ddl import parse_ddl

FORMATS = "json, json_schema, avro, protobuf, csv, string, bytes, or package.module:Converter"


class DeclaredFormat(Protocol):
    """How the bytes of records are written. `source` itself declares the values, `source.key` the keys."""

    @property
    def format(self) -> str: ...
    @property
    def avro(self) -> AvroValues: ...
    @property
    def protobuf(self) -> ProtobufValues: ...
    @property
    def csv(self) -> CsvValues: ...


def known_format(value: str) -> str:
    """Check a `format`. Raises ValueError when it is neither a known name nor an import path, or its libraries are
    missing."""
    # Searching the installed packages for others takes milliseconds.
    if not (":" in value or is_built_in(value)) and value not in (known := known_formats()):
        raise ValueError(
            f"found {quoted(value)}; allowed: {', '.join(known)}, or package.module:Converter{suggestion(value, known)}"
        )
    if value in ("avro", "protobuf"):
        try:
            extras.require(value)
        except ValueError as problem:
            raise ValueError(f"{value} {problem}") from None
    return value


def needs_registry(declared: DeclaredFormat) -> bool:
    """Whether the bytes name schemas of `source.schema_registry`."""
    return (
        declared.format == "json_schema"
        or (declared.format == "avro" and declared.avro.wire_format == "confluent")
        or (declared.format == "protobuf" and declared.protobuf.descriptor_file is None)
    )


def registry_is_missing(declared: DeclaredFormat) -> str:
    """The problem of a pipeline without `schema_registry` whose format needs one."""
    instead = {
        "avro": ", or set avro.wire_format",
        "protobuf": "; for plain messages, set protobuf.descriptor_file and protobuf.message instead",
    }
    return f"missing; format {declared.format} in Confluent's wire format needs it{instead.get(declared.format, '')}"


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

    descriptor_file: File | None = None
    """File of a FileDescriptorSet (`protoc --include_imports --descriptor_set_out=FILE`), relative to the pipeline file."""

    message: _Name | None = Field(default=None, validate_default=True)
    """Full name of the message type, like `shop.Order`; messages of other types are bad records. Required with
    `descriptor_file`. Without either, it is the first type of the topics' schemas, which serializers write by default."""

    truncate_nanoseconds: bool = False
    """Truncate timestamps to whole microseconds instead of refusing finer ones."""

    @field_validator("message")
    @classmethod
    def _message_of_the_file(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("descriptor_file") is not None:
            raise ValueError("missing; descriptor_file needs the full name of the message type, like shop.Order")
        return value


class RecordKey(Model):
    """Columns from the records' keys. They follow those of `table.schema`, and transforms see them as fields."""

    format: Annotated[str, AfterValidator(known_format)] = Field(
        default="string", json_schema_extra={"allowed": FORMATS}
    )
    """The format of a key; see `source.format`."""

    schema_: str = Field(alias="schema", json_schema_extra={"allowed": "Spark DDL, like `order_id string NOT NULL`"})
    """The columns that a key becomes, in Spark DDL; a single one with format string or bytes. They are null when a record
    has no key, so if one of them is NOT NULL, such a record is bad."""

    avro: AvroValues = AvroValues()
    """How keys name their Avro schemas. Only with `format: avro`."""

    protobuf: ProtobufValues = ProtobufValues()
    """The Protobuf message type of keys. Only with `format: protobuf`."""

    csv: CsvValues = CsvValues()
    """How CSV keys are written. Only with `format: csv`."""

    @field_validator("schema_")
    @classmethod
    def _schema(cls, value: str) -> str:
        parse_ddl(value)
        return value

    @property
    def columns(self) -> pa.Schema:
        """The columns of a key."""
        return parse_ddl(self.schema_)
