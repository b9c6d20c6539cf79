"""`tidegate up` as a process: what it prints, how it stops, and what it says when it cannot."""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S, PROMPTLY_S, eventually
from tidegate.hub.access import sign
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer, ListenError

pytestmark = pytest.mark.slow


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tidegate", "up", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ready_lines(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if lines[-1] == "Emulator Service is Successfully Up!":
            return lines
    raise AssertionError(f"did not come up: {lines}")


def refusal(*arguments: str) -> tuple[int, str]:
    process = start(*arguments)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in errors
    return process.returncode, errors


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_comes_up_says_how_to_connect_and_stops_in_time(tmp_path: Path, how: Any) -> None:
    process = start("--data", str(tmp_path / "data"), "--amqp-port", "0")
    lines = ready_lines(process)
    (connection,) = (line for line in lines if line.startswith("Connection string: "))
    port = int(connection.split("Endpoint=sb://localhost:")[1].split(";")[0])
    assert connection.endswith(
        ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )
    assert any("eh1 (4 partitions)" in line for line in lines)
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"AMQP\x00\x01\x00\x00")
        started = time.monotonic()
        process.send_signal(how)
        assert process.wait(PATIENCE_S) == 0
    assert time.monotonic() - started < PROMPTLY_S
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_the_emulators_config_is_read_as_it_is(tmp_path: Path) -> None:
    entities = [{"Name": "orders", "PartitionCount": "3", "ConsumerGroups": [{"Name": "cg1"}]}]
    namespace = {"Type": "EventHub", "Name": "emulatorNs1", "Entities": entities}
    config = tmp_path / "Config.json"
    config.write_text(json.dumps({"UserConfig": {"NamespaceConfig": [namespace], "LoggingConfig": {"Type": "File"}}}))
    process = start("--config", str(config), "--data", str(tmp_path / "data"), "--amqp-port", "0")
    lines = ready_lines(process)
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    assert any("orders (3 partitions)" in line for line in lines)


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, errors = refusal("--data", str(tmp_path / "data"), "--amqp-port", str(port))
    assert code == 1
    assert errors.startswith(f"tidegate: port {port} is in use")
    assert errors.count("\n") == 1
    assert not (tmp_path / "data").exists()  # nothing was opened, which may take long, before it was said


def test_a_port_of_the_emulator_is_left_to_who_has_it(tmp_path: Path) -> None:
    config = NamespaceConfig(name="ns", event_hubs=(EventHubConfig(name="h", partition_count=1),))
    with socket.create_server(("127.0.0.1", 0)) as web, socket.create_server(("127.0.0.1", 0)) as kafka:
        taken = {one.getsockname()[1] for one in (web, kafka)}
        ports = {"http_port": web.getsockname()[1], "kafka_port": kafka.getsockname()[1]}
        with pytest.raises(ListenError, match="is in use; stop what uses it"):
            BackgroundServer(config, tmp_path, **ports).start()
        with BackgroundServer(config, tmp_path, replaceable_ports=frozenset(taken), **ports) as running:
            chosen = {running.server.http_port, running.server.kafka_port}
    assert None not in chosen
    assert len(chosen | taken) == 4


def test_a_data_directory_that_another_hub_has(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    process = start("--data", data, "--amqp-port", "0")
    ready_lines(process)
    code, errors = refusal("--data", data, "--amqp-port", "0")
    process.terminate()
    process.wait(PATIENCE_S)
    assert code == 1
    assert data in errors
    assert errors.count("\n") == 1


def test_a_data_directory_that_cannot_be_made() -> None:
    code, errors = refusal("--data", "/proc/tidegate/data", "--amqp-port", "0")
    assert code == 1
    assert "/proc/tidegate" in errors


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, errors = refusal("--data", str(tmp_path / "file"), "--amqp-port", "0")
    assert code in (1, 2)
    assert "file" in errors


@pytest.mark.parametrize(
    ("content", "expected"), [("{", "Config.json"), ('{"UserConfig": {}}', "NamespaceConfig"), (None, "Config.json")]
)
def test_a_config_that_cannot_be_used(tmp_path: Path, content: str | None, expected: str) -> None:
    config = tmp_path / "Config.json"
    if content is not None:
        config.write_text(content)
    code, errors = refusal("--config", str(config), "--data", str(tmp_path / "data"), "--amqp-port", "0")
    assert code in (1, 2)
    assert expected in errors


def test_tier_units_and_log_format(tmp_path: Path) -> None:
    limits = ["--tier", "basic", "--throughput-units", "2", "--auto-inflate-to", "4", "--log-format", "json"]
    process = start("--data", str(tmp_path / "data"), "--amqp-port", "0", *limits)
    lines = ready_lines(process)
    (http,) = (line for line in lines if line.startswith("HTTP: "))
    url = f"http://{http.removeprefix('HTTP: ')}"
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_S) as answer:
        assert b"tidegate_throughput_units 2.0" in answer.read()
    token = sign("sb://localhost/", "RootManageSharedAccessKey", "SAS_KEY_VALUE", int(time.time()) + 60)
    request = urllib.request.Request(f"{url}/eh1/messages", b"x" * 300_000, {"Authorization": token})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=PATIENCE_S)
    assert refused.value.code == 413
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    assert process.stderr is not None
    logged = json.loads(process.stderr.readline())
    assert (logged["level"], logged["logger"]) == ("WARNING", "tidegate.server.http.refusals")


def test_auto_inflate_needs_units_to_start_from(tmp_path: Path) -> None:
    for wrong in (["--auto-inflate-to", "4"], ["--throughput-units", "5", "--auto-inflate-to", "4"]):
        code, errors = refusal("--data", str(tmp_path / "data"), "--amqp-port", "0", *wrong)
        assert code == 2
        assert "--auto-inflate-to needs --throughput-units" in errors


def test_a_key_of_ones_own_is_printed_on_request_only_and_files_are_not_for_others(tmp_path: Path) -> None:
    """What a start prints ends up in logs."""
    data = tmp_path / "data"
    options = ["--data", str(data), "--amqp-port", "0", "--http-port", "0", "--verbose"]
    printed = ""
    key = "SAS_KEY_VALUE"
    for _ in range(2):
        process = start(*options)
        try:
            lines = ready_lines(process)
            command = [sys.executable, "-m", "tidegate", "connection-string", "--data", str(data)]
            shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
            assert f"SharedAccessKey={key};" in shown
            if key == "SAS_KEY_VALUE":
                rule = ["hub", "--data", str(data), "authorization-rule", "keys", "renew", "RootManageSharedAccessKey"]
                renew = [sys.executable, "-m", "tidegate", *rule, "--key", "primary", "-o", "json"]
                done = subprocess.run(renew, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
                key = json.loads(done.stdout)["primaryKey"]
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=PATIENCE_S)
        printed = "\n".join(lines) + errors
    assert key not in printed
    assert f"Connection string: tidegate connection-string --data {data} shows it" in printed
    open_to_others = [path for path in (data, *data.rglob("*")) if path.stat().st_mode & 0o007]
    assert open_to_others == []


def sampled(process: subprocess.Popen[str], uri: str) -> str:
    """Return the answer to a sample that the management API reads at an address."""
    (http,) = (line for line in ready_lines(process) if line.startswith("HTTP: "))
    base = f"http://{http.removeprefix('HTTP: ')}"
    path = "/subscriptions/s/providers/Microsoft.StreamAnalytics/locations/l/sampleInput?api-version=2021-10-01-preview"
    raw = {"type": "Raw", "properties": {"payloadUri": uri}}
    json_lines = {"type": "Json", "properties": {"encoding": "UTF8"}}
    part = {"name": "i", "properties": {"type": "Stream", "datasource": raw, "serialization": json_lines}}
    headers = {"Authorization": "Bearer SAS_KEY_VALUE", "Content-Type": "application/json"}
    asked = urllib.request.Request(base + path, json.dumps({"input": part}).encode(), headers)
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as started:
        place = started.headers["Location"]
    answers: list[str] = []

    def is_done() -> bool:
        asked = urllib.request.Request(place, headers=headers)
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            answers.append(answer.read().decode())
            return bool(answer.status == 200)

    eventually(is_done)
    return answers[-1]


@pytest.mark.parametrize("is_allowed", [False, True])
def test_an_address_of_this_machine_is_asked_only_if_the_operator_allows_it(tmp_path: Path, is_allowed: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    options = ["--allow-address", f"127.0.0.1:{port}"] if is_allowed else []
    process = start("--data", str(tmp_path / "data"), "--amqp-port", "0", "--http-port", "0", *options)
    try:
        found = sampled(process, f"http://localhost:{port}/a?sig=x")
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    assert ("BlobUnreachable" in found, "--allow-address 127.0.0.1" in found) == (is_allowed, not is_allowed)


def test_an_address_that_is_none(tmp_path: Path) -> None:
    code, errors = refusal("--data", str(tmp_path / "data"), "--allow-address", "localhost")
    assert code == 2
    assert "'localhost' is no address: expected one such as 127.0.0.1" in errors


def test_help_has_an_example() -> None:
    result = subprocess.run([sys.executable, "-m", "tidegate", "up", "--help"], capture_output=True, text=True)
    assert result.returncode == 0
    assert "tidegate up --config Config.json" in result.stdout


def test_it_takes_the_descriptors_that_the_system_lets_it_have(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidegate", "up", "--data", str(tmp_path / "data"), "--amqp-port", "0"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2000)),
    )
    ready_lines(process)
    assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (2000, 2000)
    process.terminate()
    assert process.wait(PATIENCE_S) == 0


def test_a_certificate_without_a_port_to_use_it_on(tmp_path: Path) -> None:
    code, errors = refusal("--data", str(tmp_path / "data"), "--cert-file", "own.pem", "--key-file", "own.key")
    assert code == 2
    assert "--amqps-port, --https-port or --kafka-tls-port" in errors


def test_further_urls_are_listened_on(tmp_path: Path) -> None:
    process = start("--data", str(tmp_path / "data"), "--amqp-port", "0", "--listen", "amqp://127.0.0.1:0")
    lines = ready_lines(process)
    (url,) = (line.removeprefix("AMQP: ") for line in lines if line.startswith("AMQP: amqp://"))
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=PATIENCE_S) as peer:
        peer.sendall(b"AMQP\x00\x01\x00\x00")
        assert peer.recv(8) == b"AMQP\x00\x01\x00\x00"
    process.terminate()
    assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("url", "expected"),
    [("carrier-pigeon://here", "the schemes are amqp://, amqps://"), ("amqp://127.0.0.1:99999", "cannot listen on")],
)
def test_a_url_that_cannot_be_listened_on(tmp_path: Path, url: str, expected: str) -> None:
    code, errors = refusal("--data", str(tmp_path / "data"), "--amqp-port", "0", "--listen", url)
    assert code == 1
    assert expected in errors


def test_a_hub_that_drains_serves_while_it_is_not_ready(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"), "--amqp-port", "0", "--http-port", "0")
    process = start(*data, "--drain", "1")
    lines = ready_lines(process)
    (http,) = (line.rpartition(":")[2] for line in lines if line.startswith("HTTP: "))
    (connection,) = (line for line in lines if line.startswith("Connection string: "))
    amqp = int(connection.split("Endpoint=sb://localhost:")[1].split(";")[0])
    assert status_of(http, "ready") == 200
    process.terminate()
    eventually(lambda: status_of(http, "ready") == 503)
    with socket.create_connection(("127.0.0.1", amqp)) as peer:
        peer.sendall(b"AMQP\x00\x01\x00\x00")
        assert peer.recv(8) == b"AMQP\x00\x01\x00\x00", "clients that are there go on"
    assert process.wait(PATIENCE_S) == 0


def status_of(port: str, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
