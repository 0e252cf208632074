"""Dagster's daemon of the embedded stack: `python -m hudi_ingest.orchestration.embedded.daemon WORKSPACE`."""
