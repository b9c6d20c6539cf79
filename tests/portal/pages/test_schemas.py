"""The pages of the schema registry: what is registered, what they change, and for whom."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.portal.conftest import Client


@pytest.fixture
def subject() -> str:
    return f"s/{uuid.uuid4().hex[:8]} <b>"


def avro(*names: str) -> str:
    fields = [{"name": name, "type": "int", "default": 0} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def path_of(subject: str) -> str:
    return f"/schemas/default/{subject.replace('/', '%2F').replace(' ', '%20').replace('<', '%3C').replace('>', '%3E')}"


def test_schemas_are_registered_shown_and_deleted(client: Client, subject: str) -> None:
    body = {"group": "default", "subject": subject, "format": "AVRO", "schema": avro("a")}
    assert client.post("/schemas/register", body).data["version"] == 1
    assert client.post("/schemas/register", {**body, "schema": avro("a", "b")}).data["version"] == 2
    (row,) = [one for one in client.get("/schemas.json")["subjects"] if one["subject"] == subject]
    assert (row["format"], row["versions"], row["compatibility"]) == ("AVRO", 2, "BACKWARD")
    shown = client.page(path_of(subject)).text
    assert "Version 2" in shown
    assert "<b>" not in shown
    assert subject.partition(" ")[0] in client.page("/schemas").text
    page = client.get(f"{path_of(subject)}.json")
    assert [one["schema"] for one in page["versions"]] == [avro("a", "b"), avro("a")]
    assert [one["id"] for one in page["versions"]] == sorted((one["id"] for one in page["versions"]), reverse=True)
    for deleted in ([True, False], [False]):  # softly, then for good
        assert client.post("/schemas/delete", {"group": "default", "subject": subject, "version": 1}).status == 200
        page = client.get(f"{path_of(subject)}.json")
        assert sorted((one["isDeleted"] for one in page["versions"]), reverse=True) == deleted


def test_levels_are_set_and_taken_back(client: Client, subject: str) -> None:
    body = {"group": "default", "subject": subject, "format": "AVRO", "schema": avro("a")}
    client.post("/schemas/register", body)
    for level, expected in (("FULL_TRANSITIVE", "FULL_TRANSITIVE"), ("", "BACKWARD"), ("", "BACKWARD")):
        assert not client.post("/schemas/level", {"group": "default", "subject": subject, "compatibility": level}).data
        assert client.get(f"{path_of(subject)}.json")["compatibility"] == expected


def test_groups_are_made(client: Client) -> None:
    name = f"g-{uuid.uuid4().hex[:8]}"
    client.post("/schemas/groups", {"name": name, "format": "JSON", "compatibility": "FORWARD"})
    (group,) = [one for one in client.get("/schemas.json")["groups"] if one["name"] == name]
    assert group == {"name": name, "format": "JSON", "compatibility": "FORWARD", "mode": "READWRITE", "subjects": 0}
