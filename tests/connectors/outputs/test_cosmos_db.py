"""A container of Cosmos DB as an output, against an account by its REST contract."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from tests.connectors.outputs.kit import Destination, OutputContract
from tests.cosmos_account import KEY, Account, account
from tests.http_receiver import Answer
from tests.job.rows import result_columns, result_rows
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import Identity, Mark, Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.messaging.cosmos_db import CosmosContainer, CosmosDbOutput, authorization
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import parse_time


class Container:
    def __init__(self, account: Account) -> None:
        self.account = account

    def opened(self, mark: Mark | None = None, *, drop: bool = False, **settings: Any) -> CosmosContainer:
        given = {
            "connection_string": self.account.connection_string,
            "database": "city",
            "container": "totals",
            **settings,
        }
        opening = OutputOpening(Identity("job", "out", "journal"), mark, drop=drop)
        output = open_output(CosmosDbOutput(type="cosmosdb", **given), opening)
        assert isinstance(output, CosmosContainer)
        return output

    def open_at(self, mark: Mark | None) -> Output:
        return self.opened(mark)

    def numbers(self) -> list[int]:
        return sorted(document["n"] for document in self.account.documents.values())


@pytest.fixture
def container() -> Iterator[Container]:
    with account() as one:
        yield Container(one)


class TestContract(OutputContract):
    knows_its_rows = False  # a container holds documents of many writers

    @pytest.fixture
    def destination(self, container: Container) -> Destination:
        return container


def test_a_request_is_signed_as_the_documentation_s_example() -> None:
    key = "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw=="
    header = authorization(base64.b64decode(key), "GET", "dbs", "dbs/ToDoList", "Thu, 27 Apr 2017 00:51:12 GMT")
    assert header == "type%3Dmaster%26ver%3D1.0%26sig%3Dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2Bc%2Bc%3D"


def test_documents_are_upserts_by_their_id(container: Container) -> None:
    noon = Datetime(parse_time("2026-01-01T12:00:00Z"))
    output = container.opened(document_id="Device")
    output.write(
        result_rows(
            [
                {"device": "a", "zone": "é", "t": noon, "n": 1},
                {"device": 7, "zone": None, "n": 2},
                {"device": "a", "zone": "é", "n": 3},
                {"device": "b", "n": 4},
            ]
        )
    )
    output.commit()
    assert container.account.documents == {
        ('["\\u00e9"]', "a"): {"device": "a", "zone": "é", "n": 3, "id": "a"},
        ("[null]", "7"): {"device": 7, "zone": None, "n": 2, "id": "7"},
        ("[{}]", "b"): {"device": "b", "n": 4, "id": "b"},
    }


def test_documents_of_one_id_are_written_in_their_order(container: Container) -> None:
    output = container.opened(document_id="k", parallel_requests=8)
    output.write(result_columns({"n": list(range(60)), "k": [f"k{number % 5}" for number in range(60)]}))
    output.commit()
    for key in range(5):
        written = [one["n"] for one in container.account.writes if one["id"] == f"k{key}"]
        assert written == list(range(key, 60, 5))


def test_an_id_in_the_row_is_the_document_s(container: Container) -> None:
    output = container.opened()
    output.write(result_rows([{"Id": "own", "n": 1}, {"n": 2}]))
    output.commit()
    ids = sorted(document["id"] for document in container.account.documents.values())
    assert ids[1] == "own"
    assert ids[0].endswith("-1")


def test_throttled_requests_wait_as_long_as_they_are_told(container: Container) -> None:
    container.account.next_answers = [Answer(429, {"x-ms-retry-after-ms": "1"}), Answer(449)]
    output = container.opened()
    output.write(result_columns({"n": [1, 2]}))
    output.commit()
    assert container.numbers() == [1, 2]


def test_what_the_account_refuses_has_the_service_s_names(container: Container) -> None:
    output = container.opened(drop=True, document_id="id", parallel_requests=1)
    output.write(
        result_rows([{"id": "a/b"}, {"id": None}, {"id": "big", "x": "x" * 2_100_000}, {"id": "taken", "n": 1}])
    )
    output.write(result_rows([{"id": "ok", "n": 2}]))
    container.account.next_answers = []
    write = container.account._write
    container.account._write = lambda request, documents: (
        Answer(409, {}, b'{"message": "Unique index constraint violation."}')
        if request.json["id"] == "taken"
        else write(request, documents)
    )
    assert output.commit()["dropped"] == 4
    kinds = [row.kind.partition(".")[2] for row in output.drain_rejected_rows()]
    assert kinds == ["TypeConversionError", "TypeConversionError", "RecordExceededSizeLimit", "DuplicateKey"]
    assert container.numbers() == [2]


def test_an_account_that_fails_is_tried_again_for_what_is_left(container: Container) -> None:
    output = container.opened(parallel_requests=1)
    output.write(result_columns({"n": [1, 2, 3]}))
    container.account.next_answers = [Answer(503)]
    with pytest.raises(OutputUnavailableError, match="answered 503"):
        output.commit()
    output.commit()
    assert [one["n"] for one in container.account.writes] == [1, 2, 3]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"connection_string": "sEcReT"}, "output 'out': expected AccountEndpoint="),
        ({"container": "other"}, "answered 404: Resource Not Found.; create the database and the container"),
    ],
)
def test_an_account_that_cannot_be_used(container: Container, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(OutputError) as caught:
        container.opened(**settings)
    assert said in str(caught.value)
    assert "sEcReT" not in str(caught.value)


def test_a_wrong_key_is_not_repeated(container: Container) -> None:
    wrong = base64.b64encode(b"sEcReT").decode()
    with pytest.raises(OutputError, match="answered 401") as caught:
        container.opened(connection_string=container.account.connection_string.replace(KEY, wrong))
    assert wrong not in str(caught.value)


@pytest.mark.parametrize(("status", "ends"), [(401, True), (404, True), (403, False)])
def test_a_key_or_container_that_is_gone_ends_the_job_at_once(container: Container, status: int, ends: bool) -> None:
    output = container.opened()
    container.account.next_answers = [Answer(status, {}, b'{"message": "gone"}')]
    output.write(result_rows([{"n": 1}]))
    with pytest.raises(OutputError, match=f"answered {status}: gone") as caught:
        output.commit()
    assert isinstance(caught.value, OutputUnavailableError) is not ends
