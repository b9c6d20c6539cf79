"""Results over HTTP: batches, answers of every kind, poison, lanes; for functions and for Power BI."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http_receiver import Answer, Receiver, Request, receiver
from tests.job.rows import result_columns, result_rows
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.retry_policy import RetryPolicy
from tidegate.connectors.outputs import Identity, Mark, Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.messaging.http_client import Reply
from tidegate.connectors.outputs.messaging.http_sink import HttpRow, batches_of, ranges_of
from tidegate.connectors.outputs.messaging.power_bi import PowerBiOutput
from tidegate.connectors.outputs.messaging.webhook import WebhookOutput
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import parse_time


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


class Webhook:
    """An output to a receiver, with a state folder."""

    def __init__(self, there: Receiver, folder: Path) -> None:
        self.there = there
        self.folder = folder

    def opened(self, mark: Mark | None = None, *, drop: bool = False, **settings: Any) -> Output:
        definition = WebhookOutput(type="webhook", url=f"{self.there.url}/api/f?code=sEcReT", **settings)
        opening = OutputOpening(Identity("job", "out", "journal"), mark, drop=drop, folder=self.folder)
        return open_output(definition, opening)

    def batches(self) -> list[list[int]]:
        return [[row["n"] for row in request.json] for request in self.there.requests]

    def numbers(self) -> list[int]:
        """What a receiver has that leaves out rows it knows, by the numbers in the requests."""
        return sorted({row["n"] for request in self.there.requests for row in request.json})


@pytest.fixture
def webhook(there: Receiver, tmp_path: Path) -> Webhook:
    return Webhook(there, tmp_path)


def rows(first: int, count: int) -> Any:
    return result_columns({"n": list(range(first, first + count))})


def answers(*some: Answer) -> Any:
    left = iter(some)
    return lambda request: next(left, Answer())


def test_batches_by_count_and_size(webhook: Webhook) -> None:
    output = webhook.opened(key="k", headers={"X-Own": "1"}, max_batch_count=3)
    output.write(rows(0, 4))
    output.write(rows(4, 3))
    assert output.commit() == {"type": "webhook", "rows": 7, "dropped": 0}
    output.close()
    assert webhook.batches() == [[0, 1, 2], [3, 4, 5], [6]]
    first = webhook.there.requests[0]
    assert (first.method, first.path) == ("POST", "/api/f?code=sEcReT")
    assert first.headers.items() >= {"x-functions-key": "k", "x-own": "1", "content-type": "application/json"}.items()
    assert [request.headers["tidegate-rows"] for request in webhook.there.requests] == ["0-2", "3-5", "6"]
    assert len({request.headers["tidegate-output"] for request in webhook.there.requests}) == 1


def test_a_batch_is_as_large_as_its_limit_and_a_larger_row_is_alone() -> None:
    made = [HttpRow(number, 0, b"x" * size) for number, size in enumerate((10, 10, 50, 10))]
    assert [[row.number for row in batch] for batch in batches_of(made, 10, 24)] == [[0, 1], [2], [3]]
    assert ranges_of([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


def test_413_makes_batches_smaller_for_good(webhook: Webhook) -> None:
    webhook.there.behaviour = lambda request: Answer(413 if len(request.json) > 2 else 200)
    output = webhook.opened(max_batch_count=8)
    output.write(rows(0, 12))
    output.commit()
    assert webhook.batches() == [list(range(8)), [0, 1, 2, 3], [0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]


def test_a_row_that_is_too_large_by_itself(webhook: Webhook) -> None:
    webhook.there.behaviour = lambda request: Answer(413 if 1 in (row["n"] for row in request.json) else 200)
    output = webhook.opened(drop=True)
    output.write(rows(0, 3))
    assert output.commit()["dropped"] == 1
    (row,) = output.drain_rejected_rows()
    assert (row.kind, row.row) == ("OutputDataConversionError.RecordExceededSizeLimit", 1)


@pytest.mark.parametrize("status", [0, 408, 429, 503])
def test_what_passes_is_tried_again_and_what_was_delivered_is_not(webhook: Webhook, status: int) -> None:
    webhook.there.behaviour = answers(Answer(), *[Answer(status)] * 2)
    output = webhook.opened(max_batch_count=2)
    output.write(rows(0, 4))
    RetryPolicy(60, sleep=lambda seconds: None).call("output", output.commit)
    assert webhook.batches()[0] == [0, 1]
    assert webhook.batches()[1:] == [[2, 3]] * (len(webhook.batches()) - 1)
    assert webhook.numbers() == [0, 1, 2, 3]


def test_the_time_that_the_receiver_asks_for() -> None:
    assert Reply(429, {"retry-after": "7"}, b"").retry_after_s() == 7
    assert Reply(429, {"x-ms-retry-after-ms": "250"}, b"").retry_after_s() == 0.25
    assert Reply(503, {"retry-after": "Fri, 31 Dec 2999 23:59:59 GMT"}, b"").retry_after_s() == 60
    assert Reply(503, {"retry-after": "soon"}, b"").retry_after_s() == 0


def test_a_poison_batch_is_kept_where_a_user_can_see_it(webhook: Webhook) -> None:
    webhook.there.behaviour = lambda request: Answer(
        400 if 3 in (row["n"] for row in request.json) else 200, {}, b"no!"
    )
    output = webhook.opened(drop=True, max_batch_count=2)
    output.write(rows(0, 6))
    assert output.commit()["dropped"] == 2
    (path,) = (webhook.folder / "poison" / "out").iterdir()
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert path.name == "2-3.json"
    assert kept["batch"] == [{"n": 2}, {"n": 3}]
    assert kept["answer"] == {"status": 400, "body": "no!"}
    messages = [row.message for row in output.drain_rejected_rows()]
    assert all(f"answered 400: no!; the batch is in {path}" in message for message in messages)
    assert "sEcReT" not in messages[0]
    assert webhook.batches() == [[0, 1], [2, 3], [4, 5]]


def test_a_batch_on_which_the_function_fails_is_poison_after_some_attempts(webhook: Webhook) -> None:
    webhook.there.behaviour = lambda request: Answer(500)
    output = webhook.opened(attempts=3)
    output.write(rows(0, 2))
    for _ in range(2):
        with pytest.raises(OutputUnavailableError, match="answered 500"):
            output.commit()
    with pytest.raises(OutputError, match=r"answered 500; the batch is in .*0-1\.json"):
        output.commit()
    assert len(webhook.there.requests) == 3


def test_results_of_a_key_stay_in_order_in_parallel(webhook: Webhook) -> None:
    output = webhook.opened(parallel_requests=4, partition_key="k", max_batch_count=3)
    output.write(result_columns({"n": list(range(100)), "k": [f"k{number % 7}" for number in range(100)]}))
    output.commit()
    output.close()
    by_key: dict[str, list[int]] = {}
    for row in itertools.chain.from_iterable(request.json for request in webhook.there.requests):
        by_key.setdefault(row["k"], []).append(row["n"])
    assert by_key == {f"k{key}": list(range(key, 100, 7)) for key in range(7)}


def test_rows_since_the_last_commit_are_posted_again_with_their_numbers(webhook: Webhook) -> None:
    output = webhook.opened()
    output.write(rows(0, 2))
    mark = output.commit()
    output.write(rows(2, 2))
    output.commit()
    again = webhook.opened(mark)
    again.write(rows(2, 3))
    again.commit()
    assert webhook.numbers() == [0, 1, 2, 3, 4]
    assert [request.headers["tidegate-rows"] for request in webhook.there.requests] == ["0-1", "2-3", "2-4"]


def test_a_receiver_that_is_not_there_is_named_without_its_key(tmp_path: Path) -> None:
    output = Webhook(Receiver("http://127.0.0.1:1"), tmp_path).opened()
    output.write(rows(0, 1))
    with pytest.raises(OutputUnavailableError, match=r"cannot reach http://127\.0\.0\.1:1/api/f") as caught:
        output.commit()
    assert "sEcReT" not in str(caught.value)
    with pytest.raises(OutputError, match="output 'out': expected a URL"):
        open_output(WebhookOutput(type="webhook", url="ftp://x"), OutputOpening(Identity("job", "out", "j")))


def test_power_bi_takes_arrays_of_simple_values_at_its_pace(there: Receiver) -> None:
    definition = PowerBiOutput(type="powerbi", push_url=f"{there.url}/rows?key=sEcReT", requests_per_minute=6_000)
    output = open_output(definition, OutputOpening(Identity("job", "out", "journal")))
    noon = Datetime(parse_time("2026-01-01T12:00:00Z"))
    output.write(result_rows([{"n": 1, "r": {"a": 1}, "l": [1], "t": noon}]))
    output.write(rows(0, 20_001))
    assert output.commit() == {"type": "powerbi", "rows": 20_002, "dropped": 0}
    output.close()
    assert [len(request.json) for request in there.requests] == [10_000, 10_000, 2]
    assert there.requests[0].json[0] == {"n": 1, "r": "IRecord", "l": "IArray", "t": "2026-01-01T12:00:00.0000000Z"}
    assert isinstance(there.requests[0], Request)
