"""Files that survive a crash: replaced atomically, verified when read, and owned by one process at a time.

Everything that decides what was acknowledged or emitted is written through this package. `replace_file` puts new
content in place of old, whole or not at all; `write_checked` and `read_checked` do the same for JSON documents that
carry a checksum; `DirectoryLock` keeps a second process out. `Files` holds the few operations of the operating system
underneath, so that they have one portable implementation and tests can make any of them fail.
"""

from tidegate.durable_files.lock import DirectoryLock, DirectoryLocked
from tidegate.durable_files.operations import Files, refuses_writes
from tidegate.durable_files.replacement import (
    FileDamaged,
    decode_checked,
    encode_checked,
    make_folders,
    read_checked,
    replace_file,
    write_checked,
)

__all__ = [
    "DirectoryLock",
    "DirectoryLocked",
    "FileDamaged",
    "Files",
    "decode_checked",
    "encode_checked",
    "make_folders",
    "read_checked",
    "refuses_writes",
    "replace_file",
    "write_checked",
]
