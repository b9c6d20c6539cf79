"""`tidegate hub` against a running hub: by its data directory, and by URL and connection string."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidegate.azure.management import ArmSettings, PrincipalRole, Principals, arm_routes
from tidegate.cli import main
from tidegate.hub import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer, Server

Run = Callable[..., Result]
SECRET = "a-secret-of-the-reader"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = NamespaceConfig(name="ns", event_hubs=(EventHubConfig(name="tolls", partition_count=2),))
    data = tmp_path_factory.mktemp("hub") / "data"
    Principals(data).create("looker", PrincipalRole.READER, SECRET)
    with BackgroundServer(config, data, None, [arm_routes(ArmSettings(data))], http_port=0, https_port=0) as running:
        yield running.server


@pytest.fixture
def run(server: Server) -> Run:
    def run_with(*arguments: str, **options: Any) -> Result:
        return CliRunner().invoke(main, ["hub", "--data", str(server.data_dir), *arguments], **options)

    return run_with


@pytest.fixture
def answer(run: Run) -> Callable[..., Any]:
    def of(*arguments: str) -> Any:
        result = run(*arguments, "-o", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.output)

    return of


def test_event_hubs(run: Run, answer: Callable[..., Any]) -> None:
    made = answer("eventhub", "create", "orders", "--partition-count", "3", "--retention-time", "168")
    assert (made["name"], made["partitionCount"], made["retentionTimeInHours"]) == ("orders", 3, 168)
    assert [found["name"] for found in answer("eventhub", "list")] == ["tolls", "orders"]
    assert answer("eventhub", "update", "orders", "--user-metadata", "x")["retentionTimeInHours"] == 168
    smaller = answer("eventhub", "update", "orders", "--retention-size", "1000000")
    assert (smaller["retentionTimeInHours"], smaller["retentionSizeInBytes"]) == (168, 1000000)
    kept = answer("eventhub", "update", "orders", "--keep-for-ever")
    assert (kept["retentionTimeInHours"], kept["retentionSizeInBytes"]) == (None, None)
    assert answer("eventhub", "create", "kept", "--retention-size", "1000000")["retentionTimeInHours"] is None
    run("eventhub", "delete", "kept", "--yes")
    refused = run("eventhub", "delete", "orders", input="n\n")
    assert (refused.exit_code, "nothing was deleted" in refused.output) == (1, True)
    alone = run("eventhub", "delete", "orders", input="")
    assert (alone.exit_code, "add --yes" in alone.output) == (2, True)
    assert answer("eventhub", "show", "orders")["userMetadata"] == "x"
    assert run("eventhub", "delete", "orders", "--yes").output == ""
    for verb in (("show",), ("update", "--keep-for-ever"), ("delete", "--yes")):
        missing = run("eventhub", verb[0], "orders", *verb[1:])
        assert (missing.exit_code, "no event hub 'orders'" in missing.output) == (1, True), missing.output
    exists = run("eventhub", "create", "TOLLS")
    assert (exists.exit_code, "'TOLLS' exists already" in exists.output) == (1, True)


def test_a_table_for_people(run: Run) -> None:
    result = run("eventhub", "list")
    heading, row = result.output.splitlines()
    assert heading.split() == [
        *("name", "partition", "count", "partition", "ids", "retention", "time", "in", "hours"),
        *("retention", "size", "in", "bytes", "user", "metadata", "consumer", "groups", "capture", "created", "at"),
    ]
    assert row.split()[:5] == ["tolls", "2", "0,", "1", "-"]
    one = run("eventhub", "show", "tolls").output.splitlines()
    assert one[0].split() == ["name", "tolls"]
    assert run("publisher", "list", "--eventhub", "tolls").output == "none\n"


def test_consumer_groups(run: Run, answer: Callable[..., Any]) -> None:
    group = ("--eventhub", "tolls")
    assert answer("consumer-group", "create", "billing", *group)["name"] == "billing"
    assert answer("consumer-group", "update", "billing", *group, "--user-metadata", "y")["userMetadata"] == "y"
    assert answer("consumer-group", "show", "BILLING", *group) == {"name": "billing", "userMetadata": "y"}
    assert [found["name"] for found in answer("consumer-group", "list", *group)] == ["$Default", "billing"]
    assert run("consumer-group", "delete", "billing", *group).exit_code == 0
    for verb in ("show", "update", "delete"):
        assert "no consumer group 'billing'" in run("consumer-group", verb, "billing", *group).output
    assert "$Default cannot be deleted" in run("consumer-group", "delete", "$Default", *group).output


@pytest.mark.parametrize("level", [(), ("--eventhub", "tolls")])
def test_authorization_rules(run: Run, answer: Callable[..., Any], level: tuple[Any, ...]) -> None:
    rule = "authorization-rule"
    assert answer(rule, "create", "gates", *level, "--rights", "send")["rights"] == ["Send"]
    assert answer(rule, "show", "gates", *level)["rights"] == ["Send"]
    assert "gates" in [found["name"] for found in answer(rule, "list", *level)]
    assert answer(rule, "update", "gates", *level, "--rights", "Send", "--rights", "Listen")["rights"] == [
        "Listen",
        "Send",
    ]
    before = answer(rule, "keys", "list", "gates", *level)
    after = answer(rule, "keys", "renew", "gates", *level, "--key", "secondary")
    assert before["primaryKey"] == after["primaryKey"]
    assert before["secondaryKey"] != after["secondaryKey"]
    assert ("EntityPath=tolls" in after["primaryConnectionString"]) == bool(level)
    assert run(rule, "delete", "gates", *level).exit_code == 0


def test_publishers(run: Run, answer: Callable[..., Any]) -> None:
    for name in ("gate/7", ""):
        refused = run("publisher", "revoke", name, "--eventhub", "tolls")
        assert (refused.exit_code, f"{name!r} cannot be a name" in refused.output) == (2, True)
    assert run("publisher", "revoke", "gate-7", "--eventhub", "tolls").exit_code == 0
    assert answer("publisher", "list", "--eventhub", "tolls") == [{"name": "gate-7"}]
    assert run("publisher", "restore", "gate-7", "--eventhub", "tolls").exit_code == 0
    assert answer("publisher", "list", "--eventhub", "tolls") == []


@pytest.mark.parametrize("tls", [False, True])
def test_a_hub_elsewhere_is_named_by_url_and_connection_string(server: Server, tls: bool) -> None:
    options = ["--url", f"http://localhost:{server.http_port}", "--connection-string", server.connection_string()]
    if tls:
        authority = str(server.certificate.authority_file)
        options = ["--url", f"https://localhost:{server.https_port}", *options[2:], "--ca-file", authority]
    result = CliRunner().invoke(main, ["hub", *options, "eventhub", "show", "tolls", "-o", "json"])
    assert json.loads(result.output)["name"] == "tolls"


def test_a_certificate_that_is_not_trusted_is_told_from_a_hub_that_is_away(server: Server) -> None:
    url = f"https://localhost:{server.https_port}"
    options = ["--url", url, "--connection-string", server.connection_string()]
    result = CliRunner().invoke(main, ["hub", *options, "namespace", "show"])
    assert result.exit_code == 1
    assert "--ca-file" in result.output
    result = CliRunner().invoke(main, ["hub", *options, "--ca-file", "nowhere.pem", "namespace", "show"])
    assert result.exit_code == 2
    assert "nowhere.pem" in result.output


@pytest.mark.parametrize("url", ["localhost:5300", "http://", "http://localhost:http", "ftp://localhost"])
def test_a_url_that_is_none_is_misuse(server: Server, url: str) -> None:
    options = ["--url", url, "--connection-string", server.connection_string()]
    result = CliRunner().invoke(main, ["hub", *options, "namespace", "show"])
    assert result.exit_code == 2
    assert "--url" in result.output


def test_a_connection_string_that_is_wrong_is_not_repeated(server: Server) -> None:
    url = f"http://localhost:{server.http_port}"
    for text in (
        "Endpoint=sb://x/;SharedAccessKey=secret-key",
        server.connection_string().replace("SAS_KEY", "secret"),
    ):
        arguments = ["hub", "--url", url, "--connection-string", text, "eventhub", "list"]
        result = CliRunner(env={"TIDEGATE_CONNECTION_STRING": ""}).invoke(main, arguments)
        assert result.exit_code in (1, 2)
        assert result.output.startswith("tidegate: ")
        assert "secret" not in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "no-such-directory", "eventhub", "list"], "no hub runs on the data directory no-such-directory"),
        (["--url", "http://localhost:1", "--connection-string", "x", "eventhub", "list"], "SharedAccessKeyName"),
        (
            [
                *("--url", "http://localhost:1", "--connection-string"),
                *("SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=b", "eventhub", "list"),
            ],
            "no hub answers at http://localhost:1",
        ),
        (
            ["--url", "http://localhost:1", "--connection-string", "SharedAccessSignature=x", "eventhub", "list"],
            "SharedAccessKeyName and SharedAccessKey",
        ),
    ],
)
def test_a_hub_that_cannot_be_reached(arguments: Any, words: str) -> None:
    assert words in CliRunner().invoke(main, ["hub", *arguments]).output


def test_where_a_hub_is_is_known_while_it_runs(tmp_path: Path) -> None:
    config = NamespaceConfig(name="ns")
    with BackgroundServer(config, tmp_path, http_port=0) as running:
        assert (running.server.data_dir / "endpoint.json").exists()
    assert not (tmp_path / "endpoint.json").exists()


def test_the_namespace(run: Run, answer: Callable[..., Any]) -> None:
    assert answer("namespace", "show")["throughputUnits"] is None
    changed = answer("namespace", "update", "--throughput-units", "2", "--auto-inflate-to", "10", "--tier", "premium")
    assert (changed["throughputUnits"], changed["maximumThroughputUnits"], changed["tier"]) == (2, 10, "premium")
    assert answer("namespace", "update", "--no-auto-inflate")["isAutoInflateEnabled"] is False
    assert answer("namespace", "update", "--unlimited", "--tier", "standard")["throughputUnits"] is None
    for wrong in ((), ("--unlimited", "--throughput-units", "1"), ("--no-auto-inflate", "--auto-inflate-to", "2")):
        assert run("namespace", "update", *wrong).exit_code == 2
    assert "auto-inflate starts" in run("namespace", "update", "--auto-inflate-to", "2").output


def test_capture_of_an_event_hub(run: Run, answer: Callable[..., Any], tmp_path: Path) -> None:
    archive = str(tmp_path / "archive")
    assert answer("eventhub", "create", "clicks", "--capture", archive)["capture"]["destination"] == archive
    changed = answer("eventhub", "update", "clicks", "--capture-interval", "60", "--capture-skip-empty")["capture"]
    assert (changed["intervalInSeconds"], changed["skipEmptyArchives"], changed["enabled"]) == (60, True, True)
    assert answer("eventhub", "update", "clicks", "--capture-keep-empty")["capture"]["skipEmptyArchives"] is False
    assert f"destination {archive}" in run("eventhub", "show", "clicks").output
    assert answer("eventhub", "update", "clicks", "--no-capture")["capture"] == changed | {
        "enabled": False,
        "skipEmptyArchives": False,
    }
    off = answer("eventhub", "update", "clicks", "--capture-interval", "90")["capture"]
    assert (off["intervalInSeconds"], off["enabled"]) == (90, False)
    assert answer("eventhub", "update", "clicks", "--capture", archive)["capture"] == off | {"enabled": True}
    assert "destination: Field required" in run("eventhub", "create", "late", "--capture-interval", "60").output
    assert run("eventhub", "update", "clicks", "--no-capture", "--capture-interval", "60").exit_code == 2
    refused = run("eventhub", "update", "clicks", "--capture-interval", "5")
    assert "captureDescription: intervalInSeconds: Input should be greater than or equal to 60" in refused.output
    assert "destination: Field required" in run("eventhub", "update", "tolls", "--capture-size", "10485760").output
    run("eventhub", "delete", "clicks", "--yes")


@pytest.mark.parametrize("place", ["data", "url"])
def test_a_reader_sees_everything_and_changes_nothing(server: Server, place: str) -> None:
    where = {"data": ["--data", str(server.data_dir)], "url": ["--url", f"http://localhost:{server.http_port}"]}[place]
    environment = {"TIDEGATE_PRINCIPAL_SECRET": SECRET, "TIDEGATE_CONNECTION_STRING": None}

    def run(*arguments: str, **changed: str) -> Result:
        options = ["hub", *where, "--principal", "looker"]
        return CliRunner(env={**environment, **changed}).invoke(main, [*options, *arguments])

    assert json.loads(run("eventhub", "show", "tolls", "-o", "json").output)["name"] == "tolls"
    refused = run("eventhub", "create", "mine")
    assert refused.exit_code == 1
    assert "'looker' with the role reader does not have authorization" in refused.output
    assert refused.output.endswith("(AuthorizationFailed)\n")
    refused = run("authorization-rule", "keys", "list", "RootManageSharedAccessKey")
    assert "AuthorizationFailed" in refused.output
    wrong = run("eventhub", "list", TIDEGATE_PRINCIPAL_SECRET="not-the-secret-at-all")
    assert (wrong.exit_code, "cannot log in as 'looker'" in wrong.output) == (1, True)
    assert "not-the-secret" not in wrong.output
    assert "needs its secret" in run("eventhub", "list", TIDEGATE_PRINCIPAL_SECRET="").output


def test_a_key_with_spaces_logs_in(tmp_path: Path) -> None:
    config = NamespaceConfig(name="ns", event_hubs=(EventHubConfig(name="tolls", partition_count=1),))
    routes = [arm_routes(ArmSettings(tmp_path))]
    with BackgroundServer(config, tmp_path, None, routes, http_port=0) as running:
        access = running.server.namespace.access.rule_table.root_rule
        running.server.namespace.management.set_access_rule(replace(access, primary_key="a key of my own"))
        result = CliRunner().invoke(main, ["hub", "--data", str(tmp_path), "namespace", "show", "-o", "json"])
    assert json.loads(result.output)["name"] == "ns"


def test_a_key_is_not_sent_unencrypted_to_another_machine() -> None:
    options = ["--url", "http://hub.example:5300", "--connection-string"]
    text = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=secret"
    result = CliRunner().invoke(main, ["hub", *options, text, "eventhub", "list"])
    assert (result.exit_code, "would carry the key unencrypted" in result.output) == (2, True)
    result = CliRunner().invoke(main, ["hub", *options, text.replace("RootManage", "Other"), "eventhub", "list"])
    assert (result.exit_code, "accepts the key of RootManageSharedAccessKey only" in result.output) == (2, True)
    assert "secret" not in result.output


def test_the_connection_string_is_printed_on_request(run: Run, server: Server) -> None:
    def printed(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["connection-string", "--data", str(server.data_dir), *arguments])
        assert result.exit_code == 0, result.output
        return result.output.strip()

    assert printed() == server.connection_string()
    assert printed("--eventhub", "tolls") == f"{server.connection_string()}EntityPath=tolls;"
    run("authorization-rule", "create", "of-tolls", "--eventhub", "tolls", "--rights", "Send")
    rule = server.namespace.access.rule_table.rule("of-tolls", "tolls")
    text = printed("--eventhub", "tolls", "--rule", "of-tolls", "--key", "secondary")
    assert text == server.connection_string(rule, rule.secondary_key, "tolls")
