"""All outputs of a run together: what errors name."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.retry_policy import RetryPolicy
from tidegate.connectors.outputs import Output, OutputUnavailableError, Sinks


class Failing:
    """An output whose commits fail."""

    def __init__(self, error: OutputError) -> None:
        self._error = error

    def commit(self) -> Any:
        """Fail."""
        raise self._error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OutputError("PostgreSQL: no such table"), "output 'alerts': PostgreSQL: no such table"),
        (OutputError("output 'alerts' is full"), "output 'alerts' is full"),
        (OutputUnavailableError("PostgreSQL: shut down"), "output 'alerts' has been unavailable for 0 s: PostgreSQL"),
    ],
)
def test_an_error_names_its_output_once(error: OutputError, said: str) -> None:
    """Of five tables in one database, none was named."""
    sinks = Sinks({"alerts": cast(Output, Failing(error))}, {}, RetryPolicy(0))
    with pytest.raises(OutputError) as caught:
        sinks.commit()
    assert str(caught.value).startswith(said)
    assert str(caught.value).count("alerts") == 1
