"""Compiling a query without a job: `compileQuery` of the preview, with its errors where they are in the text."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from tidegate.arm.model.errors import bad_request
from tidegate.arm.model.operations import SUBSCRIPTION, Operation
from tidegate.arm.model.requests import ArmAnswer, ArmRequest, Payload, read_payload
from tidegate.arm.stream_analytics.store import PROVIDER, serving

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
    # they load the engine, which a hub without jobs must not pay for
    from tidegate.engine import CATALOG
    from tidegate.job.analysis.query_plan import plan_of
    from tidegate.saql import QueryError, compile_query

    payload = read_payload(QueryPayload, request.body)
    inputs, functions = payload.inputs, payload.functions
    body: dict[str, Any] = {"errors": [], "warnings": [], "inputs": [], "outputs": [], "functions": []}
    try:
        query = compile_query(
            payload.query,
            catalog=CATALOG,
            compatibility_level=payload.compatibility_level,
            reference_inputs=[one.name for one in inputs or () if one.type.lower() == "reference"],
            inputs=None if inputs is None else [one.name for one in inputs],
            functions=None if functions is None else [_called(one) for one in functions],
        )
    except QueryError as error:
        body["errors"] = [
            {
                "message": f"{one.message}{f' ({one.hint})' if one.hint else ''}",
                "startLine": one.line,
                "startColumn": one.column,
                "endLine": one.line,
                "endColumn": one.column + one.length,
                "isGlobal": False,
            }
            for one in error.diagnostics
        ]
    except ValueError as error:
        raise bad_request(str(error)) from None
    else:
        body["warnings"] = [
            f"line {one.line}, column {one.column}: {one.message}{f' ({one.hint})' if one.hint else ''}"
            for one in plan_of(query).warnings
        ]
        body["inputs"] = sorted({mention.name for mention in query.inputs})
        body["outputs"] = sorted({output.name for output in query.outputs})
        body["functions"] = [one.name for one in functions or ()]
    return ArmAnswer(body=body)


def _called(function: NamedPart) -> str:
    return f"{'uda' if 'aggregate' in function.type.lower() else 'udf'}.{function.name}"
