"""Compiling a query without a job: `compileQuery` of the preview, with its errors where they are in the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from tidegate.azure.management.access.requests import (
    SUBSCRIPTION,
    ArmAnswer,
    ArmRequest,
    Operation,
    Payload,
    bad_request,
    read_payload,
)
from tidegate.azure.management.stream_analytics.engine_questions import ENGINE, NoAnswer, ProblemKind
from tidegate.azure.management.stream_analytics.store import PROVIDER, serving

MAX_QUERY_CHARACTERS = 100_000


class NamedPart(Payload):
    """An input or function of a query, with its type."""

    name: str
    type: str = ""


class QueryPayload(Payload):
    """A query and what it may name. Without inputs or functions, it may name any."""

    query: Annotated[str, Field(max_length=MAX_QUERY_CHARACTERS)]
    inputs: list[NamedPart] | None = None
    functions: list[NamedPart] | None = None
    compatibility_level: str = "1.2"


def query_operations() -> list[Operation]:
    """Return what is served."""
    path = f"{SUBSCRIPTION}/providers/{PROVIDER}/locations/{{location}}/compileQuery"
    return [Operation("POST", path, serving(_compile))]


def _compile(request: ArmRequest) -> ArmAnswer:
    payload = read_payload(QueryPayload, request.body)
    inputs, functions = payload.inputs, payload.functions
    definition: dict[str, Any] = {"query": payload.query, "compatibility_level": payload.compatibility_level}
    if inputs is not None:
        definition["inputs"] = {one.name: {"type": one.type.lower()} for one in inputs}
    if functions is not None:
        definition["functions"] = {one.name: {"aggregate": "aggregate" in one.type.lower()} for one in functions}
    try:
        found = ENGINE.ask({"ask": "compile", "definition": definition, "is_complete": True})
    except NoAnswer as error:
        if error.kind is ProblemKind.RUNTIME:
            raise bad_request(str(error)) from None
        raise
    body: dict[str, Any] = {
        "errors": [
            {
                "message": _said(one),
                "startLine": one["line"],
                "startColumn": one["column"],
                "endLine": one["line"],
                "endColumn": one["column"] + one["length"],
                "isGlobal": False,
            }
            for one in found["errors"]
        ],
        "warnings": [f"line {one['line']}, column {one['column']}: {_said(one)}" for one in found["warnings"]],
        "inputs": found["inputs"],
        "outputs": found["outputs"],
        "functions": [one.name for one in functions or () if not found["errors"]],
    }
    return ArmAnswer(body=body)


def _said(one: Mapping[str, Any]) -> str:
    """Return a diagnostic's message with what to write instead."""
    return f"{one['message']} ({one['hint']})" if one["hint"] else str(one["message"])
