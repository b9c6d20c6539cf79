"""The data explorer over HTTP: what is sent can be browsed, searched, followed and downloaded."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.patience import PATIENCE_S
from tests.portal.conftest import CONFIG, Client
from tidegate.amqp.messages import Message, encode_message
from tidegate.portal import portal
from tidegate.portal.events.sending import EventSender
from tidegate.server import BackgroundServer, Server

MakeHub = Callable[..., str]


def test_events_are_sent_with_key_properties_and_repeat_and_browsed(client: Client, make_hub: MakeHub) -> None:
    hub = make_hub(4)
    body = {
        "body": '{"n": {{index}}}',
        "partitionKey": "same",
        "contentType": "application/json",
        "properties": [{"name": "p", "type": "number", "value": "{{index}}"}],
        "repeat": 30,
    }
    assert client.post(f"/eventhubs/{hub}/send", body).data == {"sent": 30}
    page = client.get(f"/eventhubs/{hub}/events.json?limit=10")
    assert [json.loads(event["body"])["n"] for event in page["events"]] == list(range(20, 30))
    assert {event["partition"] for event in page["events"]} == {page["events"][0]["partition"]}
    assert page["events"][-1]["properties"] == {"p": 29}
    older = client.get(f"/eventhubs/{hub}/events.json?limit=25&before={page['backward']}")
    assert [json.loads(event["body"])["n"] for event in older["events"]] == list(range(20))
    assert older["isComplete"]
    client.post(f"/eventhubs/{hub}/send", {"body": "later"})
    fresh = client.get(f"/eventhubs/{hub}/events.json?after={page['forward']}")
    assert [event["body"] for event in fresh["events"]] == ["later"]


def test_how_much_there_is_to_search_is_told_and_a_hub_without_jobs_decodes_nothing(
    client: Client, make_hub: MakeHub
) -> None:
    hub = make_hub()
    client.post(f"/eventhubs/{hub}/send", {"body": "x{{index}}", "partition": "0", "repeat": 5})
    found = client.get(f"/eventhubs/{hub}/events.json?search=x1%20OR%20x3")
    assert [event["body"] for event in found["events"]] == ["x1", "x3"]
    assert (found["searched"], found["extent"]) == (5, 5)
    answer = client.request("GET", f"/eventhubs/{hub}/events/0/0/decoded.json")
    assert (answer.status, "without jobs" in answer.text) == (404, True)


def test_a_value_whose_schema_is_in_the_registry_is_decoded(client: Client, server: Server, make_hub: MakeHub) -> None:
    hub, ids = make_hub(1), {}
    for form, text in (("JSON", "{}"), ("AVRO", '"string"'), ("PROTOBUF", 'syntax = "proto3"; message M {}')):
        body = {"group": "default", "subject": f"{hub}-{form}", "format": form, "schema": text}
        assert client.post("/schemas/register", body).status == 200
        (row,) = [one for one in client.get("/schemas.json")["subjects"] if one["subject"] == body["subject"]]
        ids[form] = row["latestId"]
    ids["no such schema"] = 999_999
    events = [
        encode_message(Message(body_kind="data", body=[b"\0" + number.to_bytes(4, "big") + b'{"a": 1}']))
        for number in ids.values()
    ]
    stored = threading.Event()
    server.namespace.event_hub(hub).partitions[0].log.append(events, lambda *_: stored.set())
    assert stored.wait(PATIENCE_S)
    assert {one["format"] for one in client.get(f"/eventhubs/{hub}/events.json")["events"]} == {"framed"}
    found = client.get(f"/eventhubs/{hub}/events/0/0/decoded.json")
    assert (found["records"], found["schema"]) == ([{"a": 1}], f"{hub}-JSON version 1, id {ids['JSON']}")
    answers = [client.request("GET", f"/eventhubs/{hub}/events/0/{number}/decoded.json") for number in (1, 2, 3)]
    assert [answer.status for answer in answers] == [404, 404, 200]
    assert all("without jobs" in answer.text for answer in answers[:2])
    assert answers[2].data["count"] == 0


def test_a_partition_can_be_chosen_for_sending_and_browsing(client: Client, make_hub: MakeHub) -> None:
    hub = make_hub(4)
    client.post(f"/eventhubs/{hub}/send", {"body": "x{{index}}", "partition": "2", "repeat": 3})
    assert len(client.get(f"/eventhubs/{hub}/events.json?partition=2")["events"]) == 3
    assert not client.get(f"/eventhubs/{hub}/events.json?partition=1")["events"]
    assert client.request("GET", f"/eventhubs/{hub}/events.json?partition=9").status == 400
    found = client.get(f"/eventhubs/{hub}/events.json?from=sequence&value=1&partition=2&search=x2")
    assert [event["sequenceNumber"] for event in found["events"]] == [2]


@pytest.mark.slow
def test_events_are_downloaded_as_they_were_searched(client: Client, make_hub: MakeHub) -> None:
    hub = make_hub()
    client.post(f"/eventhubs/{hub}/send", {"body": '{"n": {{index}}, "even": "{{cycle yes no}}"}', "repeat": 1200})
    url = f"/eventhubs/{hub}/events/download?search=even:yes&limit=100000"
    lines = client.request("GET", f"{url}&format=jsonl")
    assert "attachment" in lines.headers["content-disposition"]
    assert sorted(json.loads(line)["body"]["n"] for line in lines.text.splitlines()) == list(range(0, 1200, 2))
    rows = list(csv.DictReader(io.StringIO(client.request("GET", f"{url}&format=csv").text)))
    assert len(rows) == 600
    assert json.loads(rows[0]["body"])["even"] == "yes"
    assert client.request("GET", f"{url}&format=txt").text.count("\n") == 600
    assert client.request("GET", f"{url}&format=xml").status == 400


def test_one_event_is_shown_whole_and_its_body_byte_for_byte(client: Client, make_hub: MakeHub) -> None:
    hub = make_hub()
    text = "ü" * 80_000
    client.post(f"/eventhubs/{hub}/send", {"body": text, "partition": "0"})
    (listed,) = client.get(f"/eventhubs/{hub}/events.json")["events"]
    assert listed["isCut"]
    assert client.get(f"/eventhubs/{hub}/events/0/0.json")["body"] == text
    body = client.request("GET", f"/eventhubs/{hub}/events/0/0/body")
    assert body.body == text.encode()
    assert body.headers["content-type"] == "application/octet-stream"
    assert client.request("GET", f"/eventhubs/{hub}/events/0/1.json").status == 404


def test_a_body_is_escaped_in_the_page(client: Client, make_hub: MakeHub) -> None:
    hub = make_hub()
    client.post(f"/eventhubs/{hub}/send", {"body": "<script>alert(1)</script>", "partitionKey": "<b>"})
    page = client.page(f"/eventhubs/{hub}/explorer").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.slow
def test_a_generator_sends_until_it_is_stopped(client: Client, make_hub: MakeHub) -> None:
    hub = make_hub()
    started = client.post(f"/eventhubs/{hub}/generators", {"body": "{{index}}", "rate": 200}).data
    deadline = time.monotonic() + PATIENCE_S
    while client.get(f"/eventhubs/{hub}.json")["events"] < 60 and time.monotonic() < deadline:
        time.sleep(0.05)
    (listed,) = client.get(f"/eventhubs/{hub}/generators.json")["generators"]
    assert listed["sent"] >= 60
    assert client.post(f"/eventhubs/{hub}/generators/{started['id']}/stop").status == 200
    assert client.get(f"/eventhubs/{hub}/generators.json")["generators"] == []
    assert client.post(f"/eventhubs/{hub}/generators/{started['id']}/stop").status == 404
    bodies = [int(e["body"]) for e in client.get(f"/eventhubs/{hub}/events.json?from=earliest&limit=500")["events"]]
    assert sorted(bodies) == list(range(len(bodies)))


def test_generators_end_with_the_hub(tmp_path: Path) -> None:
    with BackgroundServer(CONFIG, tmp_path, http_port=0, further_routes=[portal()]) as running:
        client = Client(running.server.http_port)
        for _ in range(3):
            assert client.post("/eventhubs/eh1/generators", {"body": "x", "rate": 50}).status == 200
    assert not asyncio.all_tasks(running._loop)


@pytest.mark.slow
def test_a_generator_ends_by_itself(client: Client, make_hub: MakeHub) -> None:
    hub = make_hub()
    client.post(f"/eventhubs/{hub}/generators", {"body": "x", "rate": 50, "seconds": 0.3})
    deadline = time.monotonic() + PATIENCE_S
    while client.get(f"/eventhubs/{hub}/generators.json")["generators"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert client.get(f"/eventhubs/{hub}/generators.json")["generators"] == []
    assert client.get(f"/eventhubs/{hub}.json")["events"] > 1


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("send", {"body": "{{wrong}}"}, "no placeholder"),
        ("send", {"body": "x", "repeat": 0}, "repeat"),
        ("send", {"body": "x" * 1_100_000}, "bytes"),
        ("generators", {"body": "x", "rate": 0}, "rate"),
        ("generators", {"body": "x"}, "rate"),
        ("generators", {"body": "x", "rate": 1, "seconds": -1}, "seconds"),
        ("generators", {"body": "{{wrong}}", "rate": 1}, "no placeholder"),
    ],
)
def test_a_mistake_is_explained(client: Client, path: str, body: object, said: str) -> None:
    answer = client.post(f"/eventhubs/eh1/{path}", body)
    assert 400 <= answer.status < 500
    assert said in answer.data["error"]["detail"]


def test_a_body_that_is_no_json_is_refused(client: Client) -> None:
    client.page("/")
    answer = client.request("POST", "/eventhubs/eh1/send", b"{", **{"X-CSRF-Token": client.token})
    assert (answer.status, answer.data["error"]["detail"]) == (400, "the request's body is not JSON")


class Held(EventSender):
    """Publishes once `durable` is set."""

    def __init__(self) -> None:
        super().__init__(Mock(), Mock())
        self.durable = asyncio.get_running_loop().create_future()

    async def _publish(self, *_: object) -> None:
        await self.durable


def test_a_generator_that_is_stopped_just_when_its_events_are_durable_stops() -> None:
    """`asyncio.wait_for` of Python 3.11 forgets a cancellation then, and the hub would wait for a generator for ever.

    https://github.com/python/cpython/issues/86296
    """

    async def cancelled_after(ticks: int) -> bool:
        sender = Held()
        sending = asyncio.create_task(sender.send("hub", Mock(batches=lambda count: [(None, [b"x"])]), 1, Mock()))
        for _ in range(3):
            await asyncio.sleep(0)
        sender.durable.set_result(None)
        for _ in range(ticks):
            await asyncio.sleep(0)
        was_running = sending.cancel()
        (outcome,) = await asyncio.gather(sending, return_exceptions=True)
        return isinstance(outcome, asyncio.CancelledError) is was_running

    assert all(asyncio.run(cancelled_after(ticks)) for ticks in range(6))
