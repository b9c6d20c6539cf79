"""Posts results to an Azure Function or any other webhook: batches as JSON arrays.

A receiver cannot be asked what it has, so after a kill the batches since the last commit are posted again, perhaps cut
differently. Each request names the output and the numbers of its rows, which are the same in every run, so a receiver
that remembers the highest number can leave out what it has. The service's rules for batches are those of "Azure
Functions output": 100 rows or 256 KB at most, status 413 for smaller ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public, Secret, SecretOptions, SecretUrl
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening, OutputSection
from tidegate.connectors.outputs.messaging.http_client import HttpClient
from tidegate.connectors.outputs.messaging.http_sink import HttpSink, HttpSinkSettings
from tidegate.connectors.outputs.messaging.message_rows import MessageRows
from tidegate.connectors.outputs.output import Output


@OUTPUTS.register
class WebhookOutput(OutputSection):
    """An Azure Function, or any other URL that takes JSON arrays of results by POST."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("http", "https", "azurefunction", "function", "functions", "url", "rest"), 'write type = "webhook"'
    )

    type: Literal["webhook"]
    url: SecretUrl = Field(description="where batches are posted")
    key: Secret | None = Field(default=None, description="a function's key, sent as `x-functions-key`")
    headers: Annotated[dict[str, str], SecretOptions(("Content-Type", "User-Agent"))] = Field(
        default_factory=dict, description="further headers, such as Authorization"
    )
    max_batch_count: int = Field(default=100, ge=1, description="the most results in a batch")
    max_batch_bytes: int = Field(default=262_144, ge=2, description="the most bytes in a batch")
    parallel_requests: int = Field(default=1, ge=1, le=64, description="how many requests are open at a time")
    partition_key: Public | None = Field(
        default=None, description="with parallel requests, results with the same value in this column stay in order"
    )
    timeout_s: float = Field(default=100, gt=0, description="how long an answer may take")
    attempts: int = Field(
        default=5, ge=1, description="how often a batch that is answered with 500 is sent before it counts as poison"
    )

    def open_at(self, opening: OutputOpening) -> Output:
        headers = {**self.headers, **({"x-functions-key": self.key} if self.key else {})}
        try:
            client = HttpClient(self.url, headers, self.timeout_s)
        except OutputError as error:
            raise OutputError(f"output '{opening.identity.output}': {error}") from error
        rows = MessageRows(None, opening.identity, opening.shape, key=self.partition_key, drop=opening.drop)
        settings = HttpSinkSettings(
            "webhook", self.max_batch_count, self.max_batch_bytes, self.parallel_requests, self.attempts
        )
        return HttpSink(client, rows, opening, settings)
