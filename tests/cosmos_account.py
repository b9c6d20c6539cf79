"""An account of Cosmos DB by its REST contract, as far as writing documents needs it."""

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.http_receiver import Answer, Receiver, Request, receiver
from tidegate.connectors.outputs.messaging.cosmos_db import authorization

KEY = base64.b64encode(b"the account's key").decode()
CONTAINER = "/dbs/city/colls/totals"
LARGEST_BYTES = 2 << 20


Documents = dict[tuple[str, str], dict[str, Any]]
"""The documents of a container, by the value of their partition key and id."""


class Account:
    """Containers with documents."""

    def __init__(self, there: Receiver, containers: Sequence[str]) -> None:
        self.there = there
        self.containers: dict[str, Documents] = {name: {} for name in containers}
        self.writes: list[dict[str, Any]] = []
        self.next_answers: list[Answer] = []
        there.behaviour = self._answer

    @property
    def documents(self) -> Documents:
        return self.containers[CONTAINER]

    @property
    def connection_string(self) -> str:
        return f"AccountEndpoint={self.there.url}/;AccountKey={KEY};"

    def _answer(self, request: Request) -> Answer:
        kind = "docs" if request.method == "POST" else "colls"
        date = request.headers["x-ms-date"]
        path = request.path.removesuffix("/docs")
        signed = authorization(base64.b64decode(KEY), request.method, kind, path.strip("/"), date)
        if request.headers["authorization"] != signed:
            return _error(401, "The input authorization token can't serve the request.")
        if path not in self.containers:
            return _error(404, "Resource Not Found.")
        if request.method == "GET":
            return Answer(200, {}, json.dumps({"id": "totals", "partitionKey": {"paths": ["/zone"]}}).encode())
        if self.next_answers:
            return self.next_answers.pop(0)
        return self._write(request, self.containers[path])

    def _write(self, request: Request, documents: Documents) -> Answer:
        document = request.json
        key = json.dumps([document.get("zone", {})], separators=(",", ":"))
        if request.headers["x-ms-documentdb-partitionkey"] != key:
            return _error(400, "PartitionKey extracted from document doesn't match the one specified in the header.")
        if not isinstance(document.get("id"), str):
            return _error(400, "The input content is invalid because the required property 'id' is missing.")
        if len(request.body) > LARGEST_BYTES:
            return _error(413, "Request size is too large.")
        place = (key, document["id"])
        is_upsert = request.headers.get("x-ms-documentdb-is-upsert") == "True"
        if place in documents and not is_upsert:
            return _error(409, "Entity with the specified id already exists in the system.")
        status = 200 if place in documents else 201
        documents[place] = document
        self.writes.append(document)
        return Answer(status, {}, request.body)


def _error(status: int, message: str) -> Answer:
    return Answer(status, {}, json.dumps({"code": "Error", "message": message}).encode())


@contextmanager
def account(containers: Sequence[str] = (CONTAINER,)) -> Iterator[Account]:
    """An account whose containers have the partition key `/zone`."""
    with receiver() as there:
        yield Account(there, containers)
