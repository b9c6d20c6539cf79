"""One partition's commit log on disk: entries in segments, sparse indexes, group commit, recovery, retention.

Events are bytes here. `PartitionLog` is what the hub appends to and reads from, `SegmentReader` what a job on the same
machine reads with, `Committer` the threads that sync, `LogClock` what stamps arrival and promises that no later event
will be earlier. `PartitionStore` is what the hub asks of this log or of any other store.
"""

from tidegate.log.clock import Clock, LogClock, expiry_time_ms
from tidegate.log.entry import EntryView, JoinedEvents
from tidegate.log.errors import DocumentReplaced, LogClosed, LogDamaged, LogError, NumbersRefused
from tidegate.log.group import Appended, Committer
from tidegate.log.log_reader import EventBatch, RecordBatches, SegmentReader
from tidegate.log.log_writer import WriteFailure
from tidegate.log.mirror import FACTS_BYTES, LogFacts, LogMirror, LogOwner, facts_of
from tidegate.log.partition_log import FolderDocument, PartitionFolderWrong, PartitionLog, prepare_folder
from tidegate.log.protocol import (
    ArrivalLowerBound,
    Document,
    Numbering,
    PartitionStore,
    TopicAddress,
)
from tidegate.log.recovery import Recovery
from tidegate.log.storage import Storage, StorageStatus

__all__ = [
    "FACTS_BYTES",
    "Appended",
    "ArrivalLowerBound",
    "Clock",
    "Committer",
    "Document",
    "DocumentReplaced",
    "EntryView",
    "EventBatch",
    "FolderDocument",
    "JoinedEvents",
    "LogClock",
    "LogClosed",
    "LogDamaged",
    "LogError",
    "LogFacts",
    "LogMirror",
    "LogOwner",
    "Numbering",
    "NumbersRefused",
    "PartitionFolderWrong",
    "PartitionLog",
    "PartitionStore",
    "RecordBatches",
    "Recovery",
    "SegmentReader",
    "Storage",
    "StorageStatus",
    "TopicAddress",
    "WriteFailure",
    "expiry_time_ms",
    "facts_of",
    "prepare_folder",
]
