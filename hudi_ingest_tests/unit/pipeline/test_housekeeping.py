"""housekeeping.yaml and the variables on top of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline.code_location import HousekeepingSettings, load_housekeeping_settings

pytestmark = pytest.mark.fast


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home", tmp_path / "pipelines", "sqlite://")


def test_without_a_file_it_is_on_and_keeps_a_month_of_runs(home: Home) -> None:
    settings = load_housekeeping_settings(home, environment={})
    assert settings == HousekeepingSettings()
    assert (settings.enabled, settings.days, settings.keep, settings.ledger_days) == (True, 30, 500, 90)


def test_options_go_over_variables_and_these_over_the_file(home: Home) -> None:
    home.housekeeping_settings_file.write_text("enabled: false\nkeep: 200\ndays: 3\nledger_days: 4\n")
    environment = {"HUDI_INGEST_HOUSEKEEPING_KEEP": "300"}
    settings = load_housekeeping_settings(home, {"days": 2}, environment)
    assert settings == HousekeepingSettings(enabled=False, keep=300, days=2, ledger_days=4)


def test_all_problems_are_told_at_once_with_the_least_that_may_be_kept(tmp_path: Path) -> None:
    file = tmp_path / "kept.yaml"
    file.write_text("keep: 99\ndays: 0\nledger_dais: 3\n")
    home = Home.from_environment({"HUDI_INGEST_HOUSEKEEPING": str(file)})
    with pytest.raises(ConfigError) as raised:
        load_housekeeping_settings(home, environment={"HUDI_INGEST_HOUSEKEEPING_ENABLE": "no"})
    problems = "\n".join(raised.value.problems)
    for part in ("keep: too small; found 99", "from 100 to", "days: too small", "ledger_dais"):
        assert part in problems
    assert "HUDI_INGEST_HOUSEKEEPING_ENABLE: unknown" in problems
