"""Redis as an output, against a Redis server: streams and values by key, each result once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pydantic import ValidationError

from tests.connectors.outputs.kit import Destination, OutputContract
from tests.job.rows import result_columns, result_rows
from tests.redis_server import redis_server
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import Identity, Mark, Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.messaging.redis import RedisDatabase, RedisOutput
from tidegate.outbound import AddressPolicy

_numbers = itertools.count(1)


class Stream:
    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self.client = redis.Redis.from_url(url, decode_responses=True)

    def opened(self, mark: Mark | None = None, *, drop: bool = False, **settings: Any) -> RedisDatabase:
        given = settings if "key_column" in settings else {"stream": self.name, **settings}
        opening = OutputOpening(Identity(self.name, "out", "journal"), mark, drop=drop)
        output = open_output(RedisOutput(type="redis", connection_string=self.url, **given), opening)
        assert isinstance(output, RedisDatabase)
        return output

    def open_at(self, mark: Mark | None) -> Output:
        return self.opened(mark)

    def entries(self) -> list[dict[str, str]]:
        return [fields for _, fields in self.client.xrange(self.name)]

    def numbers(self) -> list[int]:
        return sorted(int(fields["n"]) for fields in self.entries())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
def stream(url: str) -> Stream:
    return Stream(url, f"s{next(_numbers)}")


def rows(first: int, count: int) -> Any:
    return result_columns({"n": list(range(first, first + count))})


class TestContract(OutputContract):
    @pytest.fixture
    def destination(self, stream: Stream) -> Destination:
        return stream


def test_columns_are_fields(stream: Stream) -> None:
    output = stream.opened()
    output.write(result_rows([{"n": 1, "t": "é", "b": True, "r": {"x": [1]}, "none": None}, {"none": None}]))
    output.commit()
    assert stream.entries() == [{"n": "1", "t": "é", "b": "true", "r": '{"x":[1]}'}, {"": ""}]


def test_a_stream_keeps_about_as_many_entries_as_it_may(stream: Stream) -> None:
    output = stream.opened(max_length=1_000)
    output.write(rows(0, 12_000))
    output.commit()
    assert 1_000 <= len(stream.entries()) < 2_000
    assert stream.entries()[-1] == {"n": "11999"}


@pytest.mark.parametrize("value", ["json", "hash"])
def test_the_latest_result_of_each_key(stream: Stream, value: str) -> None:
    prefix = f"{stream.name}-{value}:"
    # It is replaced, whatever it is.
    stream.client.rpush(f"{prefix}a", "old")
    output = stream.opened(key_column="K", key_prefix=prefix, value=value, expire_s=1_000)
    output.write(result_rows([{"k": "a", "n": 1, "old": 1}, {"k": 7, "n": 2}, {"k": "a", "n": 3}]))
    output.commit()
    read = (lambda key: json.loads(stream.client.get(key))) if value == "json" else stream.client.hgetall
    number = int if value == "json" else str
    assert read(f"{prefix}a") == {"k": "a", "n": number(3)}
    assert read(f"{prefix}7") == {"k": number(7), "n": number(2)}
    assert 0 < stream.client.ttl(f"{prefix}a") <= 1_000


def test_a_result_without_a_key(stream: Stream) -> None:
    output = stream.opened(key_column="k", key_prefix=f"{stream.name}:", drop=True)
    output.write(result_rows([{"k": None, "n": 1}, {"k": "a"}]))
    assert output.commit()["dropped"] == 1
    (row,) = output.drain_rejected_rows()
    assert row.kind == "OutputDataConversionError.RequiredColumnMissing"


def test_a_reply_that_was_lost_leaves_each_row_once(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    output = stream.opened()
    output.write(rows(0, 12_000))
    write, parts = output._write, itertools.count(1)

    def lose_the_reply(messages: Any, after: int) -> None:
        if next(parts) == 2:
            held = output._held
            write(messages, after)
            output._held = held
            raise redis.exceptions.ConnectionError("gone")
        write(messages, after)

    monkeypatch.setattr(output, "_write", lose_the_reply)
    with pytest.raises(OutputUnavailableError, match="gone"):
        output.commit()
    output.commit()
    assert stream.numbers() == list(range(12_000))


def test_a_second_run_finds_that_the_mark_has_moved(stream: Stream) -> None:
    first = stream.opened()
    mark = first.commit()
    second = stream.opened(mark)
    first.write(rows(0, 2))
    first.commit()
    second.write(rows(0, 1))
    second.commit()  # it skips what is there
    second._held = 0
    with pytest.raises(OutputError, match="was moved by another run of this job"):
        second._write([], 1)
    assert stream.numbers() == [0, 1]


def test_a_database_that_was_lost(stream: Stream) -> None:
    output = stream.opened()
    output.write(rows(0, 2))
    mark = output.commit()
    with pytest.raises(OutputError, match=r"has 2 results of output 'out' of job '.*', but the journal committed 5"):
        stream.opened({**mark, "rows": 5})
    stream.client.delete(output._mark_key)
    with pytest.raises(OutputError, match="is gone, so it is unknown which results"):
        stream.opened(mark)


def test_a_key_that_is_no_stream(stream: Stream) -> None:
    stream.client.set(stream.name, "x")
    with pytest.raises(OutputError, match="holds a string, not a stream"):
        stream.opened()


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    with pytest.raises(OutputUnavailableError, match=r"Redis at 127\.0\.0\.1") as caught:
        Stream("redis://:sEcReT@127.0.0.1:1", "s").opened()
    assert "sEcReT" not in str(caught.value)
    with pytest.raises(OutputError, match="is no address of Redis") as caught_too:
        open_output(
            RedisOutput(type="redis", connection_string="sEcReT", stream="s"), OutputOpening(Identity("j", "o", "j"))
        )
    assert "sEcReT" not in str(caught_too.value)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "unix:///run/redis.sock"])
def test_a_guarded_job_connects_to_no_redis_of_this_machine(url: str) -> None:
    with AddressPolicy.guarded().in_force(), pytest.raises(OutputError, match="cannot reach Redis"):
        Stream(url, "s").opened()


@pytest.mark.parametrize("given", [{}, {"stream": "s", "key_column": "k"}])
def test_a_stream_or_keys(given: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="either 'stream' or 'key_column'"):
        RedisOutput(type="redis", connection_string="redis://h", **given)
