"""Dagster's daemon of the embedded stack: `python -m hudi_ingest.orchestration.daemon WORKSPACE`."""
