"""Models behind an HTTP endpoint of Azure Machine Learning, called with many rows at once.

The arguments of a batch are sent once each, however many rows have them, in requests of at most `batch_size`. A request
that fails for a moment is sent again with growing pauses. One that the model refuses is halved, so that in the end the
rows that it cannot work on fail, and no other.

https://learn.microsoft.com/azure/stream-analytics/machine-learning-udf and
https://learn.microsoft.com/rest/api/streamanalytics/functions describe how the service calls models.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from time import sleep
from typing import Any, ClassVar, Literal, TypeAlias, assert_never

import msgspec

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.messaging.http_client import HttpClient, Reply
from tidegate.connectors.outputs.output import OutputUnavailableError
from tidegate.engine.values.datetimes import parse_datetime
from tidegate.engine.values.json_lines import plain
from tidegate.engine.values.vectors import Datetime, is_value
from tidegate.job.functions.row_model import ModelError, RowModel
from tidegate.retrying import PASSING_STATUS, BackOff

DeclaredType: TypeAlias = Literal["any", "bigint", "float", "nvarchar(max)", "bit", "datetime", "record", "array"]
_TRUTHS = {"true": True, "false": False, "1": True, "0": False}


def to_declared(value: Any, type_: DeclaredType) -> Any:
    """Return a value, as JSON has it, as a value of a type; None stays None.

    Raises:
        ValueError: it is not one.
    """
    if value is None:
        return None
    match type_:
        case "any":
            return value
        case "bigint":
            return _whole(value)
        case "float":
            if isinstance(value, str | int | float) and math.isfinite(number := float(value)):
                return number
        case "nvarchar(max)":
            return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        case "bit":
            truth = _TRUTHS.get(str(value).lower()) if isinstance(value, str | bool | int) else None
            if truth is not None:
                return truth
        case "datetime":
            ticks = parse_datetime(value) if isinstance(value, str) else None
            if ticks is not None:
                return Datetime(ticks)
        case "record":
            if isinstance(value, dict):
                return value
        case "array":
            if isinstance(value, list):
                return value
        case _:
            assert_never(type_)
    raise _not_one(value, type_)


def _whole(value: Any) -> int:
    number = float(value) if isinstance(value, str) and not value.strip().lstrip("+-").isdecimal() else value
    if isinstance(number, float) and not number.is_integer():
        raise _not_one(value, "bigint")
    if isinstance(number, str | int | float) and -(2**63) <= (whole := int(number)) < 2**63:
        return whole
    raise _not_one(value, "bigint")


def _not_one(value: Any, type_: str) -> ValueError:
    shown = json.dumps(value)
    return ValueError(f"expected {type_}, got {shown if len(shown) <= 60 else f'{shown[:60]}…'}")


RequestForm: TypeAlias = Literal["inputs", "table", "records", "arrays"]
_OF_ITS_ROWS = frozenset({400, 413, 422})
_BACK_OFF = BackOff(0.2, 10.0)
_HINTS = {401: "; check api_key", 403: "; check api_key", 404: "; check endpoint"}
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """Where a model is, and how it is called.

    Attributes:
        url: of the requests. key: sent as a bearer token; None to send none.
        batch_size: the most rows in a request.
        parallel_requests: how many requests a task has under way at a time.
        timeout_s: the longest wait for an answer.
        attempts: how often a request is sent that fails for a moment.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    batch_size: int = 1000
    parallel_requests: int = 1
    timeout_s: float = 60.0
    attempts: int = 5


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """What a model takes and gives.

    Attributes:
        form: of the request, see `body_of`.
        input_name: the member of the request with the rows.
        inputs: the columns, in the order of the arguments; none if the only argument is a row by itself.
        input_types: of the inputs; none to send values as they are.
        output_name: the member of the answer with the rows; None if there is only one.
        output: the column that is the value; None for the whole row.
        output_type: what the value is converted to.
    """

    form: RequestForm
    input_name: str
    inputs: tuple[str, ...] = ()
    input_types: tuple[DeclaredType, ...] = ()
    output_name: str | None = None
    output: str | None = None
    output_type: DeclaredType = "any"


@dataclass(frozen=True)
class AzureMLFunction(RowModel):
    """A model as a function; it is called for all rows of a batch at once."""

    endpoint: ModelEndpoint
    signature: ModelSignature
    by_rows: ClassVar[bool] = True

    def check(self) -> None:
        """Check the address; the model itself is not called.

        Raises:
            ModelError: it is not one.
        """
        self._client()

    @property
    def __signature__(self) -> inspect.Signature:
        """Return what arguments it takes, for checks."""
        kind = inspect.Parameter.POSITIONAL_ONLY
        if self.signature.inputs:
            # Columns may have names that no parameter has.
            names = ["".join(char if char.isalnum() else "_" for char in name) for name in self.signature.inputs]
            named = [f"_{name}" if name[:1].isdecimal() else name for name in names]
            if len(set(named)) == len(named) and all(name.isidentifier() for name in named):
                try:
                    return inspect.Signature([inspect.Parameter(name, kind) for name in named])
                except ValueError:
                    pass  # a keyword: numbered below
            return inspect.Signature([inspect.Parameter(f"input{n}", kind) for n in range(1, len(names) + 1)])
        if self.signature.form == "arrays":
            return inspect.Signature([inspect.Parameter("values", inspect.Parameter.VAR_POSITIONAL)])
        return inspect.Signature([inspect.Parameter("row", kind)])

    def call_rows(self, columns: Sequence[Sequence[Any]], count: int | None = None) -> list[Any]:
        """Return its value for each row, or the exception that the row failed with."""
        rows = len(columns[0]) if count is None else count
        results: list[Any] = [None] * rows
        places: dict[bytes, list[int]] = {}
        for number in range(rows):
            try:
                item = _encode(self._item([plain(column[number]) for column in columns]))
            except (ValueError, msgspec.MsgspecError) as error:
                results[number] = ModelError(str(error))
            else:
                places.setdefault(item, []).append(number)
        items, size = list(places), self.endpoint.batch_size
        batches = [items[first : first + size] for first in range(0, len(items), size)]
        if len(batches) > 1 and self.endpoint.parallel_requests > 1:
            with ThreadPoolExecutor(min(self.endpoint.parallel_requests, len(batches))) as pool:
                answers = list(pool.map(self._ask, batches))
        else:
            answers = [self._ask(batch) for batch in batches]
        for item, value in zip(items, chain.from_iterable(answers), strict=True):
            for number in places[item]:
                results[number] = value
        return results

    def identity(self) -> tuple[Any, ...]:
        """Return what results depend on, without the key."""
        return ("azureml", self.endpoint.url, self.signature)

    def _client(self) -> HttpClient:
        try:
            return _client(self.endpoint)
        except OutputError as error:
            raise ModelError(f"endpoint: {error}") from None

    def _item(self, values: list[Any]) -> Any:
        """Return a row as the request has it. Raises ValueError if an argument is not of its type."""
        signature = self.signature
        types = signature.input_types
        if types:
            values = [plain(to_declared(value, type_)) for value, type_ in zip(values, types, strict=True)]
        if signature.form in ("table", "arrays"):
            alone = not signature.inputs and len(values) == 1 and isinstance(values[0], list)
            return values[0] if alone else values
        if signature.inputs:
            return dict(zip(signature.inputs, values, strict=True))
        (row,) = values
        if signature.form == "inputs" and not isinstance(row, dict):
            raise ValueError(f"expected a record of the model's inputs, got {json.dumps(row)[:60]}")
        return row

    def _ask(self, items: Sequence[bytes]) -> list[Any]:
        """Return the model's value for each item, or the exception that it failed with."""
        try:
            reply = self._answer(body_of(self.signature, items))
            if reply.status in _OF_ITS_ROWS and len(items) > 1:
                middle = len(items) // 2
                return self._ask(items[:middle]) + self._ask(items[middle:])
            if not reply.is_success:
                raise self._refused(reply)
            return [self._value(row) for row in self._rows(reply, len(items))]
        except ModelError as error:
            return [error] * len(items)

    def _answer(self, body: bytes) -> Reply:
        """Send a request until it is answered for good. Raises ModelError if it is not."""
        client = self._client()
        headers = {} if self.endpoint.key is None else {"Authorization": f"Bearer {self.endpoint.key}"}
        for attempt in range(1, self.endpoint.attempts + 1):
            last = attempt == self.endpoint.attempts
            try:
                reply = client.post(body, headers)
            except OutputUnavailableError as error:
                if last:
                    raise ModelError(f"{error}; tried {attempt} times") from None
                wait_s = _BACK_OFF.after(attempt)
            else:
                if reply.status not in PASSING_STATUS or last:
                    return reply
                wait_s = max(_BACK_OFF.after(attempt), reply.retry_after_s())
            sleep(wait_s)
        raise AssertionError("unreachable")

    def _refused(self, reply: Reply) -> ModelError:
        text = reply.text
        if self.endpoint.key:
            text = text.replace(self.endpoint.key, "(hidden)")
        hint = _HINTS.get(reply.status, "")
        if reply.status in PASSING_STATUS:
            hint = f"; tried {self.endpoint.attempts} times"
        return ModelError(f"{self._client().place} answered {reply.status}{f': {text}' if text else ''}{hint}")

    def _rows(self, reply: Reply, count: int) -> list[Any]:
        """Return the rows of an answer. Raises ModelError if it does not have them."""
        place = self._client().place
        try:
            content = json.loads(reply.body)
            if isinstance(content, str):
                content = json.loads(content)  # a scoring script may return the text of its JSON
        except (ValueError, RecursionError):
            raise ModelError(f"{place}: expected an answer in JSON, got {reply.text[:80] or 'nothing'}") from None
        rows = rows_of(content, self.signature.output_name)
        if rows is None:
            wanted = f"the member {self.signature.output_name}" if self.signature.output_name else "one list of results"
            got = f"the members {', '.join(map(str, content))}" if isinstance(content, dict) else type(content).__name__
            raise ModelError(f"{place}: expected {wanted} in the answer, got {got[:120]}; check output_name")
        if len(rows) != count:
            raise ModelError(f"{place}: expected a result for each of {count} rows, got {len(rows)}")
        return rows

    def _value(self, row: Any) -> Any:
        """Return the value of a row of an answer, or a ModelError."""
        wanted = self.signature.output
        if wanted is not None and isinstance(row, dict):
            if wanted not in row:
                return ModelError(f"expected the output {wanted}, got {', '.join(map(str, row))[:120]}; check output")
            row = row[wanted]
        try:
            value = to_declared(row, self.signature.output_type)
        except ValueError as error:
            return ModelError(f"output: {error}")
        return value if is_value(value) else ModelError(f"output: {json.dumps(row)[:60]} is not a value of a query")


def body_of(signature: ModelSignature, items: Sequence[bytes]) -> bytes:
    """Return the body of a request with some rows.

    | form | body |
    |---|---|
    | inputs | ``{"Inputs": {NAME: [{…}, …]}, "GlobalParameters": {}}`` |
    | table | ``{"Inputs": {NAME: {"ColumnNames": […], "Values": [[…], …]}}, "GlobalParameters": {}}`` |
    | records | ``{NAME: [{…}, …]}``, or ``[{…}, …]`` if there is no name |
    | arrays | ``{NAME: [[…], …]}``, or ``[[…], …]`` |
    """
    rows, name = b"[%b]" % b",".join(items), _encode(signature.input_name)
    match signature.form:
        case "inputs":
            return b'{"Inputs":{%b:%b},"GlobalParameters":{}}' % (name, rows)
        case "table":
            names = _encode(signature.inputs)
            return b'{"Inputs":{%b:{"ColumnNames":%b,"Values":%b}},"GlobalParameters":{}}' % (name, names, rows)
        case "records" | "arrays":
            return b"{%b:%b}" % (name, rows) if signature.input_name else rows
        case _:
            assert_never(signature.form)


def rows_of(content: Any, name: str | None) -> list[Any] | None:
    """Return the rows of an answer; None if it is unclear where they are.

    They are a list, or the table ``{"ColumnNames": […], "Values": [[…], …]}`` of classic services. Objects around them
    are opened by their name, or if they have one member.
    """
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        return None
    if isinstance(content.get("ColumnNames"), list) and isinstance(content.get("Values"), list):
        values = content["Values"]
        if not all(isinstance(row, list) and len(row) == len(content["ColumnNames"]) for row in values):
            return None
        return [dict(zip(content["ColumnNames"], row, strict=True)) for row in values]
    if name is not None and name in content:
        return rows_of(content[name], None)
    if isinstance(content.get("Results"), dict | list):
        return rows_of(content["Results"], name)
    if name is None and "value" in content and content.get("type") == "table":
        return rows_of(content["value"], None)
    if name is None and len(content) == 1:
        return rows_of(next(iter(content.values())), None)
    return None


@functools.cache
def _client(endpoint: ModelEndpoint) -> HttpClient:
    """Return the connections of this process to a model."""
    return HttpClient(endpoint.url, {}, endpoint.timeout_s)
