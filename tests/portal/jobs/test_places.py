"""Where a job reads and writes: hubs of the namespace by name and rate, other places by name, and never a secret."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hub.support import open_namespace
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.portal.jobs.descriptions import SectionAddresses, event_link

OWN = "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=r;SharedAccessKey=s3cret;EntityPath=tolls"


@pytest.fixture
def places(tmp_path: Path) -> Iterator[SectionAddresses]:
    config = NamespaceConfig(name="ns", event_hubs=(EventHubConfig(name="Tolls", partition_count=2),))
    namespace = open_namespace(tmp_path, config)
    yield SectionAddresses(namespace, lambda: "sb://127.0.0.1:5672", lambda partition: 1234.5)
    namespace.close()


def hub(connection_string: str, **more: Any) -> dict[str, Any]:
    return {"type": "eventhub", "connection_string": connection_string, **more}


def test_a_hub_of_the_namespace_has_its_partitions_rate_and_page(places: SectionAddresses) -> None:
    place = places.of({"type": "eventhub"}, hub(OWN))
    assert (place.text, place.hub) == ("Tolls · $Default, 2 partitions, 2,469 events/s", "Tolls")
    assert places.of({"type": "eventhub"}, hub(OWN, consumer_group="g")).text.startswith("Tolls · g, ")


def test_a_hub_elsewhere_is_named_with_its_host(places: SectionAddresses) -> None:
    elsewhere = OWN.replace("127.0.0.1:5672", "other.example")
    place = places.of({"type": "eventhub"}, hub(elsewhere))
    assert (place.text, place.hub) == ("tolls · $Default, at other.example", None)
    assert places.own_hub(hub(elsewhere)) is None


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ({"type": "kafka", "topic": "cars", "bootstrap_servers": "k:9092"}, "cars, k:9092"),
        ({"type": "postgresql", "table": "cars", "url": "postgresql://u:p@db/x?password=q"}, "cars, postgresql://db/x"),
        ({"type": "webhook", "url": "https://f.example/api?code=abc", "key": None}, "https://f.example/api"),
        ({"type": "console"}, ""),
    ],
)
def test_other_places_are_named_without_secrets(places: SectionAddresses, shown: dict[str, Any], text: str) -> None:
    assert places.of(shown, {**shown, "key": "s3cret"}).text == text


@given(before=st.text(), after=st.text())
def test_no_key_of_a_connection_string_is_shown(before: str, after: str) -> None:
    section = hub(f"{before};SharedAccessKey=s3cret;{after}")
    nowhere = SectionAddresses(SimpleNamespace(event_hubs={}), lambda: "sb://here", lambda partition: None)
    assert "s3cret" not in nowhere.of({"type": "eventhub"}, section).text


def test_the_link_of_an_event_begins_with_it(places: SectionAddresses) -> None:
    found = places.own_hub(hub(OWN))
    assert found is not None
    assert event_link(found, "1", 17) == "/eventhubs/Tolls/explorer?partition=1&from=sequence&value=17"
