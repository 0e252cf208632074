"""The source: the broker's offsets, Kafka records as Arrow batches, and the schema registry.

Imports `pipeline`, `records` and `model`, never `hudi`. Public: `cluster`, `records`, `registry`.
"""
