"""Metrics of all pipelines, from what is durable: the ledger, the tables, the brokers, and Dagster's instance.

Nothing is counted in a process, so the first scrape after a restart is right. `definitions.py` is the only place that defines
a metric; Prometheus, OpenTelemetry and docs/metrics.md read it.
"""
