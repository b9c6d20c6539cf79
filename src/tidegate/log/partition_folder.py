"""The owner mark of a partition's folder, by which a missing or swapped folder is noticed.

The log in a folder describes itself, but cannot show that the whole folder is gone or belongs to another partition. So
a file in the folder names the event hub's folder and the partition. It is written before the hub is first served.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from tidegate.durable_files import FileDamaged, make_folders, read_checked, write_checked
from tidegate.log.errors import LogError

_logger = logging.getLogger(__name__)
FILE_NAME = "partition.json"
ACCEPT_LOSS = "accept-loss"
_VERSION = 1


class PartitionFolderWrong(LogError):
    """A partition's folder is missing, empty, or another partition's. The message says what to do."""


def prepare_folder(folder: Path, partition_id: str, *, is_new: bool) -> None:
    """Check that `folder` belongs to the partition, and mark it if it is new or was never marked.

    Args:
        folder: The partition's folder, inside its event hub's folder.
        partition_id: The partition.
        is_new: True if the event hub is being created: the folder may be missing.

    Raises:
        PartitionFolderWrong: The partition's events are not there.
        FileDamaged: The mark is damaged.
        OSError: The mark cannot be read or written.
    """
    mark = {"version": _VERSION, "event_hub_folder": folder.parent.name, "partition_id": partition_id}
    path = folder / FILE_NAME
    found = read_checked(path, advice="restore it from a backup, or delete it if the folder is the right one")
    has_events = any(folder.glob("*.log")) or (folder / "acknowledged").exists()
    if found is None or not has_events:
        _check_is_not_lost(folder, is_new=is_new, has_events=has_events)
    if found is None:
        make_folders(folder)
        write_checked(path, mark)
        (folder / ACCEPT_LOSS).unlink(missing_ok=True)
    elif found.get("version") != _VERSION:
        raise FileDamaged(path, "it is not of a known version", "start the version of Tidegate that wrote it")
    elif found != mark:
        raise PartitionFolderWrong(
            f"{folder} holds partition {found.get('partition_id')} of {found.get('event_hub_folder')}: folders were "
            "swapped or copied; move each back to its place"
        )


def _check_is_not_lost(folder: Path, *, is_new: bool, has_events: bool) -> None:
    if is_new or has_events:
        return
    accepted = folder / ACCEPT_LOSS
    if not accepted.exists():
        raise PartitionFolderWrong(
            f"{folder} is missing or empty, though its event hub was served before: restore it from a backup; or, to "
            f"lose its events and begin again at sequence number 0, create an empty file {accepted}"
        )
    _logger.error("%s: the events of the partition are lost, as %s accepts", folder, ACCEPT_LOSS)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != accepted:
            path.unlink()
