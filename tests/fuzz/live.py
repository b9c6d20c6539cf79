"""`python -m tests.fuzz.live KIND SEED SECONDS TRIED`: mutated bytes against a running hub, and what others notice.

The hub is `tidegate up` in a process of its own. A bystander, a client in another process, publishes an event at a time
all the while, first without an attack, for as long as that lasts but at most for seconds. The hub must be healthy in
the end, must not have grown beyond `MOST_MB`, and must not have kept the bystander waiting for longer than
`LONGEST_WAIT_S`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import IO, Any

from tests.fuzz import kafka, targets
from tests.fuzz.mutation import mutations
from tests.server.process import Hub, free_port
from tidegate.client import ConnectionString, Publisher
from tidegate.kafka.messages import Api

MOST_MB = 600
LONGEST_WAIT_S = 5.0
_CALM_S = 3.0
_HELD = 60
_ANSWERED_S, _READ_S = 30.0, 0.02
_KEY = "SAS_KEY_VALUE"
_PROVIDERS = "/subscriptions/s/providers/Microsoft.StreamAnalytics/locations/local"
_GROUP = "/subscriptions/s/resourceGroups/g/providers"


def _request(method: str, path: str, content: bytes, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def _management(method: str, path: str, body: Any) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    json_ = {"Content_Type": "application/json", "Authorization": f"Bearer {_KEY}"}
    return _request(method, f"{path}?api-version=2021-10-01-preview", content, **json_)


def _amqp(seed: int) -> Iterator[bytes]:
    for part in range(seed, 1 << 62):
        yield from mutations([*targets.TARGETS["server"].seeds, targets.CONVERSATION + targets.RUN], 500, part)


def _http(seed: int) -> Iterator[bytes]:
    """Requests with anything changed, their first lines and lengths too."""
    batch = {"Content_Type": "application/vnd.microsoft.servicebus.json"}
    seeds = [
        _request("POST", "/eh1/messages?timeout=60", b"x", BrokerProperties='{"PartitionKey": "7"}'),
        _request("POST", "/eh1/messages", targets.TARGETS["http_batch"].seeds[0], **batch),
        _request("GET", "/metrics", b"", Accept="text/plain"),
        _request("GET", "/hubs/eh1?partition=0", b"", Cookie="session=x"),
        _request("GET", "/$servicebus/websocket", b"", Connection="Upgrade", Upgrade="websocket"),
        _management("PUT", f"{_GROUP}/Microsoft.EventHub/namespaces/n/eventhubs/h", {"properties": {}}),
    ]
    for part in range(seed, 1 << 62):
        yield from mutations(seeds, 500, part)


def _heavy(seed: int) -> Iterator[bytes]:
    """Whole requests to the management API with queries, samples and templates that are mutated or grow."""
    random = Random(seed)
    kinds: Sequence[Callable[[int], bytes]] = (_compile, _deploy, _nested_query, _nested_template, _sample)
    while True:
        yield random.choice(kinds)(random.randrange(1 << 40))


def _mutant(name: str, seed: int) -> bytes:
    """Return one mutation of a target's seeds."""
    seeds = targets.TARGETS[name].seeds
    return list(mutations(seeds, 1, seed))[-1]


def _compile(seed: int) -> bytes:
    text = _mutant("query", seed).decode("utf-8", "replace")
    return _management("POST", f"{_PROVIDERS}/compileQuery", {"query": text})


def _sample(seed: int) -> bytes:
    text, _, events = _mutant("expression", seed).decode("utf-8", "replace").partition("\n")
    kind = {"type": "Stream", "serialization": {"type": "Json", "properties": {"encoding": "UTF8"}}}
    source = {"type": "Raw", "properties": {"payload": events}}
    query = {"name": "t", "properties": {"query": f"SELECT {text} AS x INTO o FROM a"}}
    job = {
        "sku": {"name": "Standard"},
        "transformation": query,
        "inputs": [{"name": "a", "properties": {**kind, "datasource": source}}],
    }
    return _management("POST", f"{_PROVIDERS}/testQuery", {"streamingJob": {"properties": job}})


def _deploy(seed: int) -> bytes:
    properties = b'{"properties":{"mode":"Incremental","template":' + _mutant("template", seed) + b"}}"
    return _management("PUT", f"{_GROUP}/Microsoft.Resources/deployments/d{seed % 9}", properties)


def _nested_query(seed: int) -> bytes:
    random = Random(seed)
    grown = random.choice(
        ("SELECT a FROM s{0} UNION SELECT a FROM s{0}", "SELECT CONCAT(a, a, a) AS a FROM s{0}", "SELECT * FROM s{0}")
    )
    steps = ", ".join(f"s{number + 1} AS ({grown.format(number)})" for number in range(random.randrange(10, 60)))
    deep = "(" * random.randrange(2000)
    query = f"WITH s0 AS (SELECT a FROM i), {steps} SELECT a INTO o FROM s9 WHERE {deep}a"
    return _management("POST", f"{_PROVIDERS}/compileQuery", {"query": query})


def _nested_template(seed: int) -> bytes:
    random = Random(seed)
    count, levels = random.randrange(2, 60), random.randrange(1, 6)
    value: Any = "[concat(parameters('p'), parameters('p'))]"
    for level in range(levels):
        value = {"copy": [{"name": f"c{level}", "count": count, "input": value}]}
    variables = {"copy": [{"name": "x", "count": count, "input": value}], "y": "[string(range(0, 10000))]"}
    template = {"parameters": {"p": {"type": "string", "defaultValue": "n" * 999}}, "variables": variables}
    resource = {"type": "Microsoft.EventHub/namespaces", "name": "[variables('x')[0]]", "apiVersion": "2024-01-01"}
    content = {**template, "resources": [{**resource, "copy": {"name": "r", "count": count * 20}}]}
    properties = {"properties": {"mode": "Incremental", "template": content}}
    return _management("PUT", f"{_GROUP}/Microsoft.Resources/deployments/d", properties)


def _kafka(seed: int) -> Iterator[bytes]:
    """Conversations of a client of Kafka that has logged in, or has not, with anything changed after that."""
    token = b"\0$ConnectionString\0SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
    handshake = kafka.framed(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
    logged_in = handshake + kafka.framed(Api.SASL_AUTHENTICATE, {"auth_bytes": token})
    for part in range(seed, 1 << 62):
        for data in mutations(kafka.FRAMES, 500, part):
            yield logged_in + data + kafka.FRAMES[part % len(kafka.FRAMES)]
            yield data


ATTACKS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "live_amqp": _amqp,
    "live_http": _http,
    "live_heavy": _heavy,
    "live_kafka": _kafka,
}
_ON_HTTP = ("live_http", "live_heavy")


def main() -> None:
    """Attack a hub, or be the bystander."""
    if sys.argv[1] == "bystander":
        _publish(sys.argv[2])
        return
    kind, seed, seconds, tried = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="tidegate-fuzz-") as folder, tried.open("wb", buffering=0) as file:
        hub, http_port, kafka_port = Hub(Path(folder) / "data"), free_port(), free_port()
        with (Path(folder) / "log").open("wb") as log:
            hub.start("--http-port", str(http_port), "--kafka-port", str(kafka_port), stderr=log.fileno())
        try:
            port = http_port if kind in _ON_HTTP else kafka_port if kind == "live_kafka" else hub.port
            said = _attacked(kind, hub, (port, http_port), ATTACKS[kind](seed), seconds, file)
        finally:
            hub.kill()
        shown = (Path(folder) / "log").read_text(errors="replace")
        assert "Traceback" not in shown, shown[shown.index("Traceback") :][:4_000]
        print(said)
    tried.unlink()


def _attacked(
    kind: str, hub: Hub, ports: tuple[int, int], attack: Iterator[bytes], seconds: float, file: IO[bytes]
) -> str:
    """Return what was measured; of the ports, the first is attacked, and the second serves HTTP."""
    port, http_port = ports
    on_http, patience_s = kind in _ON_HTTP, _ANSWERED_S if kind == "live_heavy" else _READ_S
    statuses: Counter[str] = Counter()
    command = [sys.executable, "-m", "tests.fuzz.live", "bystander", hub.connection]
    bystander = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert bystander.stdin is not None
    assert bystander.stdout is not None
    try:
        assert bystander.stdout.readline() == "publishes\n", "the bystander cannot publish"
        time.sleep(min(_CALM_S, seconds))
        before_mb = _peak_mb(hub.process.pid)
        began_s, count, slowest_s = time.monotonic(), 0, 0.0
        held: deque[socket.socket] = deque()
        for data in attack:
            asked_s = time.monotonic()
            if asked_s > began_s + seconds:
                break
            _ = os.pwrite(file.fileno(), len(data).to_bytes(8, "little") + data, 0)
            held.append(_sent(port, data, patience_s))
            statuses[_status(held[-1]) if on_http else ""] += 1
            if len(held) > _HELD:
                held.popleft().close()
            count += 1
            slowest_s = max(slowest_s, time.monotonic() - asked_s)
        for one in held:
            one.close()
        bystander.stdin.close()
        waits = json.loads(bystander.stdout.read())
    finally:
        bystander.kill()
        bystander.wait()
    assert hub.process.poll() is None, "the hub has ended"
    answer = _sent(http_port, _request("GET", "/health", b"", Connection="close"), _ANSWERED_S)
    assert b" 200 " in answer.recv(1 << 16), "the hub is not healthy"
    answer.close()
    peak_mb = _peak_mb(hub.process.pid)
    assert peak_mb < MOST_MB, f"the hub took {peak_mb} MB"
    calm = [took for at, took in waits if at < began_s]
    under = [took for at, took in waits if at >= began_s]
    assert max(under) < LONGEST_WAIT_S, f"a bystander waited for {max(under):.1f} s"
    shown = "".join(f"; {status}: {times:,}" for status, times in statuses.most_common(5) if status)
    return (
        f"{count:,} inputs (longest {slowest_s:.1f} s{shown}), hub {before_mb} to {peak_mb} MB; "
        f"bystander alone {_spread(calm)}, under attack {_spread(under)}"
    )


def _spread(waits: Sequence[float]) -> str:
    parts = statistics.quantiles(waits, n=100) if len(waits) > 1 else [*waits] * 99
    return f"p50 {parts[49] * 1e3:.1f} p99 {parts[98] * 1e3:.1f} max {max(waits) * 1e3:.0f} ms of {len(waits):,}"


def _peak_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


def _status(connection: socket.socket) -> str:
    """Return the status of an answer that has begun to arrive."""
    with contextlib.suppress(OSError):
        return connection.recv(12, socket.MSG_PEEK | socket.MSG_DONTWAIT).decode("latin-1")[9:12]
    return "none"


def _sent(port: int, data: bytes, patience_s: float) -> socket.socket:
    """Send bytes, wait for the beginning of an answer if there is one, and return the open connection."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    with contextlib.suppress(OSError):
        connection.sendall(data)
        connection.settimeout(patience_s)
        connection.recv(1 << 16, socket.MSG_PEEK)
    return connection


def _publish(connection: str) -> None:
    """Publish until standard input ends; print when each event was sent, and how long its acknowledgement took."""
    ends = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ends.set()

    threading.Thread(target=wait, daemon=True).start()
    waits = []
    with contextlib.closing(Publisher(ConnectionString.parse(connection + "EntityPath=eh1"))) as publisher:
        publisher.publish([b"bystander"])
        print("publishes", flush=True)
        while not ends.wait(0.01):
            began_s = time.monotonic()
            publisher.publish([b"bystander"])
            waits.append((began_s, time.monotonic() - began_s))
    print(json.dumps(waits))


if __name__ == "__main__":
    main()
