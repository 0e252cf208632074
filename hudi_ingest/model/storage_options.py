"""How to reach a table's object store. Secrets are references: their values are read where they are used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hudi_ingest.model.secret_hooks import read_secret

S3_SCHEME = "s3a://"
_REFERENCE = re.compile(
    r"\$\{(?:file:(?P<file>[^-}][^}]*)|(?P<scheme>[a-z][a-z0-9_]*):(?P<reference>[^-}][^}]*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*))\}"
)


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret is: `${NAME}` in the environment, `${file:PATH}`, or a vault's `${SCHEME:REF}`. Never holds the secret itself."""

    text: str
    """The reference as it stands in the pipeline file; a file's path is absolute."""

    @classmethod
    def parse(cls, text: str, folder: Path) -> SecretReference:
        """Parse a text that is one reference and nothing else; paths are relative to `folder`. Raises ValueError."""
        match = _REFERENCE.fullmatch(text.strip())
        if match is None:
            raise ValueError("not a reference")
        if match["name"]:
            return cls(f"${{{match['name']}}}")
        if match["scheme"]:
            return cls(match[0])
        return cls(f"${{file:{(folder / match['file']).absolute()}}}")

    def resolve(self, environment: Mapping[str, str]) -> str:
        """Read the secret. Raises ValueError, which says what is missing and never shows the secret."""
        match = _REFERENCE.fullmatch(self.text)
        assert match is not None, "parsed"
        if match["name"]:
            value = environment.get(match["name"])
            if not value:
                raise ValueError(f"environment variable {match['name']} is {'not set' if value is None else 'empty'}")
            return value
        if match["scheme"]:
            return read_secret(match["scheme"], match["reference"], environment)
        try:
            # Editors and `echo` end a file with a newline that is not part of the value.
            value = Path(match["file"]).read_bytes().decode().removesuffix("\n").removesuffix("\r")
        except (OSError, ValueError) as error:
            why = "is not UTF-8 text" if isinstance(error, ValueError) else getattr(error, "strerror", None) or error
            raise ValueError(f"file {match['file']} cannot be read: {why}") from None
        if not value:
            raise ValueError(f"file {match['file']} is empty")
        return value

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """`table.storage` of a pipeline file. Hashable, picklable, and free of secrets.

    Without `access_key` and `profile`, credentials come from the default chain of the process that uses them: its
    environment, the default profile, the role of its machine.
    """

    endpoint: str | None = None
    """`http://host:port` or `https://…`; None for AWS."""
    region: str | None = None
    """None for the environment's."""
    path_style: bool = False
    """Whether the bucket is in the path of a request, not in the host's name."""
    access_key: SecretReference | None = None
    secret_key: SecretReference | None = None
    session_token: SecretReference | None = None
    profile: str | None = None
    """A profile of the AWS configuration files."""
    conditional_writes: bool = True
    """Whether the store honours If-Match and If-None-Match of a PUT."""

    @property
    def secrets(self) -> tuple[tuple[str, SecretReference], ...]:
        """The references by their keys in `table.storage`."""
        named = (
            ("access_key", self.access_key),
            ("secret_key", self.secret_key),
            ("session_token", self.session_token),
        )
        return tuple((key, reference) for key, reference in named if reference is not None)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Resolved credentials. Not for pickles, logs or messages."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    def __reduce__(self) -> str:
        raise TypeError("credentials stay in the process that resolved them; pass the StorageOptions instead")


def is_s3(base_path: str) -> bool:
    """Whether a normalized base path is on S3."""
    return base_path.startswith(S3_SCHEME)


def bucket_and_key(base_path: str) -> tuple[str, str]:
    """Split a normalized base path on S3 into bucket and key prefix, without a slash at either end."""
    bucket, _, key = base_path.removeprefix(S3_SCHEME).partition("/")
    return bucket, key
