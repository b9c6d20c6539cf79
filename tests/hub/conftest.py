"""The hub's tests open many namespaces; that the disk was waited for is the log's tests' affair."""

import os
from collections.abc import Iterator

import pytest

from tidegate.log import Files


@pytest.fixture(scope="module", autouse=True)
def quick_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Files, "sync", lambda self, fd: None)
        patch.setattr(Files, "sync_directory", lambda self, directory: None)
        patch.setattr(os, "fsync", lambda fd: None)
        yield
