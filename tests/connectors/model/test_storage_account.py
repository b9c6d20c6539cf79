"""Paths in more than one storage account."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pydantic import ValidationError

from tests.azurite import azurite, container, of_other_account
from tests.job.run.test_run import run_here
from tidegate.blobs import open_source
from tidegate.blobs.object_store import CONNECTION_STRING
from tidegate.connectors.outputs.files.files_output import FilesOutput
from tidegate.connectors.outputs.tables.delta import _storage_options

JOB = (
    """
name = "accounts"
query = """
    + '"""'
    + """
SELECT s.id, r.name INTO o FROM s JOIN r ON s.id = r.id
SELECT s.id, r.name INTO d FROM s JOIN r ON s.id = r.id
"""
    + '"""'
    + """
[inputs.s]
type = "files"
path = "az://data/in"
watch = false
settle_s = 0
connection_string = "{first}"
[inputs.r]
type = "reference"
path = "az://data/table.csv"
format = "csv"
connection_string = "{second}"
[outputs.o]
type = "files"
path = "az://data/out"
connection_string = "{second}"
[outputs.d]
type = "deltalake"
path = "az://data/delta"
columns = {{ id = "bigint", name = "nvarchar(max)" }}
connection_string = "{second}"
"""
)


@pytest.mark.sdk
def test_each_input_and_output_may_be_in_an_account_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONNECTION_STRING, raising=False)
    with azurite() as first:
        second = of_other_account(first)
        with container(first, "data") as one, container(second, "data") as other:
            one.upload_blob("in/a.json", b'{"id": 1}\n{"id": 2}\n')
            other.upload_blob("table.csv", b"id,name\n1,Ann\n2,Bo\n")
            path = tmp_path / "job.toml"
            path.write_text(JOB.format(first=first, second=second), encoding="utf-8")
            run_here(path)
            assert [blob.name for blob in one.list_blobs()] == ["in/a.json"]
            (name,) = (blob.name for blob in other.list_blobs() if blob.name.endswith(".jsonl"))
            rows = [json.loads(line) for line in other.download_blob(name).readall().splitlines()]
            options = _storage_options("az://data/delta", {CONNECTION_STRING: second})
            table = DeltaTable("az://data/delta", storage_options=options).to_pyarrow_table().sort_by("id").to_pylist()
        # Workers read with the credentials of the section, too.
        sources = [open_source("az://data", {CONNECTION_STRING: given}) for given in (first, second)]
        names = [[blob.name for blob in pickle.loads(pickle.dumps(source)).list("in")] for source in sources]
    assert names == [["in/a.json"], []]
    assert sources[0] != sources[1]
    assert rows == table == [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bo"}]


def test_a_connection_string_of_no_account_is_refused_without_its_key() -> None:
    def refused(path: str, connection_string: str) -> str:
        with pytest.raises(ValidationError) as caught:
            FilesOutput(type="files", path=path, connection_string=connection_string)
        (error,) = caught.value.errors(include_input=False, include_url=False)
        return error["msg"]

    account = "AccountName=a;AccountKey=sEcReT"
    assert "expected az://CONTAINER/…" in refused("results", account)
    assert "expected az://CONTAINER/…" in refused("s3://bucket/results", account)
    assert "connection_string names no account" in refused("az://c/results", "AccountKey=sEcReT")
    assert "connection_string is not of the form" in refused("az://c/results", "sEcReT")
    FilesOutput(type="files", path="abfss://c/results", connection_string=account)
