"""Kafka, the Spark engine and Dagster as processes on this machine, for users who have none of them set up.

Imports `spark`, `home` and `exceptions`, and runs the other rooms as programs. Public: `stack`, `broker`, `processes`.
"""
