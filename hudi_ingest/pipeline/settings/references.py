"""`${NAME}`, `${NAME:-default}`, `${file:PATH}` and `${SCHEME:REF}` in texts of a settings file, and secrets that have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import STACK_VARIABLES, missing_because
from hudi_ingest.model.secret_hooks import known_schemes, read_secret

_PATTERN = re.compile(
    r"\$\$\{"
    r"|\$\{(?P<scheme>[a-z][a-z0-9_]*):(?P<reference>[^-}][^}]*)\}"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|\$\{"
)
_SECRET_NAME = re.compile("PASS|SECRET|TOKEN|KEY|CREDENTIAL", re.IGNORECASE)


def references(text: str) -> Iterator[str]:
    """Yield what a text refers to: names of variables, `file:PATH` and `SCHEME:REF`."""
    for match in _PATTERN.finditer(text):
        if match["scheme"] is not None:
            yield f"{match['scheme']}:{match['reference']}"
        elif match["name"] is not None:
            yield match["name"]


@dataclass(frozen=True, slots=True)
class Template:
    """A text with references, the folder that its paths are relative to, and the environment."""

    text: str
    folder: Path
    environment: Mapping[str, str]
    takes_defaults: bool = True

    @property
    def has_references(self) -> bool:
        return "${" in self.text

    @property
    def asks_a_vault(self) -> bool:
        return any(match["scheme"] not in (None, "file") for match in _PATTERN.finditer(self.text))

    @property
    def has_a_secret(self) -> bool:
        """Files and vaults are where secrets are kept; variables also have addresses, which messages should show, unless their
        names say that they are secret."""
        return any(
            match["scheme"] is not None or _SECRET_NAME.search(match["name"] or "")
            for match in _PATTERN.finditer(self.text)
        )

    def filled_in(self, note: Callable[[str], None], *, ask: bool = True) -> str:
        """The text with its values; `note` gets each problem. Without `ask`, no vault is asked and `${SCHEME:REF}` stays."""

        def value(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            try:
                if match["scheme"] == "file":
                    return self._content(match["reference"])
                if match["scheme"] is not None:
                    return self._secret(match, ask)
                return self._variable(match)
            except ValueError as problem:
                note(str(problem))
                return ""

        return _PATTERN.sub(value, self.text)

    def _variable(self, match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if name is None:
            raise ValueError(
                "`${` does not start ${NAME}, ${NAME:-default} or ${file:PATH}; complete it, or write $${ for a literal ${"
            )
        value = self.environment.get(name)
        if default is not None:
            return value or default
        if value is None:
            down = missing_because(name, self.environment)
            default_remedy = f" or write ${{{name}:-default}}" if self.takes_defaults else ""
            up = "; `hudi-ingest up` starts a stack that sets it" if name in STACK_VARIABLES else ""
            remedy = f", because {down}" if down else f"; set it{default_remedy}{up}"
            raise ValueError(f"environment variable {name} is not set{remedy}")
        return value

    def _content(self, name: str) -> str:
        path = self.folder / name
        try:
            # Editors and `echo` end a file with a newline that is not part of the value.
            return path.read_bytes().decode().removesuffix("\n").removesuffix("\r")
        except (OSError, ValueError) as error:
            why = "is not UTF-8 text" if isinstance(error, ValueError) else getattr(error, "strerror", None) or error
            raise ValueError(
                f"file {path} cannot be read: {why}; make it readable for this user, or correct the path"
            ) from None

    def _secret(self, match: re.Match[str], ask: bool) -> str:
        scheme = match["scheme"]
        if ask or scheme not in known_schemes(self.environment):
            return read_secret(scheme, match["reference"], self.environment)
        return match[0]


class Secret(SecretStr):
    """A login's password, token or the like. Its references are resolved whenever it is used, so that a changed file or vault
    needs no restart. A copy that is pickled, for Spark's workers, holds the value of that moment."""

    def __init__(self, secret_value: str, template: Template | None = None, where: str = "") -> None:
        super().__init__(secret_value)
        self._template = template
        self._where = where

    def get_secret_value(self) -> str:
        """The value now. Raises ConfigError when a file, a variable or a vault no longer has it."""
        if self._template is None:
            return self._secret_value
        problems: list[str] = []
        value = self._template.filled_in(problems.append)
        if not value and not problems:
            problems.append("is empty")
        if problems:
            raise ConfigError(self._where, problems)
        return value

    @property
    def is_remote(self) -> bool:
        """Whether a vault is asked for it."""
        return self._template is not None and self._template.asks_a_vault

    def __len__(self) -> int:
        # What is validated with the file; a vault is asked only when the secret is used.
        return len(self._secret_value)

    def __str__(self) -> str:
        return "**********"

    def __repr__(self) -> str:
        return "Secret('**********')"

    def _display(self) -> str:
        return "**********"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Secret, (self.get_secret_value(),))

    def __deepcopy__(self, memo: object) -> Secret:
        return self
