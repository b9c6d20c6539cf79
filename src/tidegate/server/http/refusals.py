"""Refusals over HTTP: counted, and logged without secrets, a limited number a minute for each host.

A connection's end says nothing of its client, whose next request may come on another; so the limit that AMQP clients
have for a connection is one for a host here.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

from starlette.requests import Request

from tidegate.hub.errors import HubError
from tidegate.server.context.metrics import ServerMetrics
from tidegate.server.context.tokens import claimed_rule

_logger = logging.getLogger(__name__)
MAX_LOGGED_A_MINUTE = 20


class HttpRefusals:
    """What all HTTP requests of a server were refused for."""

    def __init__(self, metrics: ServerMetrics, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._monotonic_s = monotonic_s
        self._minute = 0.0
        self._logged: Counter[tuple[str, str]] = Counter()

    def record(self, request: Request, error: HubError, caller: str = "") -> None:
        """Count a refusal, and log who asked for what: the host and the rule that the token names.

        A `caller` whose name was verified is logged in its place, and has a limit of its own: what strangers send
        cannot keep it out of the log.
        """
        self._metrics.refusals[error.condition] += 1
        host = request.client.host if request.client else "?"
        minute = self._monotonic_s() // 60
        if minute != self._minute:
            self._minute = minute
            self._logged.clear()
        self._logged[host, caller] += 1
        count = self._logged[host, caller]
        if count > MAX_LOGGED_A_MINUTE:
            return
        more = "; further ones of this minute are not logged" if count == MAX_LOGGED_A_MINUTE else ""
        rule = caller or claimed_rule(request.headers.get("authorization"))
        _logger.warning(
            "refused %s%s: %s %r: %s (%s)%s",
            host,
            f" ({rule!r})" if rule else "",
            request.method,
            request.url.path[:200],
            error.description,
            error.condition,
            more,
        )
