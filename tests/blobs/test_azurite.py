"""Files in Azure Blob storage, which Azurite plays: as an input, as reference data, and as files of Capture."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.azurite import azurite, container
from tests.job.logs import runner_of
from tidegate.blobs import BlobError, PathPattern, open_source
from tidegate.blobs.errors import BlobGone
from tidegate.job import load_job, run_job
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
    with pytest.raises(BlobError, match="AZURE_STORAGE_CONNECTION_STRING"):
        open_source("az://c", {"AZURE_STORAGE_CONNECTION_STRING": "nonsense"})


def test_a_job_over_blobs_joined_with_a_blob(blobs: Any, tmp_path: Path) -> None:
    for number in range(3):
        rows = b"\n".join(json.dumps({"k": "ab"[one % 2], "v": 10 * number + one}).encode() for one in range(4))
        blobs.upload_blob(f"in/{number}.json.gz", gzip.compress(rows))
    blobs.upload_blob("ref/2020-01-01/booths.csv", b"k,name\na,Ada\nb,Bob\n")
    path = tmp_path / "job.toml"
    path.write_text(
        'name = "blobs"\nquery = "SELECT i.v, r.name, GetMetadataPropertyValue(i, \'BlobName\') AS blob INTO o FROM i '
        'JOIN r ON i.k = r.k"\n'
        f'[inputs.i]\ntype = "files"\npath = "az://{blobs.container_name}/in/*.json.gz"\nwatch = false\n'
        f'[inputs.r]\ntype = "reference"\nformat = "csv"\npath = "az://{blobs.container_name}/ref/{{date}}/booths.csv"\n'
        '[outputs.o]\ntype = "file"\npath = "o.jsonl"\n'
    )
    job = load_job(path)
    assert run_job(job, runner_of(job.program, job.policy), max_events_per_step=5).why == "complete"
    found = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert found == [
        {"v": 10 * number + one, "name": ("Ada", "Bob")[one % 2], "blob": f"in/{number}.json.gz"}
        for number in range(3)
        for one in range(4)
    ]
