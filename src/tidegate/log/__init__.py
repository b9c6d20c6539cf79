"""One partition's commit log on disk: entries in segments, sparse indexes, group commit, recovery, retention."""

from tidegate.log.clock import Clock
from tidegate.log.errors import DirectoryLocked, LogClosed, LogDamaged, LogError
from tidegate.log.partition_log import (
    Appended,
    Committer,
    DirectoryLock,
    EntryView,
    EventBatch,
    PartitionLog,
    Promise,
    Recovery,
    SegmentReader,
)

# LogClock(path): the hub's clock; .now_ms(), .promise() (never blocks), .close()
__all__ = [
    "Appended",
    "Clock",
    "Committer",
    "DirectoryLock",
    "DirectoryLocked",
    "EntryView",
    "EventBatch",
    "LogClosed",
    "LogDamaged",
    "LogError",
    "PartitionLog",
    "Promise",
    "Recovery",
    "SegmentReader",
]
