"""The server's two tokens: given in a file or a variable, or made at the first start in files that only its user reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import Home, write_private
from hudi_ingest.rest.access import Access

TOKEN_VARIABLE = "HUDI_INGEST_TOKEN"
READ_TOKEN_VARIABLE = "HUDI_INGEST_READ_TOKEN"
TOKEN_FILE = "rest-token"
READ_TOKEN_FILE = "rest-read-token"
_SHORTEST = 16


def access(
    home: Home, token_file: Path | None, read_token_file: Path | None, environment: Mapping[str, str] = os.environ
) -> Access:
    """Find the tokens, and make those that are neither in a file nor in a variable. Raises ConfigError."""
    write = _token(home, token_file, TOKEN_VARIABLE, TOKEN_FILE, environment)
    read = _token(home, read_token_file, READ_TOKEN_VARIABLE, READ_TOKEN_FILE, environment)
    if write == read:
        raise ConfigError(READ_TOKEN_VARIABLE, [f"the read-only token must not be that of {TOKEN_VARIABLE}"])
    return Access(write, read)


def write_token_place(home: Home, token_file: Path | None, environment: Mapping[str, str] = os.environ) -> Path | str:
    """The file, or the variable's name, that `access` takes the token for everything from."""
    return _place(home, token_file, TOKEN_VARIABLE, TOKEN_FILE, environment)


def _place(home: Home, file: Path | None, variable: str, name: str, environment: Mapping[str, str]) -> Path | str:
    if file is not None:
        return file
    return variable if environment.get(variable, "").strip() else home.root / name


def _token(home: Home, given: Path | None, variable: str, name: str, environment: Mapping[str, str]) -> str:
    file = _place(home, given, variable, name, environment)
    if isinstance(file, str):
        return _checked(environment[file].strip(), file)
    if given is None:
        home.make()
        _make(file)
        facts = file.stat()
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            problem = (
                "another user may read or have written this token; delete the file, and the next start makes a new one"
            )
            raise ConfigError(str(file), [problem])
    try:
        return _checked(file.read_text().strip(), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), [f"the token cannot be read: {error}"]) from None


def _make(file: Path) -> None:
    """Write a new token unless there is one. Of two servers that start at once, both then use the same."""
    if file.exists():
        return
    own = file.with_name(f"{file.name}-{os.getpid()}")
    write_private(own, os.urandom(32).hex() + "\n")
    try:
        os.link(own, file)
    except FileExistsError:
        pass
    finally:
        own.unlink()


def _checked(token: str, where: str) -> str:
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        problem = f"the token must be at least {_SHORTEST} printable ASCII characters without spaces, such as `openssl rand -hex 32` writes"
        raise ConfigError(where, [problem])
    return token
