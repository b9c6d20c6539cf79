"""The overview lists the hubs, a page of them at a time, and finds them by name."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.portal.conftest import Client
from tidegate.durable_files import Files
from tidegate.server import Server


def test_the_overview_has_every_hub_with_its_figures(client: Client, make_hub: Callable[..., str]) -> None:
    hub = make_hub(3)
    client.post(f"/eventhubs/{hub}/send", {"body": "x", "repeat": 60})
    (row,) = client.get(f"/.json?search={hub}")["hubs"]
    assert (row["name"], row["partitions"], row["events"], row["eventsPerSecond"]) == (hub, 3, 60, 1.0)
    page = client.page(f"/?search={hub}")
    assert f'href="/eventhubs/{hub}/explorer"' in page.text
    assert "No event hub has" in client.page("/?search=no-such-hub").text


def test_a_page_number_beyond_the_last_is_the_last(client: Client) -> None:
    page = client.get("/.json?page=99")["hubPage"]
    assert page["number"] == page["pages"]
    assert client.request("GET", "/.json?page=0").status == 400
    assert client.request("GET", "/.json?page=x").status == 400


def test_every_page_is_also_json(client: Client) -> None:
    for path in ("/", "/eventhubs/eh1", "/eventhubs/eh1/explorer"):
        page = client.page(path)
        assert page.headers["content-type"].startswith("text/html")
        assert f'href="{path}.json"' in page.text
        assert client.request("GET", f"{path}.json").headers["content-type"] == "application/json"


def test_a_page_costs_little(client: Client) -> None:
    """In processor time of this process, in which the server runs: other work on the machine does not count."""
    client.page("/")
    began = time.process_time()
    for _ in range(5):
        client.page("/")
    assert (time.process_time() - began) / 5 < 0.1


def test_every_page_says_that_the_data_disk_takes_no_writes(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(28, "No space left on device")

    storage = server.namespace.storage
    with monkeypatch.context() as patch:
        patch.setattr(Files, "write_at", refused)
        storage.check()
        for path in ("/", "/eventhubs/eh1"):
            assert "The data disk cannot be written: [Errno 28] No space left on device" in client.page(path).text
            assert client.get(path.rstrip("/") + ("/.json" if path == "/" else ".json"))["storage_problem"]
    storage.check()
    assert "The data disk" not in client.page("/").text


def test_a_list_is_sorted_by_the_column_that_is_asked_for(client: Client) -> None:
    for name, partitions in (("sort-10", 1), ("sort-2", 3)):
        client.post("/eventhubs", {"name": name, "partitionCount": partitions})

    def names(order: str) -> list[str]:
        return [one["name"] for one in client.get(f"/.json?search=sort-&hubs={order}")["hubs"]]

    assert names("name") == ["sort-2", "sort-10"]
    assert names("-name") == ["sort-10", "sort-2"]
    assert names("-partitions") == ["sort-2", "sort-10"]
    assert names("nonsense") == ["sort-2", "sort-10"]
    assert list(client.get("/sparklines.json?search=sort-")["hubs"]) == ["sort-2", "sort-10"]


def test_the_overview_says_how_the_machine_is(client: Client) -> None:
    health = client.get("/.json")["health"]
    assert 0 < health["diskFree"] <= health["diskTotal"]
    assert health["isStoreWell"]


def test_sample_data_fills_a_hub_once(client: Client) -> None:
    assert client.post("/samples").data == {"name": "tolls"}
    assert client.post("/samples").data == {"name": "tolls"}
    assert client.get("/eventhubs/tolls.json")["events"] >= 200
    (generator,) = client.get("/eventhubs/tolls/generators.json")["generators"]
    client.post(f"/eventhubs/tolls/generators/{generator['id']}/stop")
