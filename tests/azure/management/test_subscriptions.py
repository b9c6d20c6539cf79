"""Subscriptions, resource groups and providers: what clients ask before they come to a resource."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.azure.management.conftest import Api
from tidegate.azure.management import PrincipalRole
from tidegate.azure.management.manager.resource_groups import ResourceGroups
from tidegate.azure.management.manager.state import FILE_NAME, GroupRecord, ResourceRecord, StateFile
from tidegate.durable_files import FileDamaged

SUBSCRIPTION = "/subscriptions/any"


def test_any_subscription_is_there(api: Api) -> None:
    assert api.ok("GET", SUBSCRIPTION)["subscriptionId"] == "any"
    (listed,) = api.ok("GET", "/subscriptions")["value"]
    (tenant,) = api.ok("GET", "/tenants")["value"]
    assert listed["tenantId"] == tenant["tenantId"]
    assert [place["name"] for place in api.ok("GET", f"{SUBSCRIPTION}/locations")["value"]] == ["local"]


def test_providers_say_which_versions_they_speak(api: Api) -> None:
    for path in ("/providers", f"{SUBSCRIPTION}/providers"):
        assert "Microsoft.EventHub" in [one["namespace"] for one in api.ok("GET", path)["value"]]
    one = api.ok("GET", f"{SUBSCRIPTION}/providers/microsoft.eventhub")
    versions = {kind["resourceType"]: kind["apiVersions"] for kind in one["resourceTypes"]}
    assert "2024-01-01" in versions["namespaces/eventhubs"]
    assert api.ok("POST", f"{SUBSCRIPTION}/providers/Microsoft.EventHub/register")["registrationState"] == "Registered"


def test_readers_see_all_providers(api_of: Callable[[PrincipalRole], Api]) -> None:
    listed = api_of(PrincipalRole.READER).ok("GET", f"{SUBSCRIPTION}/providers")
    assert "Microsoft.EventHub" in [one["namespace"] for one in listed["value"]]


@pytest.mark.slow
def test_a_group_is_there_until_it_is_created_and_then_a_place_of_its_own(api: Api) -> None:
    path = f"{SUBSCRIPTION}/resourceGroups/made"
    assert api.call("HEAD", path).status == 204
    assert api.ok("GET", path)["location"] == "local"
    assert api.call("DELETE", path).code == "ResourceGroupNotFound"
    assert api.call("PUT", path, {}).code == "LocationRequired"
    first = api.call("PUT", path, {"location": "West Europe", "tags": {"a": "b"}})
    assert (first.status, first.json["location"]) == (201, "westeurope")
    assert api.call("PUT", path, {"tags": {"a": "c"}}).status == 200
    assert api.call("PUT", path, {"location": "elsewhere"}).code == "InvalidResourceGroupLocation"
    assert api.ok("PATCH", path.upper(), {"tags": {"d": "e"}})["tags"] == {"d": "e"}
    assert "made" in [group["name"] for group in api.ok("GET", f"{SUBSCRIPTION}/resourcegroups")["value"]]
    assert api.call("DELETE", path).status == 200
    assert "made" not in [group["name"] for group in api.ok("GET", f"{SUBSCRIPTION}/resourcegroups")["value"]]


@pytest.mark.parametrize("name", ["a.", "x" * 91, "a*b"])
def test_a_group_s_name_has_rules(api: Api, name: str) -> None:
    assert api.call("PUT", f"{SUBSCRIPTION}/resourceGroups/{name}", {"location": "x"}).code == "InvalidResourceGroup"


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 1),
        ("?$filter=resourceType eq 'Microsoft.EventHub/namespaces'", 1),
        ("?$filter=resourceType eq 'Microsoft.EventHub/namespaces' and name eq 'EMULATORNS1'", 1),
        ("?$filter=name eq 'other'", 0),
        ("?$filter=resourceGroup eq 'g'", 1),
        ("?$filter=tagName eq 'no-such-tag'", 0),
    ],
)
def test_resources_can_be_listed_and_filtered(api: Api, query: str, count: int) -> None:
    for place in (SUBSCRIPTION, f"{SUBSCRIPTION}/resourceGroups/g"):
        found = api.ok("GET", f"{place}/resources{query}")["value"]
        namespaces = [one for one in found if one["type"] == "Microsoft.EventHub/Namespaces"]
        assert len(namespaces) == count
        assert all("properties" not in one for one in found)


def test_a_filter_that_is_not_understood_is_refused(api: Api) -> None:
    answer = api.call("GET", f"{SUBSCRIPTION}/resources?$filter=substringof('a', name)")
    assert answer.code == "InvalidFilterInQueryString"


def test_what_is_kept_is_there_after_a_restart(tmp_path: Path) -> None:
    resource_groups = ResourceGroups(StateFile(tmp_path))
    resource_groups.put_group(GroupRecord(name="One", location="here"))
    resource_groups.put_record("a/b/c", ResourceRecord(group="one", tags={"x": "y"}))
    resource_groups.put_record("a/b/c/d/e", ResourceRecord(more={"z": 1}))
    again = ResourceGroups(StateFile(tmp_path))
    assert again.created_at == resource_groups.created_at
    assert (again.group_key("ONE"), again.group_key("two")) == ("one", "")
    assert (again.location("one"), again.location("two")) == ("here", "local")
    assert again.record("a/b/c").tags == {"x": "y"}
    assert [again.is_in("a/b/c", group) for group in ("One", "two", "")] == [True, False, True]
    again.drop_records("a/b/c")
    assert not ResourceGroups(StateFile(tmp_path)).records("a/")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    ResourceGroups(StateFile(tmp_path)).put_group(GroupRecord(name="One", location="here"))
    path = tmp_path / "arm" / FILE_NAME
    path.write_text(path.read_text().replace("here", "gone"))
    with pytest.raises(FileDamaged, match="move it away"):
        StateFile(tmp_path)
