"""Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hudi_ingest.config import Pipeline
    from hudi_ingest.pipeline_file import load_pipeline

__version__ = "0.1.0"

__all__ = ["KafkaToHudi", "Pipeline", "__version__", "load_pipeline", "run_transaction"]


_MODULES = {
    "KafkaToHudi": "hudi_ingest.orchestration.component",
    "Pipeline": "hudi_ingest.config",
    "load_pipeline": "hudi_ingest.pipeline_file",
    "run_transaction": "hudi_ingest.ingest",
}


def __getattr__(name: str) -> object:
    # Each is imported by those only who use it: Spark is not for a sensor's tick, and Dagster's processes start with little.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    # Dagster's `dg` looks here for components.
    return sorted({*globals(), *__all__})
