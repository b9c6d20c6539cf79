"""Kafka's protocol without I/O: record batches, bytes to columns and back."""
