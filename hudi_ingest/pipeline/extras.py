"""Libraries that only some pipelines or commands need: setup.py's extras, and the check that they are installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

MODULES: Mapping[str, tuple[str, ...]] = {
    "avro": ("fastavro",),
    "iceberg": ("pyiceberg",),
    "lineage": ("openlineage",),
    "metrics": ("prometheus_client", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "msk": ("aws_msk_iam_sasl_signer",),
    "postgres": ("dagster_postgres", "psycopg2"),
    # Dagster installs google.protobuf anyway; google.type has types that schemas import without providing them.
    "protobuf": ("grpc_tools", "ptars", "google.type"),
    # What confluent-kafka's client imports.
    "registry": ("httpx2", "authlib", "attrs", "cachetools", "certifi"),
    "rest": ("fastapi", "uvicorn"),
    "s3": ("botocore",),
    "sql": ("duckdb",),
    "ui": ("dagster_webserver", "uvicorn"),
}
"""The modules that each extra installs."""


WITH_THE_PIPELINE = "where the pipeline runs, and on Spark's workers"


def require(extra: str, where: str = WITH_THE_PIPELINE) -> None:
    """Check that the extra is installed, without importing its modules. `where`: it must be. Raises ValueError when a module is missing."""
    missing = [module for module in MODULES[extra] if find_spec(module) is None]
    if missing:
        raise ValueError(f"needs {', '.join(missing)}, not installed here; install hudi-ingest[{extra}] {where}")
