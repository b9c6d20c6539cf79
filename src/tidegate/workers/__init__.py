"""`tidegate up --workers N`: processes that accept AMQP on one port, over the logs that one process writes."""

from tidegate.workers.pool import WorkerPool

__all__ = ["WorkerPool"]
