"""Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster."""

from hudi_ingest.config import Pipeline
from hudi_ingest.pipeline_file import load_pipeline

__version__ = "0.1.0"

__all__ = ["KafkaToHudi", "Pipeline", "__version__", "load_pipeline", "run_transaction"]


def __getattr__(name: str) -> object:
    # Spark is imported only by those who run a transaction, Dagster only by those who use it; a sensor tick must stay fast.
    if name == "run_transaction":
        from hudi_ingest.ingest import run_transaction

        return run_transaction
    if name == "KafkaToHudi":
        from hudi_ingest.orchestration.component import KafkaToHudi

        return KafkaToHudi
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    # Dagster's `dg` looks here for components.
    return sorted({*globals(), *__all__})
