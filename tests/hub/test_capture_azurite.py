"""Capture to Azure Blob storage, which Azurite plays; Microsoft's own client looks at what is there."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.azurite import azurite, container
from tests.hub.archives import NAMES, description, run
from tests.log.support import InlineCommitter, SetClock, append
from tidegate.amqp.messages import Message, encode_message
from tidegate.hub.capture.partition_capture import CaptureWriter
from tidegate.hub.capture.store import StoreError, open_store
from tidegate.log import PartitionLog

pytestmark = pytest.mark.sdk

START_MS = 1754103840_000


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with azurite() as connection_string:
        yield {"AZURE_STORAGE_CONNECTION_STRING": connection_string}


@pytest.fixture
def blobs(environment: dict[str, str], request: pytest.FixtureRequest) -> Any:
    name = request.node.name.replace("_", "-")[:60].strip("-")
    with container(environment["AZURE_STORAGE_CONNECTION_STRING"], name) as client:
        yield client


def test_files_are_blobs_that_avro_readers_read(environment: dict[str, str], blobs: Any, tmp_path: Path) -> None:
    clock = SetClock(START_MS)
    log = PartitionLog.open(tmp_path, clock=clock, committer=InlineCommitter())
    store = open_store(f"az://{blobs.container_name}/lake", environment)
    # 30 MB in one file: it goes up in pieces.
    writer = CaptureWriter(log, NAMES, description(), store)
    for number in range(30):
        append(log, [encode_message(Message(body_kind="data", body=[bytes([number]) * 1_000_000]))])
    clock.time_ms = START_MS + 120_000
    run(writer, clock.time_ms)

    sizes = {blob.name: blob.size for blob in blobs.list_blobs()}
    assert list(sizes) == [f"lake/ns1/eh1/0/2025/08/02/03/{minute}/00.avro" for minute in ("04", "05")]
    full, empty = (blobs.download_blob(name).readall() for name in sizes)
    bodies = [record["Body"] for record in fastavro.reader(io.BytesIO(full))]
    assert bodies == [bytes([number]) * 1_000_000 for number in range(30)]
    assert list(fastavro.reader(io.BytesIO(empty))) == []
    assert (writer.files, writer.keep_from, writer.failures) == (2, 30, 0)


def test_somebody_elses_blob_is_left_alone(environment: dict[str, str], blobs: Any, tmp_path: Path) -> None:
    blobs.upload_blob("ns1/eh1/0/2025/08/02/03/04/00.avro", b"not ours")
    clock = SetClock(START_MS)
    log = PartitionLog.open(tmp_path, clock=clock, committer=InlineCommitter())
    store = open_store(f"az://{blobs.container_name}", environment)
    writer = CaptureWriter(log, NAMES, description(), store)
    append(log, [encode_message(Message(body_kind="data", body=[b"a"]))])
    clock.time_ms = START_MS + 60_000
    run(writer, clock.time_ms)
    assert [blob.name.rpartition("/")[2] for blob in blobs.list_blobs()] == ["00.avro", "01.avro"]
    assert blobs.download_blob("ns1/eh1/0/2025/08/02/03/04/00.avro").readall() == b"not ours"


def test_a_failure_names_the_place_and_no_secret(environment: dict[str, str], tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.write_bytes(b"content")
    store = open_store("az://no-such-container", environment)
    assert store.head("name.avro", 10) is None
    with pytest.raises(StoreError, match=r"az://no-such-container/name\.avro cannot be written") as failure:
        store.put("name.avro", content)
    key = environment["AZURE_STORAGE_CONNECTION_STRING"].split("AccountKey=")[1].split(";")[0]
    assert key not in str(failure.value)
