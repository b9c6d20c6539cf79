"""What every change of the portal goes through: its body is an object of known fields."""

from __future__ import annotations

from typing import Any

import pytest

from tests.portal.conftest import Client
from tidegate.hub.errors import ArgumentError
from tidegate.portal.web.handling import tags_of


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
    assert tags_of({"tags": ""}) == {}
    with pytest.raises(ArgumentError, match="tags"):
        tags_of({})
