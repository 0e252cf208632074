"""The base class of all models of pipeline files, and the types of their values."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from hudi_ingest.exceptions.problems import quoted


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "must be a number, not a boolean")
    return value


def as_text(value: object) -> object:
    """Numbers and booleans as Kafka's, Spark's and Hudi's options spell them; a validator."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def _in_64_bits(value: int) -> int:
    if abs(value) >= 2**63:
        raise ValueError("too large; allowed: numbers of up to 18 digits")
    return value


Whole = Annotated[int, BeforeValidator(_no_boolean), AfterValidator(_in_64_bits)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(_no_boolean)]
A_YEAR = 31_536_000
"""Seconds. A longer time is a mistake of units, and somewhere beyond it no clock or calendar can count."""
Seconds = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_no_boolean)]


def _legal_topic(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value) or value in (".", ".."):
        allowed = "1 to 249 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`, and not `.` or `..`"
        raise ValueError(f"not a valid topic name; found {quoted(value)}; allowed: {allowed}")
    return value


Topic = Annotated[str, AfterValidator(_legal_topic)]


class Model(BaseModel):
    """A mapping of a pipeline file."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def beside_the_file(path: Path, info: ValidationInfo) -> Path:
    """Resolve a path relative to the pipeline file."""
    folder = (info.context or {}).get("folder", Path())
    return Path(os.path.abspath(folder / path))


File = Annotated[Path, AfterValidator(beside_the_file)]
"""A path that a settings file writes relative to itself."""


def broker_addresses(value: str, server: str) -> str:
    """`host:port` addresses separated by commas, without spaces. `server` names their kind in the ValueError raised."""
    addresses = [address.strip() for address in value.split(",")]
    for address in addresses:
        host_and_port = re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", address)
        if host_and_port is None or not 1 <= int(host_and_port[2]) <= 65535:
            shown = "****" if "@" in value else quoted(address)  # there may be a login before the @
            raise ValueError(
                f"not a {server}'s address; found {shown}; allowed: host:port with a port from 1 to 65535, several "
                "separated by commas"
            )
    return ",".join(addresses)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file. Raises ValueError."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}; found path {path}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 text (byte {error.start + 1}); found path {path}") from None
