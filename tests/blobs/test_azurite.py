"""Files in Azure Blob storage, which Azurite plays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.azurite import azurite, container
from tidegate.blobs import BlobError, PathPattern, open_source
from tidegate.blobs.object_store import BlobGone
from tidegate.ordering import parse_time

pytestmark = pytest.mark.sdk


@pytest.fixture(scope="module")
def connection_string() -> Iterator[str]:
    with azurite() as connection_string:
        yield connection_string


@pytest.fixture
def blobs(connection_string: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string)
    with container(connection_string, request.node.name.replace("_", "-")[:60].strip("-")) as client:
        yield client


def test_blobs_are_listed_and_read_as_they_were(blobs: Any) -> None:
    for name in ("in/a.json", "in/b/c.json", "in/_work/x.json", "other/a.json"):
        blobs.upload_blob(name, name.encode())
    url = f"az://{blobs.container_name}"
    for path, names in {
        f"{url}/in": ["in/a.json", "in/b/c.json"],
        f"{url}/in/*.json": ["in/a.json"],
        f"{url}/in/a.json": ["in/a.json"],
        f"{url}/none": [],
        url: ["in/a.json", "in/b/c.json", "other/a.json"],
    }.items():
        pattern = PathPattern.parse(path)
        found = pattern.find(open_source(pattern.root))
        assert sorted(blob.name for blob, _ in found) == names
    source = open_source(url)
    blob = source.head("in/a.json")
    assert blob is not None
    assert (
        abs(
            blob.modified
            - parse_time(blobs.get_blob_client("in/a.json").get_blob_properties().last_modified.isoformat())
        )
        == 0
    )
    assert source.read_blob(blob) == b"in/a.json"
    blobs.upload_blob("in/a.json", b"another", overwrite=True)
    with pytest.raises(BlobGone, match="has changed"):
        source.read_blob(blob)
    blobs.delete_blob("in/a.json")
    with pytest.raises(BlobGone, match="not there any more"):
        source.read_blob(blob)


def test_a_failure_names_the_place_and_no_secret(connection_string: str) -> None:
    source = open_source("az://no-such-container", {"AZURE_STORAGE_CONNECTION_STRING": connection_string})
    with pytest.raises(BlobError, match="az://no-such-container cannot be listed") as failure:
        source.list("")
    assert connection_string.split("AccountKey=")[1].split(";")[0] not in str(failure.value)
    reason = "the store answers 404 Not Found (ContainerNotFound): The specified container does not exist."
    assert str(failure.value) == f"az://no-such-container cannot be listed: {reason}"
    with pytest.raises(BlobError, match="AZURE_STORAGE_CONNECTION_STRING"):
        open_source("az://c", {"AZURE_STORAGE_CONNECTION_STRING": "nonsense"})
