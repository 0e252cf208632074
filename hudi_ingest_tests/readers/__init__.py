"""Two tables that hudi-ingest wrote, read by every engine that can be had here; docs/readers.md says what came of it.

`tables.py` writes the tables and knows their rows, `engines/` has a module for each engine, and `environments.py` runs one in its own
environment: `python -m hudi_ingest_tests.readers`, which is `make readers`, prepares these.
"""
