"""Kafka values -> Arrow rows: one converter for each format, found by its name in `formats`."""
