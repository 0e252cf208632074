"""Spark sessions, the shared engine, and the Java and jars that pyspark does not include.

Imports `pipeline`, `model`, `home` and `exceptions`. Public: `session.current_session`, `engine`, `jars.spark_jars`, `s3.connect_bucket`, `java`.
"""
