"""The embedded log keeps the contract of a store."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.log.contract import OpenedStore, StoreContract, StoreMachine, append, everything
from tests.log.support import InlineCommitter, QuickFiles, SetClock
from tests.patience import PATIENCE_S
from tests.profiles import example_count
from tidegate.durable_files import FileDamaged
from tidegate.log import LogDamaged, PartitionLog, PartitionStore, log_reader


class Embedded:
    """The log in a folder of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self._clock = SetClock()
        self.log = self._open()

    def _open(self) -> PartitionStore:
        self._clock.time_ms += 1
        return PartitionLog.open(
            self.folder, clock=self._clock, committer=InlineCommitter(), segment_bytes=700, files=QuickFiles()
        )

    def reopen(self) -> None:
        self.log.close()
        self.log = self._open()

    def close(self) -> None:
        self.log.close()
        shutil.rmtree(self.folder)


class TestEmbedded(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[OpenedStore]:
        store = Embedded()
        yield store
        store.close()


class EmbeddedMachine(StoreMachine):
    new_store = Embedded


TestEmbeddedMachine = EmbeddedMachine.TestCase
TestEmbeddedMachine.settings = settings(max_examples=example_count(40), stateful_step_count=20, deadline=None)


@pytest.fixture
def embedded() -> Iterator[Embedded]:
    store = Embedded()
    yield store
    store.close()


def test_only_the_end_of_the_log_is_taken_for_cached(embedded: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    append(embedded.log, *([b"%3d" % number * 20] for number in range(100)))
    embedded.reopen()
    monkeypatch.setattr(log_reader, "RECENT_BYTES", 1500)
    assert embedded.log.read_cached(0) is None
    assert embedded.log.read_cached(99) == embedded.log.read_batches(99)
    assert embedded.log.read_cached(100) == []
    # Where a reader continues is known to the byte, and whether that is near the end.
    assert embedded.log.read_batches(0, max_events=50)
    assert embedded.log.read_cached(50) is None
    expected = everything(embedded.log, 50)
    assert [row.sequence_number for row in expected] == list(range(50, 100))


def test_damage_is_reported_by_the_future(embedded: Embedded) -> None:
    append(embedded.log, [b"whole"])
    append(embedded.log, [b"damaged"])
    append(embedded.log, [b"whole too"])
    (path,) = embedded.folder.glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"damaged", b"DAMAGED"))
    with pytest.raises(LogDamaged):
        embedded.log.start_read(1).result(PATIENCE_S)
    with pytest.raises(LogDamaged):
        embedded.log.read_cached(1)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"a": 1, "checksum": "crc32c:00000000"}'])
def test_a_damaged_document_is_refused_with_advice(embedded: Embedded, content: bytes) -> None:
    document = embedded.log.document("producers.json", advice="restore it")
    (embedded.folder / "producers.json").write_bytes(content)
    with pytest.raises(FileDamaged, match="restore it"):
        document.read()


def test_a_document_that_an_operator_emptied_is_empty(embedded: Embedded) -> None:
    (embedded.folder / "producers.json").write_bytes(b"")
    document = embedded.log.document("producers.json", advice="")
    assert document.exists
    assert document.read() == {}
