"""The benchmark: hudi-ingest against plain Spark and against the limit, on the same topics, broker and settings."""
