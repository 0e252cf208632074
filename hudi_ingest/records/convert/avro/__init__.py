"""Avro: a fast path by DataFusion, and the exact reading that decides wherever that one doubts."""
