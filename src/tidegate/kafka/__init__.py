"""Kafka's protocol without I/O: record batches, requests and responses, as bytes and as values."""

from tidegate.kafka.compression import Compression
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Api, MalformedMessage, Message
from tidegate.kafka.records import BatchError, RecordBatch, parse_batch, parse_batches

__all__ = [
    "Api",
    "BatchError",
    "Compression",
    "ErrorCode",
    "MalformedMessage",
    "Message",
    "RecordBatch",
    "parse_batch",
    "parse_batches",
]
