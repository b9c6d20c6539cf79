"""The description of the HTTP side: it names what is served, and nothing else."""

from __future__ import annotations

import json
import re
import urllib.request

from starlette.routing import Route

from tests.patience import PATIENCE_S
from tidegate.server import Server
from tidegate.server.http.listener import application
from tidegate.server.http.routes.operations import description


def test_the_description_names_every_route_and_no_other(server: Server) -> None:
    with urllib.request.urlopen(f"http://localhost:{server.http_port}/openapi.json", timeout=PATIENCE_S) as answer:
        document = json.loads(answer.read())
    assert document == json.loads(json.dumps(description()))
    described = {(path, method.upper()) for path, item in document["paths"].items() for method in item}
    routes = application(server.context, server).routes
    served = {
        (route.path, method)
        for route in routes
        if isinstance(route, Route) and route.include_in_schema
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert described == served


def test_the_description_is_closed_and_its_names_differ(server: Server) -> None:
    document = description()
    assert "$ref" not in json.dumps(document)
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    for path, item in document["paths"].items():
        for operation in item.values():
            named = [parameter["name"] for parameter in operation.get("parameters", [])]
            assert named == re.findall(r"{(\w+)}", path)
