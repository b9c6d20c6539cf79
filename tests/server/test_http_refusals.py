"""What the log and the figures say of requests that are refused."""

from collections.abc import Iterable

import pytest
from starlette.requests import Request

from tidegate.hub.errors import ServerBusy, Unauthorized
from tidegate.server.context.metrics import ErrorKind, LoggedRefusals, ServerMetrics, TimedCounts
from tidegate.server.http.refusals import HttpRefusals


def request(host: str = "10.0.0.1", headers: Iterable[tuple[bytes, bytes]] = ()) -> Request:
    path = "/eh1/messages"
    scope = {"type": "http", "method": "POST", "path": path, "headers": list(headers), "client": (host, 1)}
    return Request({**scope, "scheme": "http", "server": ("localhost", 80), "query_string": b"", "root_path": ""})


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Without what other tests' servers and clients may say."""
    return [record.getMessage() for record in caplog.records if record.name == "tidegate.server.http.refusals"]


def test_a_line_names_who_and_what_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    token = b"SharedAccessSignature sr=x&sig=c2VjcmV0&se=1&skn=gates%0a"
    metrics = ServerMetrics()
    HttpRefusals(metrics).record(request(headers=[(b"authorization", token)]), Unauthorized("the token has expired"))
    (line,) = lines(caplog)
    assert line == (
        "refused 10.0.0.1 ('gates\\n'): POST '/eh1/messages': the token has expired (amqp:unauthorized-access)"
    )
    assert metrics.refusals == {"amqp:unauthorized-access": 1}


def test_who_tries_for_ever_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [120.0]
    metrics = ServerMetrics()
    refusals = HttpRefusals(metrics, lambda: now_s[0])
    for _ in range(1000):
        refusals.record(request(), ServerBusy("try again"))
    assert len(lines(caplog)) == LoggedRefusals.MOST_A_MINUTE
    assert "not logged" in lines(caplog)[-1]
    refusals.record(request("10.0.0.2"), ServerBusy("try again"))  # nobody else is left out for it
    assert "10.0.0.2" in lines(caplog)[-1]
    now_s[0] += 60
    refusals.record(request(), ServerBusy("try again"))
    assert len(lines(caplog)) == LoggedRefusals.MOST_A_MINUTE + 2
    assert metrics.refusals == {"com.microsoft:server-busy": 1002}


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("com.microsoft:server-busy", ErrorKind.THROTTLED),
        ("kafka:throttling_quota_exceeded", ErrorKind.THROTTLED),
        ("amqp:resource-limit-exceeded", ErrorKind.QUOTA),
        ("amqp:internal-error", ErrorKind.SERVER),
        ("kafka:kafka_storage_error", ErrorKind.SERVER),
        ("amqp:not-found", ErrorKind.USER),
    ],
)
def test_a_refusal_counts_for_its_hub_under_the_service_s_name(condition: str, kind: ErrorKind) -> None:
    now_s = 1000.0
    metrics = ServerMetrics(counts=TimedCounts(lambda: now_s))
    metrics.refuse(condition, "eh1", 2)
    now_s += 60
    metrics.refuse(condition, "eh1")
    assert metrics.counts.of((kind, "eh1"), 960, 60, 3) == [2, 1, 0]
    assert metrics.counts.of((kind, ""), 960, 60, 1) == [0]
