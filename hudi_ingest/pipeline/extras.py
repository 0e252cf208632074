"""Libraries that only some pipelines need: setup.py's extras, and what tells that one is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

MODULES: Mapping[str, tuple[str, ...]] = {
    "avro": ("fastavro", "datafusion"),
    # Dagster brings google.protobuf in any case; google.type is of the types that schemas import without bringing them.
    "protobuf": ("grpc_tools", "ptars", "google.type"),
    # What confluent-kafka's client imports.
    "registry": ("httpx2", "authlib", "attrs", "cachetools", "certifi"),
    "sql": ("duckdb",),
}
"""By extra: the modules it installs."""


def require(extra: str) -> None:
    """Raises ValueError when one of the extra's modules is not installed here. Imports none of them."""
    missing = [module for module in MODULES[extra] if find_spec(module) is None]
    if missing:
        raise ValueError(
            f"needs {', '.join(missing)}, not installed here; install hudi-ingest[{extra}] where the pipeline runs, and on "
            "Spark's workers"
        )
