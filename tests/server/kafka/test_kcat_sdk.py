"""kcat, as Debian has it: produce with keys, headers and every compression, consume, by group and by time, list."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.programs import program
from tidegate.server import Server

pytestmark = pytest.mark.soak


def kcat(server: Server, *arguments: str, given: str = "") -> str:
    options = {
        "bootstrap.servers": f"127.0.0.1:{server.kafka_port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": server.connection_string(),
    }
    flags = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
    command = [program("kcat"), *flags, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_kcat(server: Server, hub: str) -> None:
    listed = json.loads(kcat(server, "-L", "-J", "-t", hub))
    assert [len(topic["partitions"]) for topic in listed["topics"]] == [2]
    compressions = ("none", "gzip", "snappy", "lz4", "zstd")
    for compression in compressions:
        options = ("-z", compression, "-H", "colour=red", "-K", ":", "-X", "enable.idempotence=true")
        kcat(server, "-P", "-t", hub, "-p", "0", *options, given=f"key:{compression}\n")
    read = rows(kcat(server, "-C", "-t", hub, "-J", "-e", "-q", "-o", "beginning"))
    assert [(one["offset"], one["key"], one["payload"]) for one in read] == [
        (number, "key", compression) for number, compression in enumerate(compressions)
    ]
    assert {tuple(one["headers"]) for one in read} == {("colour", "red")}
    later = rows(kcat(server, "-C", "-t", hub, "-p", "0", "-J", "-e", "-q", "-o", f"s@{read[3]['ts']}"))
    assert [one["offset"] for one in later][-2:] == [3, 4]
    (asked,) = kcat(server, "-Q", "-t", f"{hub}:0:{read[4]['ts']}").splitlines()
    assert asked.startswith(f"{hub} [0] offset ")
    by_group = kcat(server, "-J", "-q", "-c", "5", "-X", "auto.offset.reset=earliest", "-G", f"g-{hub}", hub)
    assert [one["payload"] for one in rows(by_group)] == list(compressions)
    kcat(server, "-P", "-t", hub, "-p", "0", given="later\n")
    again = kcat(server, "-J", "-q", "-c", "1", "-X", "auto.offset.reset=earliest", "-G", f"g-{hub}", hub)
    assert [one["payload"] for one in rows(again)] == ["later"]
