"""Files to read, in a folder of this machine or in an object store: what is there, since when, and its bytes."""

from tidegate.blobs.object_store import BlobError, ObjectStore, is_azure
from tidegate.blobs.pattern import PathPattern, PatternError, Place
from tidegate.blobs.source import Blob, BlobSource, FolderSource, StoreSource, open_source

__all__ = [
    "Blob",
    "BlobError",
    "BlobSource",
    "FolderSource",
    "ObjectStore",
    "PathPattern",
    "PatternError",
    "Place",
    "StoreSource",
    "is_azure",
    "open_source",
]
