"""Files to read, in a folder of this machine or in an object store: what is there, since when, and its bytes."""

from tidegate.blobs.object_store import BlobError, ObjectStore, is_azure
from tidegate.blobs.pattern import PathMatch, PathPattern, PatternError
from tidegate.blobs.source import Blob, BlobSource, FolderSource, StoreSource, open_source

__all__ = [
    "Blob",
    "BlobError",
    "BlobSource",
    "FolderSource",
    "ObjectStore",
    "PathMatch",
    "PathPattern",
    "PatternError",
    "StoreSource",
    "is_azure",
    "open_source",
]
