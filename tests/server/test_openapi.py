"""The description of the HTTP side: it names what is served, and nothing else."""

from __future__ import annotations

import base64
import http.client
import json
import re
import urllib.request
from urllib.parse import quote

from starlette.routing import Route

from tests.patience import PATIENCE_S
from tidegate.server import Server
from tidegate.server.http.listener import application
from tidegate.server.http.routes.operations import description

REGISTRIES = ("/schema-registry", "/$schemaGroups")


def test_the_description_names_every_route_and_no_other(server: Server) -> None:
    with urllib.request.urlopen(f"http://localhost:{server.http_port}/openapi.json", timeout=PATIENCE_S) as answer:
        document = json.loads(answer.read())
    assert document == json.loads(json.dumps(description()))
    described = {
        (path, method.upper())
        for path, item in document["paths"].items()
        for method in item
        if not path.startswith(REGISTRIES)
    }
    routes = application(server.context, server).routes
    served = {
        (route.path, method)
        for route in routes
        if isinstance(route, Route) and route.include_in_schema
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert described == served


def test_what_the_description_says_of_the_schema_registries_is_served(server: Server) -> None:
    (_, key) = server.connection_string().split("SharedAccessKey=")
    token = base64.b64encode(f"RootManageSharedAccessKey:{key.partition(';')[0]}".encode()).decode()

    def asked(method: str, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=PATIENCE_S)
        body = b"{}" if method in ("POST", "PUT") else None
        headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json; serialization=Avro"}
        connection.request(method, quote(re.sub(r"{(\w+)}", r"no-\1", path)), body, headers)
        answer = connection.getresponse().read().decode()
        connection.close()
        return answer

    named = [(method, path) for path, item in description()["paths"].items() for method in item]
    registry = [(method.upper(), path) for method, path in named if path.startswith(REGISTRIES)]
    assert len(registry) > 35
    for method, path in registry:
        assert "is not served" not in asked(method, path), (method, path)
    for root in REGISTRIES:
        assert "is not served" in asked("GET", f"{root}/no/such/thing/at/all")


def test_the_description_is_closed_and_its_names_differ(server: Server) -> None:
    document = description()
    assert "$ref" not in json.dumps(document)
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    for path, item in document["paths"].items():
        for operation in item.values():
            named = [one["name"] for one in operation.get("parameters", []) if one["in"] == "path"]
            assert named == re.findall(r"{(\w+)}", path)
