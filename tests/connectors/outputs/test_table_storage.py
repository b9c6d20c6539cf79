"""Table storage as an output, against Azurite and read back by Microsoft's client."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import AccountSasPermissions, ResourceTypes, TableServiceClient, generate_account_sas
from pydantic import ValidationError

from tests.azurite import azurite_tables
from tests.connectors.outputs.kit import Destination, OutputContract
from tests.http_receiver import Answer, receiver
from tests.job.rows import result_columns, result_rows
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import Identity, Mark, Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.messaging.table_storage import StorageTable, TableService, TableStorageOutput
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import parse_time

_names = itertools.count(1)


class Table:
    def __init__(self, connection_string: str, **settings: Any) -> None:
        self.connection_string = connection_string
        self.name = f"t{next(_names):03}"
        self.client = TableServiceClient.from_connection_string(connection_string).get_table_client(self.name)
        self.settings = settings

    def opened(self, mark: Mark | None = None, *, drop: bool = False, **settings: Any) -> StorageTable:
        given = {
            "connection_string": self.connection_string,
            "table": self.name,
            "partition_key": "n",
            "row_key": "n",
            **self.settings,
            **settings,
        }
        opening = OutputOpening(Identity("job", "out", "journal"), mark, drop=drop)
        output = open_output(TableStorageOutput(type="tablestorage", **given), opening)
        assert isinstance(output, StorageTable)
        return output

    def open_at(self, mark: Mark | None) -> Output:
        return self.opened(mark)

    def entities(self) -> list[dict[str, Any]]:
        return [dict(one) for one in self.client.list_entities()]

    def numbers(self) -> list[int]:
        return sorted(one["n"].value for one in self.entities())


@pytest.fixture(scope="module")
def account() -> Iterator[str]:
    with azurite_tables() as connection_string:
        yield connection_string


@pytest.fixture
def table(account: str) -> Table:
    return Table(account)


class TestContract(OutputContract):
    knows_its_rows = False  # a table holds entities of many writers

    @pytest.fixture
    def destination(self, table: Table) -> Destination:
        return table


def test_each_type_is_that_of_the_store(table: Table) -> None:
    noon = Datetime(parse_time("2026-01-01T12:00:00.1234567Z"))
    output = table.opened(partition_key="Device", row_key="t", columns_to_remove=("Secret",))
    row = {"device": "it's é%", "t": noon, "whole": 1 << 60, "half": 2.0, "yes": True, "text": "a\r\nb", "none": None}
    output.write(result_rows([{**row, "record": {"a": [noon]}, "list": [1], "secret": 1}]))
    output.write(result_columns({"device": ["b", "b"], "t": ["x", "y"], "half": [0.5, None], "record": [None, "text"]}))
    output.commit()
    first, second, third = sorted(table.entities(), key=lambda one: str(one["RowKey"]))
    assert (first.pop("PartitionKey"), first.pop("RowKey")) == ("it's é%", "2026-01-01T12:00:00.1234567Z")
    assert first.pop("whole").value == 1 << 60
    assert first.pop("t").isoformat() == "2026-01-01T12:00:00.123456+00:00"
    assert isinstance(first["half"], float)
    assert first == {
        "device": "it's é%",
        "half": 2.0,
        "yes": True,
        "text": "a\r\nb",
        "record": '{"a":["2026-01-01T12:00:00.1234567Z"]}',
        "list": "[1]",
    }
    assert second == {"PartitionKey": "b", "RowKey": "x", "device": "b", "t": "x", "half": 0.5}
    assert third == {"PartitionKey": "b", "RowKey": "y", "device": "b", "t": "y", "record": "text"}


def test_a_later_result_with_the_same_keys_replaces_the_entity(table: Table) -> None:
    output = table.opened(partition_key="k", row_key="r")
    output.write(result_rows([{"k": "a", "r": "1", "old": 1}, {"k": "a", "r": "2"}, {"k": "a", "r": "1", "n": 2}]))
    output.write(result_rows([{"k": "b", "r": "1", "n": 1}, {"k": "a", "r": "2", "n": 3}]))
    output.commit()
    found = {(one["PartitionKey"], one["RowKey"]): one for one in table.entities()}
    assert {keys: one["n"].value for keys, one in found.items()} == {("a", "1"): 2, ("a", "2"): 3, ("b", "1"): 1}
    assert "old" not in found["a", "1"]


def test_many_results_go_in_transactions_of_the_batch_size() -> None:
    with receiver() as there:
        there.behaviour = lambda request: Answer(202, {}, b"HTTP/1.1 204 No Content\r\n")
        key = base64.b64encode(b"key").decode()
        table = Table(f"AccountName=a;AccountKey={key};TableEndpoint={there.url};", batch_size=30)
        output = table.opened(partition_key="k", row_key="n")
        output.write(result_columns({"k": ["a", "b"] * 50, "n": list(range(100))}))
        output.commit()
        batches = [request.body for request in there.requests if request.path == "/$batch"]
        assert sorted(body.count(b"PUT ") for body in batches) == [20, 20, 30, 30]
        assert all((b"'a'" in body) != (b"'b'" in body) for body in batches)


def test_rows_that_the_store_refuses_have_the_service_s_names_and_others_are_there(table: Table) -> None:
    output = table.opened(drop=True, partition_key="k", row_key="r")
    output.write(
        result_rows(
            [
                {"k": "a", "r": "1", "n": 1},
                {"k": "a/b", "r": "1"},
                {"k": "a", "r": None},
                {"k": "a", "r": "2", "text": "x" * 40_000},
                {"k": "a", "r": "x" * 600},
                {"k": "a", "r": "3", "window end": 1},
                {"k": "a", "r": "4", "Timestamp": 1},
                {"k": "a", "r": "5", "n": 2},
            ]
        )
    )
    assert output.commit()["dropped"] == 6
    kinds = sorted(row.kind.partition(".")[2] for row in output.drain_rejected_rows())
    assert kinds == [
        "ColumnNameInvalid",
        "ColumnNameInvalid",
        "RecordExceededSizeLimit",
        "RecordExceededSizeLimit",
        "RequiredColumnMissing",
        "TypeConversionError",
    ]
    assert table.numbers() == [1, 2]


def test_a_row_that_is_refused_ends_a_job_that_stops(table: Table) -> None:
    output = table.opened(partition_key="k", row_key="n")
    with pytest.raises(OutputError, match=r"column 'k': an entity needs a value in it.*RequiredColumnMissing"):
        output.write(result_rows([{"n": 1}]))


def test_a_transaction_that_is_too_large_is_halved() -> None:
    sizes = []

    def behaviour(request: Any) -> Answer:
        if not request.path.startswith("/$batch"):
            return Answer(201)
        sizes.append(request.body.count(b"PUT "))
        return Answer(413) if sizes[-1] > 3 else Answer(202, {}, b"HTTP/1.1 204 No Content\r\n")

    with receiver() as there:
        there.behaviour = behaviour
        output = Table(f"TableEndpoint={there.url};SharedAccessSignature=sig=x").opened(partition_key="k")
        output.write(result_columns({"k": ["a"] * 8, "n": list(range(8))}))
        output.commit()
    assert sizes == [8, 4, 2, 2, 4, 2, 2]


def test_a_store_that_fails_is_tried_again_for_what_is_left() -> None:
    answers = [Answer(201), Answer(202, {}, b"HTTP/1.1 204 \r\n"), Answer(503)]
    with receiver() as there:
        there.behaviour = lambda request: answers.pop(0) if answers else Answer(202, {}, b"HTTP/1.1 204 \r\n")
        table = Table(f"TableEndpoint={there.url};SharedAccessSignature=?sig=sEcReT;", parallel_requests=1)
        output = table.opened()
        output.write(result_columns({"n": [1, 2, 3]}))
        with pytest.raises(OutputUnavailableError, match="answered 503") as caught:
            output.commit()
        assert "sEcReT" not in str(caught.value)
        output.commit()
        assert there.requests[1].path.endswith("/$batch?sig=sEcReT")
        written = [b"'1'" in one.body or b"'2'" in one.body or b"'3'" in one.body for one in there.requests[1:]]
        assert written == [True] * 4


def test_a_signature_that_may_only_write_is_enough(account: str, table: Table) -> None:
    parts = dict(part.partition("=")[::2] for part in account.split(";") if part)
    signature = generate_account_sas(
        AzureNamedKeyCredential(parts["AccountName"], parts["AccountKey"]),
        ResourceTypes(object=True),
        AccountSasPermissions(add=True, update=True, write=True),
        datetime.now(UTC) + timedelta(hours=1),
    )
    table.client.create_table()
    output = table.opened(
        connection_string=f"TableEndpoint={parts['TableEndpoint']};SharedAccessSignature={signature};"
    )
    output.write(result_columns({"n": [1, 2]}))
    output.commit()
    assert table.numbers() == [1, 2]


@pytest.mark.parametrize(
    ("connection_string", "endpoint"),
    [
        ("UseDevelopmentStorage=true", "http://127.0.0.1:10002/devstoreaccount1"),
        ("AccountName=a;AccountKey=QQ==;EndpointSuffix=core.example.com", "https://a.table.core.example.com"),
        ("AccountName=a;AccountKey=QQ==", "https://a.table.core.windows.net"),
        ("TableEndpoint=https://example.com/;SharedAccessSignature=?sig=x", "https://example.com"),
    ],
)
def test_an_account_is_named_by_its_connection_string(connection_string: str, endpoint: str) -> None:
    assert TableService.parse(connection_string, "out").endpoint == endpoint


@pytest.mark.parametrize("connection_string", ["sEcReT", "AccountName=a;AccountKey=sEcReT", "TableEndpoint=sEcReT"])
def test_an_account_that_is_not_named_is_an_error_without_the_secret(connection_string: str) -> None:
    with pytest.raises(OutputError, match="expected the connection string of a storage account") as caught:
        TableService.parse(connection_string, "out")
    assert "sEcReT" not in str(caught.value)


@pytest.mark.parametrize(
    "connection_string",
    ["AccountName=127.0.0.1/sEcReT;AccountKey=QQ==", "AccountName=a;AccountKey=QQ==;EndpointSuffix=x@127.0.0.1/sEcReT"],
)
def test_an_account_is_no_more_of_an_address_than_a_name(connection_string: str) -> None:
    with pytest.raises(OutputError, match="part of a host's name") as caught:
        TableService.parse(connection_string, "out")
    assert "sEcReT" not in str(caught.value)


def test_a_wrong_key_is_refused_when_the_job_starts(account: str, table: Table) -> None:
    wrong = base64.b64encode(b"sEcReT").decode()
    key = next(part for part in account.split(";") if part.startswith("AccountKey"))
    with pytest.raises(OutputError, match="answered 403 AuthorizationFailure: Server failed to auth") as caught:
        table.opened(connection_string=account.replace(key, f"AccountKey={wrong}"))
    assert wrong not in str(caught.value)


def test_a_table_that_is_deleted_ends_the_job_at_once(table: Table) -> None:
    output = table.opened()
    table.client.delete_table()
    output.write(result_rows([{"n": 1}]))
    said = r"answered 404 TableNotFound: .*a job that starts creates the table"
    with pytest.raises(OutputError, match=said) as caught:
        output.commit()
    assert not isinstance(caught.value, OutputUnavailableError)
    again = table.opened()
    again.write(result_rows([{"n": 1}]))
    again.commit()
    assert table.numbers() == [1]


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_no_longer_accepted_ends_the_job_at_once(status: int) -> None:
    with receiver() as there:
        there.behaviour = lambda request: Answer(201)
        key = base64.b64encode(b"key").decode()
        output = Table(f"AccountName=a;AccountKey={key};TableEndpoint={there.url};").opened()
        refusal = b"<error><code>AuthenticationFailed</code><message>the key is not accepted</message></error>"
        there.behaviour = lambda request: Answer(status, {}, refusal)
        output.write(result_rows([{"n": 1}]))
        with pytest.raises(OutputError, match=f"answered {status} AuthenticationFailed: the key") as caught:
            output.commit()
        assert not isinstance(caught.value, OutputUnavailableError)


def test_settings_are_checked() -> None:
    given = {"type": "tablestorage", "connection_string": "x", "partition_key": "k", "row_key": "r"}
    with pytest.raises(ValidationError, match="expected 3 to 63 letters and digits, of which the first is a letter"):
        TableStorageOutput.model_validate({**given, "table": "1x"})
    with pytest.raises(ValidationError, match="batch_size"):
        TableStorageOutput.model_validate({**given, "table": "rows", "batch_size": 101})
