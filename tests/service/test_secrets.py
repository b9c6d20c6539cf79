"""Secrets: encrypted at rest, never given out, and unreadable without the key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tidegate.service.errors import SecretsUnreadable
from tidegate.service.secrets import Sealer, is_secret, redacted, redacted_properties

DEFINITION: dict[str, Any] = {
    "name": "j",
    "query": "SELECT password FROM tolls",
    "inputs": {"tolls": {"type": "eventhub", "connection_string": "Endpoint=sb://h;SharedAccessKey=abc"}},
    "outputs": {"table": {"type": "postgresql", "columns": {"password": "nvarchar(max)"}, "table": "t"}},
    "functions": {"f": {"script": "function main(password) { return 1; }"}},
}
PROPERTIES = [
    {"datasource": {"properties": {"sharedAccessPolicyKey": "first-key", "accountKey": "second-key", "table": "t"}}}
]
HIDDEN = "hidden-7d"


@pytest.mark.parametrize(
    "section",
    [
        {"type": "kafka", "topic": "t", "password": HIDDEN, "options": {"ssl.key.pem": HIDDEN, "acks": "all"}},
        {"type": "kafka", "schema_registry": f"https://u:{HIDDEN}@registry:8081", "topic": "t"},
        {"type": "iceberg", "table": "t", "catalog_properties": {"uri": f"postgresql://u:{HIDDEN}@h/d", "n": HIDDEN}},
        {"type": "iceberg", "table": "t", "catalog": f"sqlite://u:{HIDDEN}@h"},
        {"type": "webhook", "url": f"https://f.example/api?code={HIDDEN}"},
        {"type": "webhook", "url": "https://f.example/api", "key": HIDDEN, "headers": {"Authorization": HIDDEN}},
        {"type": "powerbi", "push_url": f"https://api.example/push/{HIDDEN}"},
        {"type": "files", "path": f"https://account.example/container?sig={HIDDEN}"},
        {"type": "azureml", "endpoint": f"https://ml.example/score#{HIDDEN}", "api_key": HIDDEN},
        {"type": "of.somebody.else", "phrase": HIDDEN, "nested": {"list": [HIDDEN, 1]}},
        {"type": "webhook", "url": "https://f.example/", "of_a_later_version": HIDDEN},
    ],
)
def test_a_secret_is_neither_shown_nor_stored_in_clear(section: dict[str, Any], tmp_path: Path) -> None:
    definition = {"inputs": {"i": section}, "outputs": {"o": section}, "functions": {"f": section}}
    sealer = Sealer.of_file(tmp_path / "key")
    assert HIDDEN not in json.dumps(redacted(definition))
    assert HIDDEN not in json.dumps(sealer.seal(definition))
    assert sealer.unseal(sealer.seal(definition)) == definition
    assert redacted(definition)["outputs"]["o"]["type"] == section["type"]


@pytest.mark.parametrize(
    "section",
    [
        {"type": "kafka", "topic": "t", "username": "u", "options": {"acks": "all", "compression.type": "zstd"}},
        {"type": "webhook", "url": "https://f.example/api", "headers": {"Content-Type": "application/json"}},
        {"type": "tablestorage", "table": "t", "partition_key": "booth", "row_key": "password"},
        {"type": "sqlite", "table": "t", "key": ["id"], "columns": {"password": "nvarchar(max)"}},
        {"module": "password.py", "function": "token"},
    ],
)
def test_what_is_no_secret_is_shown(section: dict[str, Any]) -> None:
    definition = {"name": "password", "outputs": {"password": section}}
    assert redacted(definition) == definition


def test_properties_of_spark_are_secret_unless_they_are_known_not_to_be() -> None:
    conf = {"spark.executor.memory": "4g", "spark.hadoop.fs.s3a.secret.key": HIDDEN}
    shown = redacted({"spark": {"master": "local[2]", "conf": conf}})
    expected = {"spark.executor.memory": "4g", "spark.hadoop.fs.s3a.secret.key": None}
    assert shown == {"spark": {"master": "local[2]", "conf": expected}}


SECRETS = """
connection_string connectionString sharedAccessPolicyKey accountKey account_key password sas_token apiKey api_key
clientSecret refreshToken access_key
"""


@pytest.mark.parametrize("name", SECRETS.split())
def test_secrets_of_azure_are_known_by_their_names(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["partition_key", "partitionKey", "rowKey", "key", "keys", "sharedAccessPolicyName", "accountName", "table"]
)
def test_what_is_not_a_secret_of_azure_is_shown(name: str) -> None:
    assert not is_secret(name)


def test_a_sealed_definition_holds_no_secret_and_is_whole_again_with_the_key(tmp_path: Path) -> None:
    sealed = Sealer.of_file(tmp_path / "key").seal(DEFINITION)
    assert "SharedAccessKey=abc" not in json.dumps(sealed)
    assert {**sealed, "inputs": None} == {**DEFINITION, "inputs": None}
    assert Sealer.of_file(tmp_path / "key").unseal(sealed) == DEFINITION
    properties = Sealer.of_file(tmp_path / "key").seal_properties(PROPERTIES)
    assert not {"first-key", "second-key"} & set(json.dumps(properties).split('"'))
    assert Sealer.of_file(tmp_path / "key").unseal(properties) == PROPERTIES


def test_a_redacted_definition_has_none_in_place_of_secrets() -> None:
    assert redacted(DEFINITION)["inputs"]["tolls"] == {"type": "eventhub", "connection_string": None}
    assert redacted_properties(PROPERTIES)[0]["datasource"]["properties"] == {
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
    sealed = Sealer.of_file(tmp_path / "key").seal(DEFINITION)
    with pytest.raises(SecretsUnreadable, match="encrypted with another key"):
        Sealer.of_file(tmp_path / "other").unseal(sealed)


def test_a_damaged_key_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    os.chmod(tmp_path / "key", 0o600)
    with pytest.raises(SecretsUnreadable, match="does not hold a key: restore it from a backup"):
        Sealer.of_file(tmp_path / "key")
