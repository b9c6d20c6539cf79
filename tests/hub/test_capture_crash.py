"""kill -9 while events are captured: each of them is in exactly one file afterwards."""

import io
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.azurite import azurite, container
from tests.patience import PATIENCE_S
from tests.profiles import scaled

pytestmark = pytest.mark.crash

KILLS = scaled(2)


def child(folder: Path, destination: str, what: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.hub.capture_child", str(folder), destination, what]
    # What a capture logs would be a loss or a failure, and there is to be none.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill_again_and_again(folder: Path, destination: str, **environment: str) -> int:
    """Returns how many events were published, all of which have been captured at the end."""
    moments = random.Random(7)
    for _ in range(KILLS):
        process = child(folder, destination, "publish", **environment)
        time.sleep(moments.uniform(0.02, 0.4))
        os.kill(process.pid, signal.SIGKILL)
        assert process.communicate()[0] == ""
    last = child(folder, destination, "drain", **environment)
    output, _ = last.communicate(timeout=3 * PATIENCE_S)
    assert last.returncode == 0
    return int(output)


def check(names: list[str], read: Callable[[str], bytes], published: int) -> None:
    found: list[Any] = [record for name in sorted(names) for record in fastavro.reader(io.BytesIO(read(name)))]
    assert [record["SequenceNumber"] for record in found] == list(range(published))
    assert [int(record["Body"].split(b" ")[0]) for record in found] == list(range(published))
    assert published > 100 * KILLS
    assert len(names) > KILLS // 2


def test_no_event_is_lost_or_repeated_in_a_folder(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    published = kill_again_and_again(tmp_path / "data", str(archive))
    names = [str(path.relative_to(archive)) for path in archive.rglob("*.avro")]
    check(names, lambda name: (archive / name).read_bytes(), published)


@pytest.mark.sdk
def test_no_event_is_lost_or_repeated_in_blob_storage(tmp_path: Path) -> None:
    with azurite() as connection, container(connection, "archive") as blobs:
        published = kill_again_and_again(tmp_path, "az://archive/lake", AZURE_STORAGE_CONNECTION_STRING=connection)
        names = [blob.name for blob in blobs.list_blobs()]
        check(names, lambda name: blobs.download_blob(name).readall(), published)
