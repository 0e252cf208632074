"""Platforms around hudi-ingest on this machine, for `make cluster-demo`, `cdc-demo` and `mirror-demo`, tests and benchmarks: object stores, Spark
clusters, a metastore, PostgreSQL with tables that change, Kafka Connect."""
