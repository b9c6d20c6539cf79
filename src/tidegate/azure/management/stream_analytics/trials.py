"""`testQuery`, `sampleInput`, `testInput` and `testOutput` of the preview: trials of what no job needs to contain.

Each is an asynchronous operation. Nothing is ever written to the outputs of a job that is tested: its rows go to the
blobs that the request names, or to an address in the result.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, assert_never
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import Field

from tidegate import outbound
from tidegate.azure.management.access.requests import (
    ArmAnswer,
    ArmError,
    ArmRequest,
    Operation,
    Payload,
    bad_request,
    read_payload,
)
from tidegate.azure.management.stream_analytics.background import LOCATION, Background, OperationResult
from tidegate.azure.management.stream_analytics.document import parts_of, read_part
from tidegate.azure.management.stream_analytics.engine_questions import NoAnswer, asked, reach
from tidegate.azure.management.stream_analytics.jobs import JobPayload, document_of
from tidegate.azure.management.stream_analytics.store import LocalHubs, serving
from tidegate.service.questions import ProblemKind

MAX_BYTES = 64 << 20
_TIMEOUT_S = 30.0
_PORTS = {"http": 80, "https": 443}


def checked_uri(uri: str, name: str) -> str:
    """Return an address that can be used. Raises ArmError."""
    try:
        parts = urlsplit(uri)
        usable = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not uri.isascii() or not uri.isprintable() or " " in uri:
        raise bad_request(f"{name} is the address of a blob with its signature, such as https://…?sig=…", target=name)
    return uri


def within(uri: str, *names: str) -> str:
    """Return the address of a blob in the container or directory of an address."""
    parts = urlsplit(uri)
    path = "/".join([parts.path.rstrip("/"), *(quote(name.strip("/")) for name in names if name.strip("/"))])
    return urlunsplit(parts._replace(path=path))


def read_blob(uri: str) -> bytes:
    """Return the content of a blob. Raises ArmError."""
    return _exchange("GET", uri, None, {})


def write_blob(uri: str, content: bytes) -> None:
    """Write a blob. Raises ArmError."""
    headers = {"x-ms-blob-type": "BlockBlob", "x-ms-version": "2021-08-06", "Content-Type": "application/json"}
    _exchange("PUT", uri, content, headers)


def _exchange(method: str, uri: str, content: bytes | None, headers: dict[str, str]) -> bytes:
    parts = urlsplit(uri)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    where = f"{host}:{port}{parts.path}"[:200]
    connection = outbound.http_connection(parts.scheme, host, port, _TIMEOUT_S)
    try:
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection.request(method, target, content, headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            raise ArmError(400, "BlobRefused", f"{method} {where} was answered with {answer.status} {answer.reason}")
        found = answer.read(MAX_BYTES + 1)
    except outbound.AddressRefused as error:
        raise ArmError(400, "BlobRefused", f"{where} cannot be used: {error}") from None
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise ArmError(400, "BlobUnreachable", f"cannot reach {where}: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if len(found) > MAX_BYTES:
        raise ArmError(400, "BlobTooLarge", f"{where} holds more than {MAX_BYTES >> 20} MiB")
    return found


MOST_ROWS = 10_000
MOST_EVENTS = 100_000
SAMPLED_EVENTS = 1000
_RAW = "raw"
_NAME = "tested"


class Diagnostics(Payload):
    """Where a test writes its rows and what it says of them."""

    write_uri: str
    path: str = ""


class TestQueryPayload(Payload):
    """A whole job, and where to write."""

    streaming_job: JobPayload
    diagnostics: Diagnostics | None = None


class PartPayload(Payload):
    """An input or output outside of any job."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")] = _NAME
    properties: dict[str, Any] = Field(default_factory=dict)


class SampleInputPayload(Payload):
    """An input, and where to write its events."""

    input: PartPayload
    events_uri: str | None = None
    compatibility_level: Annotated[str, Field(max_length=10)] = "1.2"


class TestInputPayload(Payload):
    """An input to reach."""

    input: PartPayload


class TestOutputPayload(Payload):
    """An output to reach."""

    output: PartPayload


class Trials:
    """The operations; `hubs` gives access to this server's own event hubs."""

    def __init__(self, hubs: LocalHubs) -> None:
        self._hubs = hubs
        self._background = Background()

    def operations(self) -> list[Operation]:
        """Return what is served."""
        return [
            Operation("POST", f"{LOCATION}/testQuery", serving(self._test_query)),
            Operation("POST", f"{LOCATION}/sampleInput", serving(self._sample_input)),
            Operation("POST", f"{LOCATION}/testInput", serving(self._test_input)),
            Operation("POST", f"{LOCATION}/testOutput", serving(self._test_output)),
            *self._background.operations(),
        ]

    # -- a query

    def _test_query(self, request: ArmRequest) -> ArmAnswer:
        payload = read_payload(TestQueryPayload, request.body)
        document = document_of(payload.streaming_job, {}, is_patch=False)
        if not document.get("transformation", {}).get("properties", {}).get("query"):
            raise bad_request("streamingJob.properties.transformation.properties.query is missing", target="query")
        if not document.get("inputs"):
            raise bad_request("streamingJob.properties.inputs is empty", target="inputs")
        raw = {kind: [one for one in parts_of(document, kind) if _is_raw(one)] for kind in ("inputs", "outputs")}
        for part in (*raw["inputs"], *raw["outputs"]):
            _check_raw(part)
        if payload.diagnostics is not None:
            checked_uri(payload.diagnostics.write_uri, "diagnostics.writeUri")
        outputs = parts_of(document, "outputs")
        live = [one for one in parts_of(document, "inputs") if not _is_raw(one)]
        definition = self._definition({**document, "inputs": live, "outputs": []})
        definition["outputs"] = {one["name"]: {"type": "console"} for one in outputs}
        work = partial(_tested, definition, raw["inputs"], raw["outputs"], payload.diagnostics)
        return self._start(request, work)

    def _start(self, request: ArmRequest, work: Callable[[], OperationResult]) -> ArmAnswer:
        """Begin work that connects only to addresses which callers may name."""
        policy = self._hubs.address_policy()

        def guarded() -> OperationResult:
            with policy.in_force():
                return work()

        return self._background.start(request, guarded)

    def _definition(self, document: Mapping[str, Any]) -> dict[str, Any]:
        # it loads the engine, which a hub without jobs must not pay for
        from tidegate.azure.management.stream_analytics.job_file import definition_of_document

        return definition_of_document(document, self._hubs.connection_string, Path())

    # -- inputs and outputs

    def _sample_input(self, request: ArmRequest) -> ArmAnswer:
        payload = read_payload(SampleInputPayload, request.body)
        part = _part("inputs", payload.input)
        if str(part["properties"].get("type", "")).lower() != "stream":
            raise bad_request("only an input of the type Stream has events to sample", target="input")
        if payload.events_uri is not None:
            checked_uri(payload.events_uri, "eventsUri")
        _check_raw(part)
        sections = {} if _is_raw(part) else self._definition({"inputs": [part]})["inputs"]
        name = part["name"]
        definition = {
            "name": _NAME,
            "query": f"SELECT * INTO [output] FROM [{name}]",
            "compatibility_level": payload.compatibility_level,
            "inputs": sections,
            "outputs": {"output": {"type": "console"}},
        }
        raw = [part] if _is_raw(part) else []
        return self._start(request, partial(_sampled, definition, raw, payload.events_uri))

    def _test_input(self, request: ArmRequest) -> ArmAnswer:
        return self._tried(request, "inputs", read_payload(TestInputPayload, request.body).input)

    def _test_output(self, request: ArmRequest) -> ArmAnswer:
        return self._tried(request, "outputs", read_payload(TestOutputPayload, request.body).output)

    def _tried(self, request: ArmRequest, kind: str, body: PartPayload) -> ArmAnswer:
        part = _part(kind, body)

        def work() -> OperationResult:
            try:
                if _is_raw(part):
                    _check_raw(part)
                else:
                    made = self._definition({kind: [part]})
                    reach(made[kind][part["name"]], is_input=kind == "inputs")
            except ArmError as error:
                return OperationResult({"status": "TestFailed", "error": error.body()})
            return OperationResult({"status": "TestSucceeded"})

        return self._start(request, work)


def _part(kind: str, given: PartPayload) -> dict[str, Any]:
    """Return an input or output that a request describes. Raises ArmError."""
    return read_part(kind, given.name, {"properties": given.properties}, None, is_patch=False)


def _datasource(part: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    datasource = part["properties"].get("datasource", {})
    settings = datasource.get("properties") or {}
    return str(datasource.get("type", "")).lower(), {str(key).lower(): value for key, value in settings.items()}


def _is_raw(part: Mapping[str, Any]) -> bool:
    return _datasource(part)[0] == _RAW


def _check_raw(part: Mapping[str, Any]) -> None:
    """Check the settings of the data source Raw. Raises ArmError."""
    kind, settings = _datasource(part)
    if kind != _RAW:
        return
    uri, payload = settings.get("payloaduri"), settings.get("payload")
    name = f"{part['name']}.payloadUri"
    if uri is not None:
        checked_uri(uri if isinstance(uri, str) else "", name)
    if "type" in part["properties"] and (uri is None) == (not isinstance(payload, str)):
        raise bad_request(f"the input {part['name']} has either payload or payloadUri", target=name)


def _payload_of(part: Mapping[str, Any]) -> str:
    """Return the events of an input of the kind Raw. Raises ArmError."""
    settings = _datasource(part)[1]
    if settings.get("payloaduri") is None:
        return str(settings["payload"])
    return read_blob(settings["payloaduri"]).decode("utf-8-sig", "replace")


def _answer_of(definition: Mapping[str, Any], raw: list[dict[str, Any]], **question: Any) -> dict[str, Any]:
    """Return what the engine says of a test, with the inputs that the request holds itself. Raises ArmError."""
    inputs, uploaded = dict(definition.get("inputs", {})), {}
    with TemporaryDirectory(prefix="tidegate-test-") as folder:
        for number, part in enumerate(raw):
            text = _payload_of(part)
            if str(part["properties"].get("type", "")).lower() == "reference":
                path = Path(folder) / f"{number}.json"
                path.write_text(text, encoding="utf-8")
                inputs[part["name"]] = {"type": "reference", "path": str(path)}
            else:
                inputs[part["name"]] = {"type": "recorded", "path": "/dev/null"}
                uploaded[part["name"]] = text
        tested = {**definition, "name": _NAME, "inputs": inputs, "state_dir": folder}
        return asked({"ask": "test", "definition": tested, "uploaded": uploaded, **question})


def _tested(
    definition: Mapping[str, Any],
    raw_inputs: list[dict[str, Any]],
    raw_outputs: list[dict[str, Any]],
    diagnostics: Diagnostics | None,
) -> OperationResult:
    """Test a query, and write its rows where they are wanted."""
    try:
        found = _answer_of(definition, raw_inputs, events=MOST_EVENTS, rows=MOST_ROWS)
        rows = {one["name"]: [row["row"] for row in one["rows"]] for one in found["outputs"]}
        for part in raw_outputs:
            uri = _datasource(part)[1].get("payloaduri")
            if uri is not None:
                write_blob(uri, _content(rows.get(part["name"], [])))
        if diagnostics is not None:
            _write_diagnostics(diagnostics, found, rows)
    except ArmError as error:
        status = _status_of(error.kind) if isinstance(error, NoAnswer) else "RuntimeError"
        return OperationResult({"status": status, "error": error.body()})
    return OperationResult({"status": "Success"}, rows, "outputUri")


def _write_diagnostics(diagnostics: Diagnostics, found: Mapping[str, Any], rows: Mapping[str, Any]) -> None:
    summary = {
        name: found[name] for name in ("events", "partitions", "metrics", "policy", "notes", "errors", "dataErrors")
    }
    summary["rows"] = {one["name"]: one["count"] for one in found["outputs"]}
    for name, content in (*rows.items(), ("diagnostics", summary)):
        write_blob(within(diagnostics.write_uri, diagnostics.path, f"{name}.json"), _content(content))


def _status_of(kind: ProblemKind) -> str:
    match kind:
        case ProblemKind.COMPILER:
            return "CompilerError"
        case ProblemKind.INPUT | ProblemKind.RUNTIME:
            return "RuntimeError"
        case ProblemKind.TIMEOUT:
            return "Timeout"
        case ProblemKind.UNKNOWN | ProblemKind.BUSY:
            return "UnknownError"
        case _:
            assert_never(kind)


def _sampled(definition: Mapping[str, Any], raw: list[dict[str, Any]], events_uri: str | None) -> OperationResult:
    """Read the last events of an input, and write them where they are wanted."""
    try:
        found = _answer_of(definition, raw, events=SAMPLED_EVENTS, rows=MOST_ROWS, unordered=True)
        (output,) = found["outputs"]
        rows = [row["row"] for row in output["rows"]]
        if events_uri is not None:
            write_blob(events_uri, _content(rows))
    except ArmError as error:
        return OperationResult({"status": "ErrorConnectingToInput", "diagnostics": [], "error": error.body()})
    partitions = [(name, count) for read in found["partitions"].values() for name, count in read.items()]
    problems = [f"Partition {name} has no events." for name, count in partitions if not count] + found["errors"]
    result: dict[str, Any] = {"status": "ReadAllEventsInRange", "diagnostics": problems}
    if not any(count for _, count in partitions):
        return OperationResult({**result, "status": "NoEventsFoundInRange"})
    if rows:
        result["lastArrivalTime"] = max(row["time"] for row in output["rows"])
    return OperationResult(result, rows if events_uri is None else None, "eventsDownloadUrl")


def _content(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()
