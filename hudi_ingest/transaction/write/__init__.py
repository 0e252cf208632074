"""The write phase: a Spark job whose tasks read offset ranges and write base files.

Imports what `transaction` imports. Public: `job.write_slices`.
"""
