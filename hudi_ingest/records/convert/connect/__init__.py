"""Kafka Connect's records and Debezium's changes, whatever format carries them."""
