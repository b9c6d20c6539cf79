"""Consumer-group lag as Prometheus reads it: an exporter that looks at the checkpoints and at the hub for each scrape.

A scrape that cannot look at them is answered all the same, with ``tidegate_lag_up`` 0, as exporters do: what could not
be reached is not to be mistaken for a lag of zero, so its series are left out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.cli.consumer_lag import Lag
from tidegate.cli.errors import explanation

_logger = logging.getLogger(__name__)

EVENTS = ("tidegate_consumer_group_lag_events", "Events behind the checkpoint that can still be read")
SECONDS = ("tidegate_consumer_group_lag_seconds", "Time since the arrival of the oldest of them; 0 if there is none")
LOST = ("tidegate_consumer_group_lost_events", "Events behind the checkpoint that retention has removed")
UP = ("tidegate_lag_up", "Whether the checkpoints and the hub could be read for this scrape")

NAMES = tuple(name for name, _ in (EVENTS, SECONDS, LOST, UP))
"""Every metric, as it stands in the answer to a scrape."""


class LagCollector(Collector):
    """The lag as of each scrape."""

    def __init__(self, read: Callable[[], Sequence[Lag]]) -> None:
        """
        Args:
            read: returns the lag of every group and partition.
        """
        self._read = read
        self._problem: str | None = None
        self._lock = threading.Lock()  # Scrapes come in threads of their own.

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        with self._lock:
            rows = self._rows()
        labels = ["event_hub", "consumer_group", "partition"]
        events, lost = GaugeMetricFamily(*EVENTS, labels=labels), GaugeMetricFamily(*LOST, labels=labels)
        seconds = GaugeMetricFamily(*SECONDS, labels=labels)
        for row in rows or ():
            where = [row.hub, row.group, row.partition]
            events.add_metric(where, row.events_behind)
            lost.add_metric(where, row.events_lost)
            if row.seconds_behind is not None:
                seconds.add_metric(where, row.seconds_behind)
        yield from (events, seconds, lost, GaugeMetricFamily(*UP, value=rows is not None))

    def _rows(self) -> Sequence[Lag] | None:
        """Return the lag; None if it cannot be read, and log why, once until that changes."""
        problem = rows = None
        try:
            rows = self._read()
        except Exception as error:  # One scrape fails, not the exporter.
            problem = error.format_message() if isinstance(error, click.ClickException) else explanation(error)
            if problem is None:
                _logger.exception("the lag could not be read")
        if problem is not None and problem != self._problem:
            _logger.warning("the lag cannot be read: %s", problem)
        self._problem = problem
        return rows


@contextmanager
def served(read: Callable[[], Sequence[Lag]], host: str, port: int) -> Iterator[str]:
    """Answer scrapes on an address, in threads, and yield its URL. Port 0 is any free one.

    Raises:
        click.ClickException: the address cannot be listened on.
    """
    registry = CollectorRegistry()
    registry.register(LagCollector(read))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise click.ClickException(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
