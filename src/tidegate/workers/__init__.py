"""`tidegate up --workers N`: processes that serve clients on the same ports, over the logs that one process writes."""

from tidegate.workers.pool import WorkerPool

__all__ = ["WorkerPool"]
