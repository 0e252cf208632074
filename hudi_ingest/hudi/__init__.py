"""The sink: timeline, write client in the JVM, base files, table epoch, storage, and taking over a table.

Imports `pipeline`, `records`, `spark` and `model`, never `kafka`. Public: one module per concern; only `write_client` touches JVM classes.
"""
