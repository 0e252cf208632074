"""Kafka topics into Apache Hudi tables, exactly once, coordinated by Dagster."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hudi_ingest.home.folder import Home
    from hudi_ingest.ledger.owner import Owner
    from hudi_ingest.model.plan import TransactionPlan
    from hudi_ingest.model.report import CommitReceipt
    from hudi_ingest.orchestration.code_location import ingest_definitions
    from hudi_ingest.pipeline.file import load_pipeline
    from hudi_ingest.pipeline.pipeline import Pipeline

__version__ = "0.2.0.dev0"

__all__ = [
    "CommitReceipt",
    "Converter",
    "Decoded",
    "Home",
    "KafkaToHudi",
    "Owner",
    "Pipeline",
    "Rejected",
    "TransactionPlan",
    "__version__",
    "ingest_definitions",
    "load_pipeline",
    "run_transaction",
]

LISTENER = "hudi_ingest.lineage:listener"
"""Makes the listener that a pipeline's transactions report their steps to. Named here, where the package is put together, because the
core knows no lineage: whichever process runs a transaction imports this module, so none can forget to register a listener."""

_MODULES = {
    "CommitReceipt": "hudi_ingest.model.report",
    "Converter": "hudi_ingest.records.convert.converter",
    "Decoded": "hudi_ingest.records.convert.converter",
    "Home": "hudi_ingest.home.folder",
    "KafkaToHudi": "hudi_ingest.orchestration.component",
    "Owner": "hudi_ingest.ledger.owner",
    "Pipeline": "hudi_ingest.pipeline.pipeline",
    "Rejected": "hudi_ingest.records.convert.converter",
    "TransactionPlan": "hudi_ingest.model.plan",
    "ingest_definitions": "hudi_ingest.orchestration.code_location",
    "load_pipeline": "hudi_ingest.pipeline.file",
    "run_transaction": "hudi_ingest.transaction.run",
}


def __getattr__(name: str) -> object:
    # Imports on first use: a sensor tick must not load Spark, and Dagster's processes should start fast.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    # Dagster's `dg` looks here for components.
    return sorted({*globals(), *__all__})
