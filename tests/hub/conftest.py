"""The hub's tests open many namespaces; that the disk was waited for is the log's tests' affair."""

from collections.abc import Iterator

import pytest

from tidegate.durable_files import Files


@pytest.fixture(scope="module", autouse=True)
def quick_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Files, "sync", lambda self, fd: None)
        patch.setattr(Files, "sync_directory", lambda self, directory: None)
        yield
