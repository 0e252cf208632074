"""Who is told when a check fails: an optional file, alerts.yaml, whose values may be from the environment or from files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator

from hudi_ingest.home.folder import ALERTS_VARIABLE, Home
from hudi_ingest.pipeline.settings.model import Model, Whole
from hudi_ingest.pipeline.settings.references import Secret
from hudi_ingest.pipeline.settings.settings_file import SettingsFile, load_settings

_Text = Annotated[str, StringConstraints(min_length=1)]


class Webhook(Model):
    """A URL that gets a POST when something fails, and when it is well again."""

    name: _Text
    """What messages call it; its URL is a secret."""

    url: Annotated[Secret, Field(min_length=1)]
    """Where to post, best provided as `${NAME}` or `${file:PATH}`, because chat services put the login into it."""

    format: Literal["json", "slack"] = "json"
    """`json`: what failed and what is well again, as lists. `slack`: one text, which Slack, Mattermost, Rocket.Chat and others
    take at their incoming webhooks."""


class Email(Model):
    """A mail server, and who gets mail through it."""

    to: Annotated[tuple[_Text, ...], Field(min_length=1)] = Field(json_schema_extra={"allowed": "a list of addresses"})
    """Recipients."""

    sender: _Text
    """The address that the mail is from."""

    host: _Text
    """The mail server."""

    port: Annotated[Whole, Field(ge=1, le=65535)] = 587
    """The server's port."""

    security: Literal["starttls", "tls", "none"] = "starttls"
    """How the connection is encrypted: after it is made, from its first byte (often port 465), or not at all."""

    username: _Text | None = None
    """The login; without it, none is sent."""

    password: Annotated[Secret, Field(min_length=1)] | None = None
    """The login's password, best provided as `${NAME}` or `${file:PATH}`."""


class AlertSettings(Model):
    """Who is told when a table's check fails, a partition is stopped or a pipeline file cannot be loaded, and when it is well
    again. Each is told once, and once more if a warning becomes a failure; the checks say what to do."""

    ui_url: str | None = Field(default=None, json_schema_extra={"allowed": "http://… or https://…"})
    """Address of the Dagster UI, for links in the messages."""

    warnings: bool = False
    """Whether checks that only warn are told, too."""

    webhooks: tuple[Webhook, ...] = ()
    """URLs to post to."""

    email: Email | None = None
    """Mail to send."""

    @field_validator("webhooks")
    @classmethod
    def _names_differ(cls, value: tuple[Webhook, ...]) -> tuple[Webhook, ...]:
        names = [webhook.name for webhook in value]
        if len(set(names)) < len(names) or "email" in names:
            raise ValueError("each webhook needs a name of its own, other than `email`")
        return value


def load_alert_settings(home: Home, environment: Mapping[str, str] = os.environ) -> AlertSettings:
    """Load alerts.yaml, if there is one. Raises ConfigError with all problems."""
    file = SettingsFile(home.alerts_settings_file, home.alerts_settings is not None, ALERTS_VARIABLE)
    overrides: Mapping[str, Any] = {}
    return load_settings(AlertSettings, file, home, overrides, environment)
