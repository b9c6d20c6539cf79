"""What every change of the portal goes through: its body is an object of known fields."""

from __future__ import annotations

from typing import Any

import pytest

from tests.portal.conftest import Client
from tidegate.hub.errors import ArgumentError
from tidegate.portal.web.handling import changed_tags


def kept(client: Client) -> list[Any]:
    """Return what the changes below would change."""
    namespace, hub = client.get("/namespace.json"), client.get("/eventhubs/eh1.json")
    events = client.get("/eventhubs/eh1/events.json")["events"]
    return [namespace["throughputUnits"], namespace["policies"], hub["consumerGroups"], events]


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/namespace/limits", {"throughputunits": 3}, "throughputUnits, autoInflateTo"),
        ("/eventhubs/eh1/send", {"body": "x", "repeats": 3}, "repeat"),
        ("/eventhubs/eh1/consumergroups", {"name": "cg2", "metadata": "x"}, "userMetadata"),
        ("/namespace/policies", {"name": "typo", "Send": True, "Listens": True}, "Listen"),
        ("/schemas/level", {"group": "g", "level": "Full"}, "compatibility"),
        ("/eventhubs/eh1/update", {"retention": 3}, "Extra inputs"),
    ],
)
def test_a_misspelled_field_is_refused_and_nothing_changes(
    client: Client, path: str, body: dict[str, Any], named: str
) -> None:
    before = kept(client)
    answer = client.post(path, body)
    assert answer.status == 400
    wrong = next(reversed(body))
    assert wrong in answer.data["error"]["detail"]
    assert named in answer.data["error"]["detail"]
    assert kept(client) == before


@pytest.mark.parametrize("content", [b"[]", b"null", b'"x"', b"3"])
@pytest.mark.parametrize("path", ["/namespace/limits", "/eventhubs/eh1/delete", "/eventhubs/eh1/update"])
def test_a_body_that_is_no_object_is_refused(client: Client, path: str, content: bytes) -> None:
    client.page("/")
    answer = client.request("POST", path, content, X_CSRF_Token=client.token)
    assert answer.status == 400
    assert "expected a JSON object" in answer.text


def test_tags_are_removed_only_by_an_empty_text() -> None:
    assert changed_tags({"a": "1"}, {"tags": ""}) == {}
    with pytest.raises(ArgumentError, match="tags"):
        changed_tags({}, {})


@pytest.mark.parametrize(
    ("shown", "tags", "expected"),
    [
        ("a = 1\nb = 2", "a = 1\nb = 2", {"a": "1", "b": "3", "c": "4"}),
        ("a = 1\nb = 2", "a = 5\nb = 2\nd = 6", {"a": "5", "b": "3", "c": "4", "d": "6"}),
        ("a = 1\nb = 2", "b = 2", {"b": "3", "c": "4"}),
        ("a = 1\nb = 2", "", {"c": "4"}),
        ("a = 1\nb = 2", "A = 1\nb = 7", {"A": "1", "b": "7", "c": "4"}),
        ("", "C = 8", {"a": "1", "b": "3", "C": "8"}),
    ],
)
def test_only_the_tags_that_were_edited_change(shown: str, tags: str, expected: dict[str, str]) -> None:
    """Since they were shown, `b` was changed elsewhere and `c` was added."""
    assert changed_tags({"a": "1", "b": "3", "c": "4"}, {"shown": shown, "tags": tags}) == expected


def test_edited_tags_and_those_of_others_have_one_limit() -> None:
    with pytest.raises(ArgumentError, match="50, not 51"):
        changed_tags({f"t{at}": "" for at in range(50)}, {"shown": "", "tags": "more = 1"})


def test_a_hub_whose_name_ends_in_json_has_a_page_and_its_data(client: Client) -> None:
    for name in ("eh1.json", "words.json"):
        assert client.post("/eventhubs", {"name": name, "partitionCount": 1}).status == 200
        page = client.page(f"/eventhubs/{name.replace('.', '%2E')}")
        assert page.headers["content-type"].startswith("text/html")
        assert f'href="/eventhubs/{name.replace(".", "%2E")}.json"' in page.text
        assert client.get(f"/eventhubs/{name}.json")["name"] == name
        assert client.get(f"/eventhubs/{name}/explorer.json")["name"] == name
        assert f'href="/eventhubs/{name.replace(".", "%2E")}"' in client.page("/").text
        assert client.post(f"/eventhubs/{name}/delete", {"confirm": name}).status == 200
    assert client.get("/eventhubs/eh1.json")["name"] == "eh1"


def test_a_visitor_is_sent_back_to_the_page_of_such_a_hub(away: Client) -> None:
    sent = away.page("/eventhubs/eh1%2Ejson")
    assert (sent.status, sent.headers["location"]) == (303, "/sign-in?next=/eventhubs/eh1%252Ejson")
