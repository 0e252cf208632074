"""Run tags of ours, to find a pipeline's runs by."""

PIPELINE = "hudi_ingest/pipeline"
TABLE = "hudi_ingest/table"
TRANSACTION = "hudi_ingest/transaction"
SEQUENCE = "hudi_ingest/sequence"
INSTANT = "hudi_ingest/instant"
MAX_RUNTIME = "dagster/max_runtime"
"""Dagster's own: seconds after which run monitoring ends a run."""
