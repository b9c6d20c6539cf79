"""azeventhubs for Go, unmodified, over plain TCP and TLS."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.server.compiled_client import EVERY_TYPE, Answer, CompiledClient, Scenarios

pytestmark = pytest.mark.sdk

SOURCES = Path(__file__).parent / "go"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompiledClient]:
    assert shutil.which("go"), "Go is needed for this test: `scripts/need go` installs it"
    folder = tmp_path_factory.mktemp("go")
    subprocess.run(["go", "build", "-o", str(folder / "driver"), "."], cwd=SOURCES, check=True)
    program = CompiledClient([str(folder / "driver")], folder / "errors.log")
    yield program
    program.close()


class TestGo(Scenarios):
    sent: ClassVar[dict[str, Any]] = {
        "text" if name == "string" else name: value for name, value in EVERY_TYPE.items() if name != "char"
    }
    received: ClassVar[dict[str, list[str]]] = {
        "null": ["nil", ""],
        "bool": ["bool", "true"],
        "ubyte": ["uint8", "200"],
        "ushort": ["uint16", "60000"],
        "uint": ["uint32", "4000000000"],
        "ulong": ["uint64", "18000000000000000000"],
        "byte": ["int8", "-7"],
        "short": ["int16", "-700"],
        "int": ["int32", "-70000"],
        "long": ["int64", "-7000000000"],
        "float": ["float32", "1.5"],
        "double": ["float64", "-2.25"],
        "timestamp": ["time.Time", "1700000000123"],
        "uuid": ["encoding.UUID", "00112233-4455-6677-8899-aabbccddeeff"],
        "binary": ["[]uint8", "00ff"],
        "string": ["string", "é"],
        "symbol": ["string", "symbol"],
    }
    """go-amqp has no char."""

    def is_refused_key(self, said: Answer) -> bool:
        return said.get("code") == "unauthorized" or "status code 401" in said["text"]  # the latter for properties

    def is_missing(self, said: Answer) -> bool:
        return "could not be found" in said["text"]

    def is_out_of_range(self, said: Answer) -> bool:
        return "com.microsoft:argument-out-of-range" in said["text"]

    def is_stolen(self, said: Answer) -> bool:
        return said.get("code") == "ownershiplost"

    def is_too_large(self, said: Answer) -> bool:
        return "too large" in said["text"]
