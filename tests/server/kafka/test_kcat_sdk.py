"""kcat, as Debian has it, through the steps of the other clients: all but administration, of which it only lists."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient

from tests.patience import PATIENCE_S, eventually
from tests.programs import program
from tests.server.conftest import receive_events
from tidegate.server import Server

pytestmark = pytest.mark.sdk
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def command(server: Server, *arguments: str) -> list[str]:
    options = {
        "bootstrap.servers": f"127.0.0.1:{server.kafka_port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": server.connection_string(),
    }
    flags = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
    return [program("kcat"), *flags, *arguments]


def kcat(server: Server, *arguments: str, given: str = "") -> str:
    """Run kcat until it ends, and return what it printed."""
    called = command(server, *arguments)
    done = subprocess.run(called, input=given, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_produce_consume_commit_restart_and_seek_by_time(server: Server, hub: str) -> None:
    listed = json.loads(kcat(server, "-L", "-J", "-t", hub))
    assert [len(topic["partitions"]) for topic in listed["topics"]] == [2]
    for compression in COMPRESSIONS:
        options = ("-z", compression, "-H", "colour=red", "-K", ":", "-X", "enable.idempotence=true")
        kcat(server, "-P", "-t", hub, "-p", "0", *options, given=f"key:{compression}\n")
    read = rows(kcat(server, "-C", "-t", hub, "-J", "-e", "-q", "-o", "beginning"))
    assert [(one["offset"], one["key"], one["payload"]) for one in read] == [
        (number, "key", compression) for number, compression in enumerate(COMPRESSIONS)
    ]
    assert {tuple(one["headers"]) for one in read} == {("colour", "red")}
    later = rows(kcat(server, "-C", "-t", hub, "-p", "0", "-J", "-e", "-q", "-o", f"s@{read[3]['ts']}"))
    assert [one["offset"] for one in later][-2:] == [3, 4]
    (asked,) = kcat(server, "-Q", "-t", f"{hub}:0:{read[4]['ts']}").splitlines()
    assert asked.startswith(f"{hub} [0] offset ")
    by_group = kcat(server, "-J", "-q", "-c", "5", "-X", "auto.offset.reset=earliest", "-G", f"g-{hub}", hub)
    assert [one["payload"] for one in rows(by_group)] == list(COMPRESSIONS)
    kcat(server, "-P", "-t", hub, "-p", "0", given="later\n")
    again = kcat(server, "-J", "-q", "-c", "1", "-X", "auto.offset.reset=earliest", "-G", f"g-{hub}", hub)
    assert [one["payload"] for one in rows(again)] == ["later"]


@contextmanager
def member(server: Server, hub: str, output: Path) -> Iterator[None]:
    """A member of the group for as long as the context is open; it leaves as it does at Ctrl-C."""
    options = ("-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=200", "-u", "-f", "%p %s\\n")
    with output.open("wb") as file, output.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command(server, *options, "-G", f"g-{hub}", hub), stdout=file, stderr=log)
    try:
        yield
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


def test_two_members_share_the_partitions_and_take_over_from_one_another(
    server: Server, hub: str, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    sent = 0

    def found(output: Path) -> set[tuple[str, int]]:
        lines = (line.split() for line in output.read_text().splitlines())
        return {(partition, int(number)) for partition, number in lines}

    def is_divided(*wanted: set[str]) -> bool:
        """Produce to both partitions, and return whether each member has read what is in its own."""
        nonlocal sent
        for partition in ("0", "1"):
            kcat(server, "-P", "-t", hub, "-p", partition, given=f"{sent}\n")
        number, sent = sent, sent + 1
        eventually(lambda: {("0", number), ("1", number)} <= found(one) | found(two))
        readers = zip((one, two), wanted, strict=True)
        return all({partition for partition, of in found(output) if of == number} == own for output, own in readers)

    two.touch()
    with member(server, hub, one):
        eventually(lambda: is_divided({"0", "1"}, set()))
        with member(server, hub, two):
            eventually(lambda: is_divided({"0"}, {"1"}) or is_divided({"1"}, {"0"}))
        eventually(lambda: is_divided({"0", "1"}, set()))
    begun_again = tmp_path / "again"
    kcat(server, "-P", "-t", hub, "-p", "0", given=f"{sent}\n")
    with member(server, hub, begun_again):
        eventually(lambda: found(begun_again) == {("0", sent)})


def test_kcat_and_amqp_read_what_the_other_wrote(
    server: Server, connection: str, producer: EventHubProducerClient, hub: str
) -> None:
    kcat(server, "-P", "-t", hub, "-p", "0", "-z", "lz4", "-K", ":", "-H", "colour=red", given="device 1:body\n")
    (event,) = receive_events(connection, hub, 1, partition="0")
    assert (event.body_as_str(), event.partition_key, event.properties) == ("body", b"device 1", {b"colour": b"red"})
    batch = producer.create_batch(partition_id="1")
    batch.add(EventData("of AMQP"))
    producer.send_batch(batch)
    (read,) = rows(kcat(server, "-C", "-t", hub, "-p", "1", "-J", "-e", "-q", "-o", "beginning"))
    assert (read["payload"], read["key"]) == ("of AMQP", None)
