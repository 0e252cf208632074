"""The section of a pipeline file about a schema registry, and how records name their schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, ValidationInfo, field_validator

from hudi_ingest.pipeline.settings.model import File, Model, Seconds
from hudi_ingest.pipeline.settings.references import Secret


class SchemaRegistry(Model):
    """A schema registry with Confluent's API (Confluent's own, Karapace, Redpanda, Apicurio's /apis/ccompat/v7)."""

    url: str = Field(json_schema_extra={"allowed": "http://host:port or https://…, or several separated by commas"})
    """The registry's address. If there are several, the next is tried when one does not answer."""

    username: Annotated[str, StringConstraints(min_length=1)] | None = None
    """The login for basic authentication."""

    password: Annotated[Secret, Field(min_length=1)] | None = Field(default=None, validate_default=True)
    """The login's password, best provided as `${NAME}` or `${file:PATH}`; never shown in logs or messages. Required with
    `username`, refused without."""

    token: Annotated[Secret, Field(min_length=1)] | None = None
    """A bearer token, best provided as `${NAME}` or `${file:PATH}`; refused with `username`."""

    logical_cluster: Annotated[str, StringConstraints(min_length=1)] | None = None
    """The registry's logical cluster, which Confluent Cloud requires with a bearer token."""

    ca_file: File | None = None
    """PEM file of the certificate authorities to trust instead of the default ones; relative to the pipeline file.
    Spark's workers must find it at the same path."""

    certificate_file: File | None = None
    """PEM file of the client certificate; relative to the pipeline file."""

    key_file: File | None = Field(default=None, validate_default=True)
    """PEM file of that certificate's private key; relative to the pipeline file. Required with `certificate_file`, refused
    without."""

    timeout_seconds: Annotated[Seconds, Field(gt=0, le=3600)] = 10.0
    """How long to wait for a single answer."""

    subject: Literal["topic", "record", "topic_record"] = "topic"
    """How producers name the subjects of values: `<topic>-value`, `<record>` or `<topic>-<record>`. For keys, only
    `<topic>-key` is looked up in advance. With every strategy, schemas of unknown ids are fetched by id."""

    record: Annotated[str, StringConstraints(min_length=1)] | None = Field(default=None, validate_default=True)
    """Full name of the record type in the topics, like `shop.Order`: an Avro record, a Protobuf message or a JSON schema's
    title. Required with subject record or topic_record."""

    other_records: Literal["refuse", "filter"] = "refuse"
    """What happens to records whose schemas have another name than `record`, in topics with several types: `refuse` makes them
    bad records unless their fields fit, `filter` leaves them out and counts them as filtered. Only with `record`."""

    schema_ids: Literal["values", "headers"] = "values"
    """Where records name their schemas: before their values and keys, or in headers (`__value_schema_id`, `__key_schema_id`), by
    GUID. With `headers`, records without such a header are read as with `values`."""

    @field_validator("other_records")
    @classmethod
    def _others_than_what(cls, value: str, info: ValidationInfo) -> str:
        if value == "filter" and info.data.get("record", "") is None:
            raise ValueError(
                "only with `record`, which names the records to take; set subject and record, or remove it"
            )
        return value

    @field_validator("url")
    @classmethod
    def _urls(cls, value: str) -> str:
        urls = [url.strip().rstrip("/") for url in value.split(",")]
        for url in urls:
            parts = urlsplit(url)
            if "@" in parts.netloc:
                raise ValueError(
                    "must not contain a login; remove everything before the @, and set username and password"
                )
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError(
                    f"not a registry's address; found {url[:60]!r}; allowed: http://host:port or https://…"
                )
        return ",".join(urls)

    @field_validator("password")
    @classmethod
    def _with_username(cls, value: Secret | None, info: ValidationInfo) -> Secret | None:
        if "username" in info.data and (value is None) != (info.data["username"] is None):
            raise ValueError("basic authentication needs username and password; one of them is missing")
        return value

    @field_validator("token")
    @classmethod
    def _alone(cls, value: Secret | None, info: ValidationInfo) -> Secret | None:
        if value is not None and info.data.get("username") is not None:
            raise ValueError("`username` is set too; keep one of the two ways to log in")
        return value

    @field_validator("key_file")
    @classmethod
    def _with_certificate(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if "certificate_file" in info.data and (value is None) != (info.data["certificate_file"] is None):
            raise ValueError("a client's certificate needs certificate_file and key_file; one of them is missing")
        return value

    @field_validator("record")
    @classmethod
    def _record_is_named(cls, value: str | None, info: ValidationInfo) -> str | None:
        subject = info.data.get("subject")
        if value is None and subject in ("record", "topic_record"):
            raise ValueError(f"missing; subject {subject} needs the full name of the record")
        if value is not None and subject == "topic":
            raise ValueError("not used by subject topic; remove it, or set subject to record or topic_record")
        return value

    def key_subject_of(self, topic: str) -> str | None:
        """The subject of the keys in a topic; None when it is named after a record that the pipeline does not name."""
        return f"{topic}-key" if self.subject == "topic" else None

    def subject_of(self, topic: str) -> str:
        """The subject of the values in a topic."""
        if self.subject == "topic":
            return f"{topic}-value"
        return str(self.record) if self.subject == "record" else f"{topic}-{self.record}"


class AvroValues(Model):
    """How Avro records name the schema that they were written with."""

    wire_format: Literal["confluent", "datum", "single_object"] = "confluent"
    """`confluent`: by a zero byte and a schema id of `source.schema_registry`. `datum`: not at all, as all are written with
    the one schema file. `single_object`: by the bytes C3 01 and the fingerprint of one of the schema files."""

    schema_files: tuple[File, ...] = Field(
        default=(), validate_default=True, json_schema_extra={"allowed": "a list of paths of .avsc files"}
    )
    """Files of the Avro schemas that producers wrote with, relative to the pipeline file. `datum` needs one,
    `single_object` one or more, `confluent` takes none."""

    @field_validator("schema_files")
    @classmethod
    def _files(cls, value: tuple[Path, ...], info: ValidationInfo) -> tuple[Path, ...]:
        wire_format = info.data.get("wire_format")
        if wire_format == "confluent" and value:
            raise ValueError("not used by wire_format confluent, whose schemas are in the registry; remove it")
        if wire_format == "datum" and len(value) != 1:
            raise ValueError(f"found {len(value)} files; wire_format datum needs one, the schema of all records")
        if wire_format == "single_object" and not value:
            raise ValueError("found no file; wire_format single_object needs the schemas that records are written with")
        return value
