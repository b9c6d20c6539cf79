"""kill -9 of gateways while schemas are registered and read: none is lost, and all gateways give the same ids."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.jars import free_ports
from tests.kafka.cluster import Cluster
from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import KEY, RULE
from tests.server.process import Hub
from tidegate.hub.access import sign

GATEWAYS = ("a", "b")
WRITERS = 3
CLIENT_ERRORS = range(400, 500)


class Gateway(Hub):
    """A gateway in a process of its own, over all its lives."""

    def __init__(self, brokers: Cluster, client: str, folder: Path) -> None:
        super().__init__(folder / client)
        (self.http_port,) = free_ports(1)
        name = f"{folder.name}.schemas"  # a folder's name may end with what a namespace's may not
        config = {"UserConfig": {"NamespaceConfig": [{"Type": "EventHub", "Name": name, "Entities": []}]}}
        file = folder / f"{client}.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        store = f"kafka://{brokers.clients[client]}"
        self._options = ("--config", str(file), "--store", store, "--http-port", str(self.http_port), "--no-portal")

    def begin(self) -> None:
        self.start(*self._options, "--kafka-port", "0")

    def call(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """Ask the registry. Raises OSError, HTTPError."""
        token = sign(f"sb://localhost:{self.http_port}", RULE, KEY, int(time.time()) + 3600)
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.http_port}/schema-registry/{path}"
        request = urllib.request.Request(url, data, {"Authorization": token}, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)


def schema(number: int) -> str:
    return json.dumps({"type": "fixed", "name": f"F{number}", "size": number + 1})


class Writer(threading.Thread):
    """Registers the same schemas as the others, in a subject of its own, and reads each at another gateway at once."""

    def __init__(self, name: str, gateways: list[Gateway], seed: int) -> None:
        super().__init__(daemon=True)
        self.subject = name
        self._gateways = gateways
        self._draw = random.Random(seed)
        self.is_over = threading.Event()
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failures: list[str] = []

    def run(self) -> None:
        number = 0
        while not self.is_over.is_set():
            found = self._ask(f"subjects/{self.subject}/versions", {"schema": schema(number)})
            if found is None:
                break
            self.acknowledged[number] = found["id"], found["version"]
            text = self._ask(f"schemas/ids/{found['id']}")
            if text is not None and text["schema"] != schema(number):
                self.failures.append(f"id {found['id']} was given for {schema(number)} and is {text['schema']}")
            number += 1

    def _ask(self, path: str, body: Any = None) -> Any:
        """Ask gateways until one answers; None if the test is over first."""
        while not self.is_over.is_set():
            try:
                return self._draw.choice(self._gateways).call(path, body)
            except urllib.error.HTTPError as error:
                if error.code in CLIENT_ERRORS:
                    self.failures.append(f"{path}: {error.code} {error.read().decode()}")
                    return None
            except (OSError, http.client.HTTPException):
                pass  # the gateway was killed
            self.is_over.wait(0.05)
        return None


def check(gateways: list[Gateway], writers: list[Writer]) -> None:
    """Check that every gateway has what was acknowledged, under the ids and versions that were given."""
    ids: dict[int, set[int]] = defaultdict(set)
    for gateway in gateways:
        for writer in writers:
            versions = gateway.call(f"subjects/{writer.subject}/versions")
            assert versions == list(range(1, len(versions) + 1))
            assert len(versions) - len(writer.acknowledged) in (0, 1), "nothing is there twice"
            for number, (schema_id, version) in writer.acknowledged.items():
                found = gateway.call(f"subjects/{writer.subject}/versions/{version}")
                assert (found["id"], found["schema"]) == (schema_id, schema(number))
                ids[number].add(schema_id)
    assert {len(found) for found in ids.values()} == {1}, "a schema has one id"
    given = [next(iter(found)) for found in ids.values()]
    assert len(set(given)) == len(given), "an id has one schema"
    listed = {json.dumps(gateway.call("schemas"), sort_keys=True) for gateway in gateways}
    assert len(listed) == 1, "all gateways have the same"


def wait_for_more(writers: list[Writer]) -> None:
    """Wait until each writer has registered something."""
    before = [len(writer.acknowledged) for writer in writers]
    eventually(lambda: all(len(one.acknowledged) > count for one, count in zip(writers, before, strict=True)))


@pytest.mark.parametrize("kills", [1, pytest.param(40, marks=pytest.mark.soak)])
def test_acknowledged_schemas_survive_kills_of_gateways(three_brokers: Cluster, tmp_path: Path, kills: int) -> None:
    gateways = [Gateway(three_brokers, client, tmp_path) for client in GATEWAYS]
    writers = [Writer(f"s{number}", gateways, number) for number in range(WRITERS)]
    try:
        for gateway in gateways:
            gateway.begin()
        gateways[0].call("config", {"compatibility": "NONE"}, "PUT")
        for writer in writers:
            writer.start()
        for number in range(kills):
            wait_for_more(writers)
            time.sleep(random.uniform(0, 0.1))
            killed = [random.choice(gateways)] if number % 4 != 3 else gateways
            for gateway in killed:
                gateway.kill()
            for gateway in killed:
                gateway.begin()
        wait_for_more(writers)
        for writer in writers:
            writer.is_over.set()
        for writer in writers:
            writer.join(PATIENCE_S)
        assert [failure for writer in writers for failure in writer.failures] == []
        check(gateways, writers)
    finally:
        for writer in writers:
            writer.is_over.set()
        for gateway in gateways:
            gateway.process.kill()
            gateway.process.wait()
