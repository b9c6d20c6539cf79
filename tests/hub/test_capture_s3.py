"""Capture to a bucket of an S3 server."""

from __future__ import annotations

import io
from pathlib import Path

import fastavro
import pytest

from tests.hub.archives import NAMES, description, run
from tests.log.support import InlineCommitter, SetClock, append
from tests.s3_server import s3_server
from tidegate.amqp.messages import Message, encode_message
from tidegate.blobs import ObjectStore
from tidegate.hub.capture.partition_capture import CaptureWriter
from tidegate.hub.capture.store import StoreError, open_store
from tidegate.log import PartitionLog

pytestmark = pytest.mark.sdk

START_MS = 1754103840_000


def test_files_are_in_the_bucket_whole_and_a_failure_names_no_secret(tmp_path: Path) -> None:
    with s3_server() as server:
        bucket = server.create_bucket("archive")
        clock = SetClock(START_MS)
        log = PartitionLog.open(tmp_path, clock=clock, committer=InlineCommitter())
        writer = CaptureWriter(log, NAMES, description(), open_store(f"{bucket}/lake", server.environment))
        # More than the store takes in one request: it goes up in pieces.
        for number in range(30):
            append(log, [encode_message(Message(body_kind="data", body=[bytes([number]) * 1_000_000]))])
        clock.time_ms = START_MS + 60_000
        run(writer, clock.time_ms)

        store = ObjectStore(bucket, server.environment)
        names = [one["path"] for page in store.api.list(store.handle) for one in page]
        assert names == ["lake/ns1/eh1/0/2025/08/02/03/04/00.avro"]
        content = bytes(store.api.get(store.handle, names[0]).bytes())
        bodies = [record["Body"] for record in fastavro.reader(io.BytesIO(content)) if isinstance(record, dict)]
        assert bodies == [bytes([number]) * 1_000_000 for number in range(30)]

        (tmp_path / "content").write_bytes(b"content")
        nowhere = open_store("s3://nowhere", server.environment)
        with pytest.raises(StoreError, match=r"s3://nowhere/name\.avro cannot be written") as failure:
            nowhere.put("name.avro", tmp_path / "content")
        assert server.environment["AWS_SECRET_ACCESS_KEY"] not in str(failure.value)
