"""Bytes to rows: schemas, converters of the formats, transforms, and the rows that a table gets. Arrow in, Arrow out.

Imports `model` and `exceptions`; no Kafka, Spark, Hudi client or Dagster. Public: `row_maker`, and a module or room per format and kind of transform.
"""
