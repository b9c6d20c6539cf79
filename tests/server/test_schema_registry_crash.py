"""kill -9 of the hub while schemas are registered: what was acknowledged is there, under the same id and version."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S
from tests.profiles import scaled
from tests.server.process import Hub, free_port
from tidegate.hub.access import sign

KILLS = 2


def call(port: int, path: str, body: Any = None) -> Any:
    token = sign(f"sb://localhost:{port}", "RootManageSharedAccessKey", "SAS_KEY_VALUE", int(time.time()) + 3600)
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/schema-registry/{path}", data)
    request.add_header("Authorization", token)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def schema(number: int) -> str:
    return json.dumps({"type": "fixed", "name": f"F{number}", "size": number + 1})


def test_acknowledged_schemas_survive_kills(tmp_path: Path) -> None:
    hub, port = Hub(tmp_path / "data"), free_port()
    options = ("--http-port", str(port), "--kafka-port", "0")
    acknowledged: dict[int, tuple[int, int]] = {}
    is_stopping = threading.Event()

    def register() -> None:
        number = 0
        while not is_stopping.is_set():
            try:
                answer = call(port, f"subjects/s{number % 3}/versions", {"schema": schema(number)})
            except (OSError, http.client.HTTPException):  # half an answer is none
                is_stopping.wait(0.02)
                continue
            acknowledged[number] = answer["id"], answer["version"]
            number += 1

    hub.start(*options)
    request = json.dumps({"compatibility": "NONE"}).encode()
    thread = threading.Thread(target=register)
    try:
        token = sign(f"sb://localhost:{port}", "RootManageSharedAccessKey", "SAS_KEY_VALUE", int(time.time()) + 3600)
        config = urllib.request.Request(f"http://127.0.0.1:{port}/schema-registry/config", request, method="PUT")
        config.add_header("Authorization", token)
        urllib.request.urlopen(config, timeout=PATIENCE_S).close()
        thread.start()
        for _ in range(scaled(KILLS)):
            before = len(acknowledged)
            deadline = time.monotonic() + PATIENCE_S
            while len(acknowledged) < before + 5 and time.monotonic() < deadline:
                time.sleep(random.uniform(0.001, 0.02))
            hub.kill()
            hub.start(*options)
        is_stopping.set()
        thread.join(PATIENCE_S)
        assert len(acknowledged) >= 5 * scaled(KILLS)
        assert len({schema_id for schema_id, _ in acknowledged.values()}) == len(acknowledged)
        for number, (schema_id, version) in acknowledged.items():
            assert call(port, f"schemas/ids/{schema_id}")["schema"] == schema(number)
            assert call(port, f"subjects/s{number % 3}/versions/{version}")["id"] == schema_id
    finally:
        is_stopping.set()
        hub.kill()
