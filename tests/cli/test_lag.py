"""`tidegate lag` against a hub of this process: how far checkpoints are behind, in events and in seconds."""

import json
import logging
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventHubConsumerClient
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
from click import ClickException
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families

from tests.azurite import azurite, container
from tests.patience import PATIENCE_S
from tests.source import ROOT
from tidegate.checkpoints import SqliteCheckpointStore
from tidegate.cli import main
from tidegate.cli.lag import NAMES, PartitionLag, served
from tidegate.client import ClientError
from tidegate.connectors.inputs.hub_log import HubLog
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.hub.group_offsets import GroupOffset, PartitionKey
from tidegate.portal.pages.hubs import group_rows, hub_summary, kafka_group_rows
from tidegate.server import BackgroundServer
from tidegate.server.context.metrics import render


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BackgroundServer]:
    hubs = tuple(EventHubConfig(name=name, partition_count=2) for name in ("cars", "lorries"))
    with BackgroundServer(NamespaceConfig(name="tests", event_hubs=hubs), tmp_path / "data") as running:
        yield running


@pytest.fixture
def connection_string(server: BackgroundServer) -> str:
    return server.connection_string


@pytest.fixture
def address(connection_string: str) -> str:
    return connection_string.partition("//")[2].partition(";")[0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteCheckpointStore]:
    opened = SqliteCheckpointStore(tmp_path / "checkpoints.db")
    yield opened
    opened.close()


def run(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(main, arguments, input=given)


def checkpoint(store: SqliteCheckpointStore, address: str, hub: str, partition: str, number: int, group: str) -> None:
    store.update_checkpoint(
        {
            "fully_qualified_namespace": address,
            "eventhub_name": hub,
            "consumer_group": group,
            "partition_id": partition,
            "offset": str(number),
            "sequence_number": number,
        }
    )


def lags(connection_string: str, store: SqliteCheckpointStore, *options: str) -> list[dict[str, Any]]:
    result = run("lag", connection_string, "--checkpoints", str(store._path), "-o", "json", *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_each_group_and_partition_with_its_distance(
    connection_string: str, address: str, store: SqliteCheckpointStore
) -> None:
    began = time.time()
    run("send", connection_string, "--hub", "cars", "--partition", "0", given="\n".join("abcdefghij"))
    checkpoint(store, address, "cars", "0", 3, "$Default")
    checkpoint(store, address, "cars", "0", 9, "watch")
    checkpoint(store, address, "lorries", "1", 0, "$Default")
    store.claim_ownership(
        [
            {
                "fully_qualified_namespace": address,
                "eventhub_name": "cars",
                "consumer_group": "watch",
                "partition_id": "0",
                "owner_id": "me",
            }
        ]
    )
    rows = lags(connection_string, store)
    assert [(row["hub"], row["group"], row["partition"], row["checkpoint"], row["last"]) for row in rows] == [
        ("cars", "$Default", "0", 3, 9),
        ("cars", "$Default", "1", None, -1),
        ("cars", "watch", "0", 9, 9),
        ("cars", "watch", "1", None, -1),
        ("lorries", "$Default", "0", None, -1),
        ("lorries", "$Default", "1", 0, -1),
    ]
    assert [row["events_behind"] for row in rows] == [6, 0, 0, 0, 0, 0]
    assert 0 < rows[0]["seconds_behind"] < time.time() - began + 1
    assert [row["seconds_behind"] for row in rows[1:]] == [0, 0, 0, 0, 0]
    assert [row["owner"] for row in rows] == ["", "", "me", "", "", ""]
    assert [row["group"] for row in lags(connection_string, store, "--hub", "Cars", "--group", "WATCH")] == [
        "watch"
    ] * 2


def test_a_job_that_reads_the_log_itself_is_a_reader_with_its_lag(
    server: BackgroundServer, connection_string: str, store: SqliteCheckpointStore, address: str
) -> None:
    """It attaches no link and has no checkpoint: it says how far it has come."""
    run("send", connection_string, "--hub", "cars", "--partition", "0", given="\n".join("abcdefghij"))
    metrics = server.server.metrics
    partition = server.server.namespace.event_hub("cars").partition("0")
    log = HubLog.connect(connection_string, "cars", "$Default", job="tolls")
    log.ends()
    sent = metrics.delivered_events
    read = log.range("0", 0, 4)
    assert read.segments is not None
    assert sum(len(events.bodies) for events in read.read_events(10)) == 4
    log.ends()
    assert metrics.delivered_events - sent == 4
    log.ends()
    assert metrics.delivered_events - sent == 4, "they are counted once"
    (job,) = partition.reader_slots("$Default").jobs
    assert (job.name, job.next_sequence_number) == ("tolls", 4)
    assert len(partition.reader_slots("$Default")) == 0, "it takes none of the five places"
    hub = server.server.namespace.event_hub("cars")
    assert hub_summary(hub)["readers"] == 2, "it has a position in each partition"
    (group,) = group_rows(hub)
    assert (group["readers"], group["lag"]) == (2, 6)
    assert {row["name"] for row in group["partitions"]} == {"job tolls"}
    text = render(metrics, server.server.namespace).decode()
    at = 'consumer_group="$Default",event_hub="cars"'
    assert f'tidegate_job_reader_lag_events{{{at},job_name="tolls",partition="0"}} 6.0' in text
    assert f'tidegate_readers{{{at},partition="0"}} 1.0' in text
    result = run("lag", connection_string, "--hub", "cars", "-o", "json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["owner"], row["partition"], row["checkpoint"], row["events_behind"]) for row in rows] == [
        ("job tolls", "0", 3, 6),
        ("job tolls", "1", None, 0),
    ]
    assert rows[0]["seconds_behind"] > 0
    checkpoint(store, address, "cars", "0", 3, "watch")
    owners = {(row["group"], row["owner"]) for row in lags(connection_string, store, "--hub", "cars")}
    assert owners == {("watch", ""), ("$Default", "job tolls")}
    assert "name an event hub" in run("lag", connection_string).output
    log.close()


def commit(server: BackgroundServer, hub: str, group: str, partition: int, position: int) -> None:
    """Keep a position as the request of a Kafka client does."""
    namespace = server.server.namespace
    key = PartitionKey(namespace.event_hub(hub).definition.directory, partition)
    done: Future[object] = Future()
    now_ms = round(time.time() * 1000)
    namespace.group_offsets.commit(group, {key: GroupOffset(position, 0, None, now_ms)}, done.set_result)
    assert done.result(PATIENCE_S) is None


def test_groups_of_kafka_s_clients_are_readers_with_what_they_committed(
    server: BackgroundServer, connection_string: str, address: str, store: SqliteCheckpointStore
) -> None:
    run("send", connection_string, "--hub", "cars", "--partition", "0", given="\n".join("abcdefghij"))
    commit(server, "cars", "Dashboards", 0, 4)
    commit(server, "cars", "Dashboards", 1, 0)
    commit(server, "lorries", "elsewhere", 0, 0)
    result = run("lag", connection_string, "--hub", "cars", "-o", "json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["group"], row["partition"], row["checkpoint"], row["events_behind"]) for row in rows] == [
        ("Dashboards", "0", 3, 6),
        ("Dashboards", "1", None, 0),
    ]
    assert {row["owner"] for row in rows} == {"Kafka group"}
    assert 0 < rows[0]["seconds_behind"] < PATIENCE_S
    checkpoint(store, address, "cars", "0", 9, "$Default")
    assert {row["group"] for row in lags(connection_string, store)} == {"$Default", "Dashboards"}
    assert [row["group"] for row in lags(connection_string, store, "--group", "$Default")] == ["$Default"] * 2
    rendered = render(server.server.metrics, server.server.namespace).decode()
    assert 'tidegate_kafka_group_lag_events{event_hub="cars",kafka_group="Dashboards",partition="0"} 6.0' in rendered
    (group,) = kafka_group_rows(server.server.namespace.event_hub("cars"), server.server.namespace.group_offsets)
    assert (group["name"], group["lag"]) == ("Dashboards", 6)
    assert [row["nextSequenceNumber"] for row in group["partitions"]] == [4, 0]


def test_a_reader_that_never_made_a_checkpoint_is_behind_by_everything(
    connection_string: str, address: str, store: SqliteCheckpointStore
) -> None:
    run("send", connection_string, "--hub", "cars", "--partition", "1", given="a\nb\nc")
    checkpoint(store, address, "cars", "0", 0, "$Default")
    (_, row) = lags(connection_string, store)
    assert (row["partition"], row["checkpoint"], row["events_behind"], row["events_lost"]) == ("1", None, 3, 0)


def test_events_that_retention_took_from_a_reader_are_told_apart(
    server: BackgroundServer, connection_string: str, address: str, store: SqliteCheckpointStore
) -> None:
    run("send", connection_string, "--hub", "cars", "--partition", "0", given="a\nb\nc\nd\ne")
    checkpoint(store, address, "cars", "0", 1, "$Default")
    log = server.server.namespace.event_hub("cars").partition("0").log
    log.apply_retention(before_ms=log.last_enqueued_time_ms + 1)
    run("send", connection_string, "--hub", "cars", "--partition", "0", given="f\ng")
    row = lags(connection_string, store)[0]
    assert (row["checkpoint"], row["last"], row["events_behind"], row["events_lost"]) == (1, 6, 2, 3)


@pytest.mark.sdk
def test_the_seconds_are_known_while_readers_with_owner_levels_are_at_work(
    connection_string: str, address: str, store: SqliteCheckpointStore
) -> None:
    run("send", connection_string, "--hub", "cars", "--partition", "0", given="a\nb")
    checkpoint(store, address, "cars", "0", 0, "$Default")
    client = EventHubConsumerClient.from_connection_string(connection_string, "$Default", eventhub_name="cars")
    at_work = threading.Event()
    reading = threading.Thread(
        target=client.receive,
        args=(lambda context, event: at_work.set(),),
        kwargs={"partition_id": "0", "owner_level": 5, "starting_position": "-1"},
        daemon=True,
    )
    reading.start()
    assert at_work.wait(PATIENCE_S)
    time.sleep(0.5)
    row = lags(connection_string, store)[0]
    client.close()
    reading.join(PATIENCE_S)
    assert row["seconds_behind"] > 0.4


def test_the_table_is_for_people(connection_string: str, address: str, store: SqliteCheckpointStore) -> None:
    run("send", connection_string, "--hub", "cars", "--partition", "0", given="a\nb\nc")
    checkpoint(store, address, "cars", "0", 0, "$Default")
    result = run("lag", connection_string, "--checkpoints", str(store._path))
    head, first, second = result.stdout.splitlines()
    assert head.split("  ")[0] == "HUB"
    assert "EVENTS BEHIND" in head
    assert first.split()[:6] == ["cars", "$Default", "0", "0", "2", "2"]
    assert second.split()[:6] == ["cars", "$Default", "1", "-", "-1", "0"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--hub", "boats"], "cars $default"),
        (["--group", "boats"], "cars $default"),
        (["--namespace", "elsewhere"], "add --namespace"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(
    connection_string: str, address: str, store: SqliteCheckpointStore, options: list[str], said: str
) -> None:
    checkpoint(store, address, "cars", "0", 0, "$Default")
    result = run("lag", connection_string, "--checkpoints", str(store._path), *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_place_without_checkpoints(connection_string: str, store: SqliteCheckpointStore, tmp_path: Path) -> None:
    assert "no checkpoints" in run("lag", connection_string, "--checkpoints", str(store._path)).stderr
    nowhere = tmp_path / "nowhere.db"
    result = run("lag", connection_string, "--checkpoints", str(nowhere))
    assert (result.exit_code, nowhere.exists()) == (2, False)


def test_nothing_is_made_in_somebody_elses_database(connection_string: str, tmp_path: Path) -> None:
    path = tmp_path / "accounts.db"
    with closing(sqlite3.connect(path)) as accounts:
        accounts.execute("CREATE TABLE accounts (id)")
    before = path.read_bytes()
    result = run("lag", connection_string, "--checkpoints", str(path))
    assert (result.exit_code, result.stderr) == (1, f"tidegate: {path} is no checkpoint store\n")
    assert path.read_bytes() == before


def test_a_connection_string_of_one_hub_asks_for_that_hub(
    connection_string: str, address: str, store: SqliteCheckpointStore
) -> None:
    checkpoint(store, address, "cars", "0", 0, "$Default")
    checkpoint(store, address, "lorries", "0", 0, "$Default")
    rows = lags(connection_string.rstrip(";") + ";EntityPath=Lorries", store)
    assert {row["hub"] for row in rows} == {"lorries"}


@pytest.mark.parametrize("text", ["nonsense", "Endpoint=sb://[;SharedAccessKeyName=a;SharedAccessKey=b"])
def test_what_is_wrong_with_a_connection_string_is_said_first(text: str, store: SqliteCheckpointStore) -> None:
    result = run("lag", text, "--checkpoints", str(store._path))
    assert result.exit_code == 1
    assert result.stderr.startswith("tidegate: connection string: ")


@pytest.mark.sdk
def test_the_checkpoints_of_microsofts_own_store(
    connection_string: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("send", connection_string, "--hub", "cars", "--partition", "0", given="\n".join("abcdefghij"))
    with azurite() as account, container(account, "checkpoints") as blobs:
        blobs.upload_blob("somebody/elses/file", b"x")
        store = BlobCheckpointStore.from_connection_string(account, "checkpoints")
        client = EventHubConsumerClient.from_connection_string(
            connection_string, "$Default", eventhub_name="cars", checkpoint_store=store, load_balancing_interval=1
        )
        read = threading.Event()

        def on_event(context: Any, event: Any) -> None:
            if event.sequence_number == 6:
                context.update_checkpoint(event)
                read.set()

        thread = threading.Thread(
            target=client.receive, args=(on_event,), kwargs={"starting_position": "-1"}, daemon=True
        )
        thread.start()
        assert read.wait(PATIENCE_S)
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", account)
        result = run("lag", connection_string, "--checkpoints", "az://checkpoints", "-o", "json")
        client.close()
        thread.join(PATIENCE_S)
        first, second = (json.loads(line) for line in result.stdout.splitlines())
        assert (first["hub"], first["group"], first["partition"]) == ("cars", "$Default", "0")
        assert (first["checkpoint"], first["last"], first["events_behind"]) == (6, 9, 3)
        assert first["owner"]
        assert 0 <= first["checkpoint_age_seconds"] < 300
        assert (second["partition"], second["checkpoint"]) == ("1", None)
        nowhere = run("lag", connection_string, "--checkpoints", "az://nowhere")
        assert nowhere.exit_code == 1
        assert "az://nowhere cannot be read" in nowhere.stderr
        key = account.partition("AccountKey=")[2].partition(";")[0]
        assert key not in nowhere.output


def scrape(address: str) -> dict[tuple[str, ...], float]:
    """Return the samples by name, event hub, consumer group and partition, as far as they have them."""
    labels = ("event_hub", "consumer_group", "partition")
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *(sample.labels[label] for label in labels if label in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_prometheus_reads_the_lag_of_each_scrape_until_the_command_is_stopped(
    connection_string: str, address: str, store: SqliteCheckpointStore, stop: signal.Signals
) -> None:
    run("send", connection_string, "--hub", "cars", "--partition", "0", given="a\nb\nc")
    checkpoint(store, address, "cars", "0", 0, "$Default")
    command = [sys.executable, "-m", "tidegate", "lag", connection_string, "--checkpoints", str(store._path)]
    process = subprocess.Popen([*command, "--serve", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        metrics = process.stdout.readline().removeprefix("Metrics: ").strip()
        told = scrape(metrics)
        assert told["tidegate_consumer_group_lag_events", "cars", "$Default", "0"] == 2
        assert told["tidegate_consumer_group_lag_events", "cars", "$Default", "1"] == 0
        assert told["tidegate_consumer_group_lag_seconds", "cars", "$Default", "0"] > 0
        assert told["tidegate_consumer_group_lost_events", "cars", "$Default", "0"] == 0
        assert told["tidegate_lag_up",] == 1
        checkpoint(store, address, "cars", "0", 2, "$Default")
        assert scrape(metrics)["tidegate_consumer_group_lag_events", "cars", "$Default", "0"] == 0
        process.send_signal(stop)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, said) == (0, "")


@pytest.mark.slow
def test_a_scrape_that_cannot_read_the_lag_says_so_and_the_next_one_can(caplog: pytest.LogCaptureFixture) -> None:
    row = PartitionLag("cars", "watch", "0", None, 4, 5, None, 0, None, "")
    answers: list[Exception | list[PartitionLag]] = [ClientError("unreachable"), ClientError("unreachable"), [row]]

    def read() -> list[PartitionLag]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with caplog.at_level(logging.WARNING), served(read, "127.0.0.1", 0) as metrics:
        assert scrape(metrics) == {("tidegate_lag_up",): 0}
        assert scrape(metrics) == {("tidegate_lag_up",): 0}
        # Of what is not known there is no sample.
        assert scrape(metrics) == {
            ("tidegate_consumer_group_lag_events", "cars", "watch", "0"): 5,
            ("tidegate_consumer_group_lost_events", "cars", "watch", "0"): 0,
            ("tidegate_lag_up",): 1,
        }
        port = metrics.rsplit(":", 1)[1].partition("/")[0]
        with pytest.raises(ClickException, match=f"cannot serve metrics on 127.0.0.1:{port}: Address already in use"):
            served(read, "127.0.0.1", int(port)).__enter__()
    assert [record.getMessage() for record in caplog.records] == ["the lag cannot be read: unreachable"]


@pytest.mark.parametrize("text", ["here", "localhost:", "1.2.3.4:70000", "-1"])
def test_an_address_that_is_none_is_refused(connection_string: str, store: SqliteCheckpointStore, text: str) -> None:
    result = run("lag", connection_string, "--checkpoints", str(store._path), f"--serve={text}")
    assert result.exit_code == 2
    assert "expected [HOST:]PORT" in result.stderr


def test_the_metrics_of_consumer_groups_are_documented() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert not [name for name in NAMES if f"`{name}" not in text]
