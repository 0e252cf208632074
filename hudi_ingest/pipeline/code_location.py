"""Settings of a whole code location: how long records of transactions are kept (housekeeping.yaml), and who gets an alert when a check
fails (alerts.yaml)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator

from hudi_ingest.home.folder import ALERTS_VARIABLE, HOUSEKEEPING_VARIABLE, Home
from hudi_ingest.pipeline.settings.model import Model, Whole
from hudi_ingest.pipeline.settings.references import Secret
from hudi_ingest.pipeline.settings.settings_file import SettingsFile, load_settings

LEAST = 100
"""The newest runs, events and transactions that nothing deletes: ticks, checks, back-off and plots read no more than 50 of them."""

_Days = Annotated[Whole, Field(ge=1, le=36_500)]
_Count = Annotated[Whole, Field(ge=LEAST, le=1_000_000_000)]


class HousekeepingSettings(Model):
    """How long to keep what each transaction leaves in Dagster and in the ledger. What is older than its days, or beyond its
    count, is deleted, but never the newest 100 of a pipeline."""

    enabled: bool = True
    """Whether the schedule is on from the start. It runs the job `hudi_ingest_housekeeping` once an hour."""

    days: _Days = 30
    """Days to keep Dagster runs that have ended, with their events, step logs and results; evaluations of checks, observed lags and
    commits made outside, which ticks report without a run; and dead-letter files whose letters a retry has taken, unless a rollback or
    a savepoint could bring them back. Ticks of sensors and schedules stay 7 days at most."""

    keep: _Count = 500
    """How many runs to keep, for each pipeline and each kind of run (transactions, table services and so on); twice as many events for
    each asset and kind, and for each check."""

    ledger_days: _Days = 90
    """Days to keep the ledger's rows of transactions that have ended, with their slices and attempts, and of requests, but 10,000 of each
    for a pipeline at most; damaged instants that a repair put aside; and all that a pipeline without a file has left, since its last
    activity."""


def load_housekeeping_settings(
    home: Home, overrides: Mapping[str, Any] | None = None, environment: Mapping[str, str] = os.environ
) -> HousekeepingSettings:
    """Load housekeeping.yaml, if there is one, with the `HUDI_INGEST_HOUSEKEEPING_…` variables on top of it, and on top of these
    the `overrides` that are not None. Raises ConfigError with all problems."""
    file = SettingsFile(home.housekeeping_settings_file, home.housekeeping_settings is not None, HOUSEKEEPING_VARIABLE)
    return load_settings(HousekeepingSettings, file, home, overrides, environment)


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
