"""Avro: a compiled pass over batches of datums, and the exact reading that names what is wrong with one."""
