"""Kafka's protocol without I/O: record batches, requests and responses, as bytes and as values."""
