"""Alert rules, scrape config and dashboard name only metrics that exist, and docs/metrics.md names all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from hudi_ingest.metrics.definitions import METRICS
from hudi_ingest_tests.support import metrics_page

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "prometheus" / "hudi-ingest-alerts.yml"
CONFIG = ROOT / "deploy" / "prometheus" / "prometheus.yml"
RULE_TESTS = Path(__file__).with_name("alert_rules_test.yml")
DASHBOARD = ROOT / "deploy" / "grafana" / "hudi-ingest.json"
OF_PROMETHEUS = {"up"}


def exported() -> dict[str, set[str]]:
    """Each name that a scrape has, and its labels."""
    names: dict[str, set[str]] = {}
    for metric in METRICS:
        endings = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        for ending in endings:
            names[metric.name + ending] = {*metric.labels, *(["le"] if ending == "_bucket" else [])}
    return names


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_every_metric_and_label_of_rules_and_dashboard_is_exported() -> None:
    names, used = exported(), set()
    for place, expression in expressions():
        # Grafana's own variables.
        text = expression.replace("$__rate_interval", "5m")
        promql_parser.parse(text)
        for name, matchers in re.findall(r"\b(up|hudi_ingest_\w+)(?:\{([^}]*)\})?", text):
            used.add(name)
            assert name in {*names, *OF_PROMETHEUS}, f"{place}: {name}"
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert name in OF_PROMETHEUS or labels <= names[name], f"{place}: {labels}"
    assert len(used) > 40


def test_a_wrong_expression_is_noticed() -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        promql_parser.parse("sum by pipeline (hudi_ingest_lag_offsets")


def test_every_alert_says_what_to_do_and_where_it_is_explained() -> None:
    alerts = [rule["alert"] for rule in rules()]
    assert len(alerts) == len(set(alerts))
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        annotations = rule["annotations"]
        assert annotations.keys() == {"summary", "description", "runbook"}
        assert len(annotations["description"]) > len(annotations["summary"])
        page, _, anchor = annotations["runbook"].partition("#")
        titles = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, rule["alert"]
        used = set(re.findall(r"\$labels\.(\w+)", json.dumps(annotations))) - {"instance"}
        for name in re.findall(r"\bhudi_ingest_\w+", rule["expr"]):
            aggregated = re.search(r"by \(([^)]*)\)", rule["expr"]) if rule["expr"].startswith("sum by") else None
            kept = set(re.split(r", *", aggregated[1])) if aggregated else exported()[name]
            assert used <= kept, rule["alert"]
            break


def test_the_page_has_every_metric() -> None:
    assert metrics_page.TARGET.read_text(encoding="utf-8") == metrics_page.render(), "run `make docs`"


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]}
    assert len(places) == len(ids)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(dashboard["panels"]))) <= variables


def test_a_sensor_that_does_not_tick_is_one_alert_however_many_pipelines_share_it() -> None:
    (rule,) = [rule for rule in rules() if rule["alert"] == "HudiIngestNotTicking"]
    assert rule["expr"].startswith("max by (sensor) (hudi_ingest_last_tick_timestamp_seconds ")
    assert "sensor" in exported()["hudi_ingest_last_tick_timestamp_seconds"]
    assert "$labels.sensor" in rule["annotations"]["summary"]
    assert "$labels.pipeline" not in json.dumps(rule)


@pytest.mark.tier(2)
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's package prometheus) is not installed")
def test_promtool_accepts_rules_and_config() -> None:
    # The file with the token is on the machine that scrapes.
    for arguments in (["config", "--syntax-only", str(CONFIG)], ["rules", str(RULES)]):
        checked = subprocess.run(["promtool", "check", *arguments], check=False, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.tier(2)
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's package prometheus) is not installed")
def test_alerts_fire_when_services_fail_hang_or_are_not_run() -> None:
    tested = subprocess.run(["promtool", "test", "rules", RULE_TESTS], check=False, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout + tested.stderr
