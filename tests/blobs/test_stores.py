"""Files in each kind of store as the inputs of a job: of events, and of reference data."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.azurite import azurite, container
from tests.job.logs import travelling
from tests.s3_server import s3_server
from tidegate.blobs import BlobError, ObjectStore, PathPattern, open_source
from tidegate.blobs.object_store import BlobGone
from tidegate.job import load_job, run_job

pytestmark = pytest.mark.sdk


@pytest.fixture(scope="module", params=["azurite", "s3"])
def root(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a container or bucket, whose credentials are in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "azurite":
            with azurite() as connection_string, container(connection_string, "files"):
                patch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string)
                yield "az://files"
        else:
            with s3_server() as server:
                for name, value in server.environment.items():
                    patch.setenv(name, value)
                yield server.create_bucket("files")


@pytest.fixture
def url(root: str, request: pytest.FixtureRequest) -> str:
    """The URL of an empty folder."""
    return f"{root}/f{abs(hash(request.node.nodeid)):x}"


def put(url: str, name: str, content: bytes) -> None:
    store = ObjectStore(url)
    store.api.put(store.handle, name, content)


def test_a_file_that_changes_while_it_is_read_is_another(url: str) -> None:
    put(url, "in/a.json", b"first")
    put(url, "in/_work/x.json", b"not yet")
    pattern = PathPattern.parse(f"{url}/in")
    source = open_source(pattern.root)
    ((blob, _),) = pattern.find(source)
    assert source.read_blob(blob) == b"first"
    put(url, "in/a.json", b"other")
    with pytest.raises(BlobGone, match="has changed"):
        source.read_blob(blob)
    assert source.head("no/such.json") is None


def test_a_store_that_does_not_exist_is_named(root: str) -> None:
    nowhere = root.replace("files", "nowhere")
    with pytest.raises(BlobError, match=f"{nowhere} cannot be listed"):
        open_source(nowhere).list("")


def test_a_job_over_files_joined_with_a_file(url: str, tmp_path: Path) -> None:
    for number in range(3):
        rows = b"\n".join(json.dumps({"k": "ab"[one % 2], "v": 10 * number + one}).encode() for one in range(4))
        put(url, f"in/{number}.json.gz", gzip.compress(rows))
    put(url, "ref/2020-01-01/booths.csv", b"k,name\na,Ada\nb,Bob\n")
    path = tmp_path / "job.toml"
    path.write_text(
        'name = "blobs"\nquery = "SELECT i.v, r.name, GetMetadataPropertyValue(i, \'BlobName\') AS blob INTO o FROM i '
        'JOIN r ON i.k = r.k"\n'
        f'[inputs.i]\ntype = "files"\npath = "{url}/in/*.json.gz"\nwatch = false\n'
        f'[inputs.r]\ntype = "reference"\nformat = "csv"\npath = "{url}/ref/{{date}}/booths.csv"\n'
        '[outputs.o]\ntype = "file"\npath = "o.jsonl"\n'
    )
    job = load_job(path)
    assert run_job(job, travelling(job), max_events_per_step=5).why == "complete"
    folder = f"{url.rpartition('/')[2]}/"
    found = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert found == [
        {"v": 10 * number + one, "name": ("Ada", "Bob")[one % 2], "blob": f"{folder}in/{number}.json.gz"}
        for number in range(3)
        for one in range(4)
    ]
