"""Secrets: encrypted at rest, never given out, and unreadable without the key."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tidegate.service.errors import SecretsUnreadable
from tidegate.service.secrets import Sealer, is_secret, redacted, secret_values

DOCUMENT = {
    "inputs": {"tolls": {"type": "eventhub", "connection_string": "Endpoint=sb://h;SharedAccessKey=abc"}},
    "outputs": {"table": {"type": "postgresql", "columns": {"password": "nvarchar(max)"}, "partition_key": "booth"}},
    "arm": [
        {"datasource": {"properties": {"sharedAccessPolicyKey": "first-key", "accountKey": "second-key", "table": "t"}}}
    ],
}


SECRETS = """
connection_string connectionString sharedAccessPolicyKey accountKey account_key password sas_token apiKey api_key
clientSecret refreshToken access_key
"""


@pytest.mark.parametrize("name", SECRETS.split())
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["partition_key", "partitionKey", "rowKey", "key", "keys", "sharedAccessPolicyName", "accountName", "table"]
)
def test_what_is_not_a_secret_is_shown(name: str) -> None:
    assert not is_secret(name)


def test_a_sealed_document_holds_no_secret_and_is_whole_again_with_the_key(tmp_path: Path) -> None:
    sealed = Sealer.of_file(tmp_path / "key").seal(DOCUMENT)
    text = json.dumps(sealed)
    assert secret_values(DOCUMENT) == {"Endpoint=sb://h;SharedAccessKey=abc", "first-key", "second-key"}
    assert not [secret for secret in secret_values(DOCUMENT) if secret in text]
    assert sealed["outputs"] == DOCUMENT["outputs"]
    assert Sealer.of_file(tmp_path / "key").unseal(sealed) == DOCUMENT


def test_a_redacted_document_has_none_in_place_of_secrets() -> None:
    shown = redacted(DOCUMENT)
    assert shown["inputs"]["tolls"] == {"type": "eventhub", "connection_string": None}
    assert shown["arm"][0]["datasource"]["properties"] == {
        "sharedAccessPolicyKey": None,
        "accountKey": None,
        "table": "t",
    }


def test_the_key_is_its_owners_alone(tmp_path: Path) -> None:
    Sealer.of_file(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    os.chmod(tmp_path / "key", 0o644)
    with pytest.raises(SecretsUnreadable, match="can be read by others: run 'chmod 600"):
        Sealer.of_file(tmp_path / "key")


def test_another_key_does_not_open_what_this_one_sealed(tmp_path: Path) -> None:
    sealed = Sealer.of_file(tmp_path / "key").seal(DOCUMENT)
    with pytest.raises(SecretsUnreadable, match="encrypted with another key"):
        Sealer.of_file(tmp_path / "other").unseal(sealed)


def test_a_damaged_key_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    os.chmod(tmp_path / "key", 0o600)
    with pytest.raises(SecretsUnreadable, match="does not hold a key: restore it from a backup"):
        Sealer.of_file(tmp_path / "key")


def test_some_types_of_outputs_have_further_secrets() -> None:
    hook = {"type": "webhook", "url": "https://hooks.example/", "key": "k", "headers": {"Authorization": "Bearer b"}}
    push = {"type": "powerbi", "push_url": "https://push.example/?key=p"}
    table = {"type": "sqlite", "key": "id"}
    shown = redacted({"outputs": {"hook": hook, "push": push, "table": table}})["outputs"]
    assert shown["hook"] == {**hook, "key": None, "headers": {"Authorization": None}}
    assert (shown["push"]["push_url"], shown["table"]) == (None, table)
    assert secret_values({"hook": hook, "push": push}) == {"k", "Bearer b", "https://push.example/?key=p"}
