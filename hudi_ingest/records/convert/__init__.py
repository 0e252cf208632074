"""Kafka values -> Arrow rows: a converter for each format, looked up by name in `formats`."""
