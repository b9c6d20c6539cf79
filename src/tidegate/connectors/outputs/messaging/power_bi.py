"""Pushes results to a streaming dataset of Power BI, by the push URL that the service shows for it.

Its contract: an array of at most 10,000 rows in a request, and 120 requests a minute. Values have the types that the
service's own output gives them: records and arrays are the texts IRecord and IArray. A dataset cannot be asked what it
has, so the rows since the last commit are pushed again after a kill.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Secret
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening, OutputSection
from tidegate.connectors.outputs.messaging.bodies import Body
from tidegate.connectors.outputs.messaging.http_client import HttpClient
from tidegate.connectors.outputs.messaging.http_sink import HttpSink, HttpSinkSettings
from tidegate.connectors.outputs.messaging.message_rows import MessageRows
from tidegate.connectors.outputs.output import Output
from tidegate.engine import ResultRows

_MOST_ROWS = 10_000
_MOST_BYTES = 1 << 20
_TIMEOUT_S = 60.0
_ATTEMPTS = 5


@OUTPUTS.register
class PowerBiOutput(OutputSection):
    """A streaming dataset of Power BI."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(("pbi", "dashboard"), 'write type = "powerbi"')

    type: Literal["powerbi"]
    push_url: Secret = Field(description="the dataset's push URL, which contains its key")
    requests_per_minute: float = Field(default=120, gt=0, description="how many requests the dataset accepts")

    def open_at(self, opening: OutputOpening) -> Output:
        try:
            client = HttpClient(self.push_url, {}, _TIMEOUT_S)
        except OutputError as error:
            raise OutputError(f"output '{opening.identity.output}': {error}") from error
        rows = MessageRows(None, opening.identity, opening.shape, drop=opening.drop, encode=_rows_of_a_dataset)
        pace_s = 60 / self.requests_per_minute
        return HttpSink(
            client, rows, opening, HttpSinkSettings("powerbi", _MOST_ROWS, _MOST_BYTES, 1, _ATTEMPTS, pace_s)
        )


def _rows_of_a_dataset(rows: ResultRows) -> list[Body]:
    return [values.json_text({name: _value(value) for name, value in row.items()}).encode() for row in rows.to_dicts()]


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return "IRecord"
    return "IArray" if isinstance(value, list) else value
