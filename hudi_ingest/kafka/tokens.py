"""Tokens for SASL OAUTHBEARER from a function of the user's choice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from hudi_ingest.model.deadline import within
from hudi_ingest.pipeline.sections.security import OAuth

_SECONDS = 30.0
"""For the function's answer. A client that has a token uses it meanwhile."""


class NoToken(Exception):
    """The function gave no token that a client could use. The text shows neither the token nor the options."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and when it expires, in seconds since 1970. `principal` is for the client's log only."""

    value: str = field(repr=False)
    expires_at: float
    principal: str = ""
    extensions: dict[str, str] = field(default_factory=dict)


class Tokens:
    """Asks the pipeline's token function for the tokens of one client: for the first now, because without one a client only
    waits; then whenever four fifths of a token's life are over, in a thread of librdkafka's."""

    def __init__(self, oauth: OAuth, on_failure: Callable[[str], None]) -> None:
        """`on_failure` gets what went wrong later. Raises NoToken."""
        self._oauth = oauth
        self._on_failure = on_failure
        self._first: Token | None = self._asked()

    def token(self) -> Token:
        """The token to use now. Raises NoToken, also to `on_failure`."""
        if self._first is not None:
            token, self._first = self._first, None
            return token
        try:
            return self._asked()
        except NoToken as problem:
            self._on_failure(str(problem))
            raise

    def __call__(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        """As confluent-kafka calls its `oauth_cb`."""
        token = self.token()
        return token.value, token.expires_at, token.principal, token.extensions

    def _asked(self) -> Token:
        path = self._oauth.token_function
        assert path is not None, "checked by tokens_of"
        module, _, name = path.partition(":")
        options = {}
        try:
            options = {key: value.get_secret_value() for key, value in self._oauth.options.items()}
            answer: Any = within(_SECONDS, lambda: getattr(import_module(module), name)(options))
        except Exception as error:  # noqa: BLE001 - the user's own code may raise anything, and show a secret
            raise NoToken(f"{path} failed: {type(error).__name__}: {_without(options.values(), str(error))}") from None
        try:
            value, expires_at, *more = answer
            principal, extensions = (*more, "", {})[:2] if len(more) < 2 else more
            token = Token(value, float(expires_at), str(principal), dict(extensions))
        except (TypeError, ValueError):
            token = None
        if token is None or not isinstance(token.value, str) or not token.value:
            raise NoToken(f"{path} returned no (token, expiry in seconds since 1970)")
        if token.expires_at <= time.time():
            raise NoToken(f"{path} returned a token that expired {time.time() - token.expires_at:,.0f} s ago")
        return token


def _without(secrets: Any, text: str) -> str:
    for secret in filter(None, secrets):
        text = text.replace(secret, "****")
    return text
