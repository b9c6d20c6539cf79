"""azure-messaging-eventhubs for Java, unmodified, over plain TCP and TLS."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests import jars
from tests.server.compiled_client import Answer, CompiledClient, Scenarios
from tidegate.amqp import Byte, Char, Float, Int, Short, Timestamp
from tidegate.server import Server

pytestmark = pytest.mark.sdk

SOURCES = Path(__file__).parent / "java"


@pytest.fixture(scope="module")
def client(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompiledClient]:
    folder = tmp_path_factory.mktemp("java")
    class_path = jars.class_path(SOURCES)
    subprocess.run(["javac", "-cp", class_path, "-d", str(folder), str(SOURCES / "Driver.java")], check=True)
    command = jars.java("-cp", f"{class_path}:{folder}", "Driver")
    program = CompiledClient(command, folder / "errors.log")
    yield program
    program.close()


class TestJava(Scenarios):
    sent: ClassVar[dict[str, Any]] = {
        "text": "é",
        "bool": True,
        "byte": Byte(-7),
        "short": Short(-700),
        "int": Int(-70_000),
        "long": -7_000_000_000,
        "float": Float(1.5),
        "double": -2.25,
        "char": Char("é"),
        "uuid": uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"),
        "timestamp": Timestamp(1_700_000_000_123),
    }
    received: ClassVar[dict[str, list[str]]] = {
        "null": ["null", ""],
        "bool": ["Boolean", "true"],
        "ubyte": ["UnsignedByte", "200"],
        "ushort": ["UnsignedShort", "60000"],
        "uint": ["UnsignedInteger", "4000000000"],
        "ulong": ["UnsignedLong", "18000000000000000000"],
        "byte": ["Byte", "-7"],
        "short": ["Short", "-700"],
        "int": ["Integer", "-70000"],
        "long": ["Long", "-7000000000"],
        "float": ["Float", "1.5"],
        "double": ["Double", "-2.25"],
        "char": ["Character", "é"],
        "timestamp": ["Date", "1700000000123"],
        "uuid": ["UUID", "00112233-4455-6677-8899-aabbccddeeff"],
        "binary": ["Binary", "\\x00\\xff"],
        "string": ["String", "é"],
        "symbol": ["Symbol", "symbol"],
    }

    # Go's client does both in every run; Java's waits for seconds before it goes on.

    @pytest.mark.soak
    def test_two_processors_share_and_one_takes_over(self, client: CompiledClient, connection: str, hub: str) -> None:
        super().test_two_processors_share_and_one_takes_over(client, connection, hub)

    @pytest.mark.soak
    def test_a_hub_that_restarts_while_clients_are_connected(self, client: CompiledClient, tmp_path: Path) -> None:
        super().test_a_hub_that_restarts_while_clients_are_connected(client, tmp_path)

    def is_refused_key(self, said: Answer) -> bool:
        return said.get("condition") == "amqp:unauthorized-access"

    def is_missing(self, said: Answer) -> bool:
        return said.get("condition") == "amqp:not-found" and not said["transient"]

    def is_out_of_range(self, said: Answer) -> bool:
        return said.get("condition") == "com.microsoft:argument-out-of-range"

    def is_stolen(self, said: Answer) -> bool:
        return said.get("condition") == "amqp:link:stolen"

    def is_too_large(self, said: Answer) -> bool:
        return said.get("condition") == "amqp:link:message-size-exceeded"
