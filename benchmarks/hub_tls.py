"""What TLS costs: the hub on its TLS port compared with the same hub on its plain port.

    python -m benchmarks.hub_tls [--seconds N] [--runs N]

One hub process listens on both; the lean client of hub_throughput publishes and reads over one and the other in turn,
with the same 200-byte events, durable. TLS is what Python's ssl agrees on with itself (1.3, AES-256-GCM), with the
certificate that the hub makes at its first start, checked by the client. "keeps" is the median of the ratios of
neighbouring runs. Client and hub share the machine's cores and the client pays for its half of TLS, which a remote
client would not: "hub CPU keeps" is the same ratio of events per second of the hub's processor time, which neither the
client nor other work on the machine disturbs much.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile

from rich.console import Console
from rich.table import Table

from benchmarks.hub_throughput import (
    BATCH_EVENTS,
    BUILD,
    HUB,
    IN_FLIGHT_BATCHES,
    IN_FLIGHT_SINGLES,
    HubProcess,
    LeanClient,
    batch,
    deliver,
    event,
    publish,
)
from tidegate.amqp import BATCH_FORMAT

BATCHES = f"publish, batches of {BATCH_EVENTS}, {IN_FLIGHT_BATCHES} in flight"
SINGLES = f"publish, single, {IN_FLIGHT_SINGLES} in flight"
DELIVER = "deliver to one reader"


def run(hub: HubProcess, load: str, tls: bool, count: int) -> tuple[float, float]:
    """Events a second of wall time, and of the hub's processor time."""
    client = LeanClient(hub.tls_port, hub.authority_file) if tls else LeanClient(hub.port)
    used = hub.cpu_seconds()
    if load == DELIVER:
        link = client.reader(f"{HUB}/ConsumerGroups/$Default/Partitions/0")
        took = deliver(client, link, count)
    else:
        link = client.publisher(f"{HUB}/Partitions/0")
        if load == BATCHES:
            took = publish(client, link, batch(), BATCH_FORMAT, count // BATCH_EVENTS, IN_FLIGHT_BATCHES)
            count = count // BATCH_EVENTS * BATCH_EVENTS
        else:
            took = publish(client, link, event(), 0, count, IN_FLIGHT_SINGLES)
    used = hub.cpu_seconds() - used
    client.socket.close()
    return count / took, count / max(used, 0.01)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one run")
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    result = Table(title=f"Hub, 200-byte events, durable, one connection; medians of {arguments.runs}")
    for column in ("load", "plain ev/s", "TLS ev/s", "TLS keeps", "hub CPU keeps"):
        result.add_column(column, justify="left" if column == "load" else "right")
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as data:
        hub = HubProcess(data)
        try:
            for load in (BATCHES, SINGLES, DELIVER):
                run(hub, load, tls=True, count=20_000)
                count = int(run(hub, load, tls=False, count=50_000)[0] * arguments.seconds)
                runs = [[run(hub, load, tls, count) for tls in (False, True)] for _ in range(arguments.runs)]
                rates = [f"{statistics.median(one[side][0] for one in runs):,.0f}" for side in (0, 1)]
                keeps = [statistics.median(tls[what] / plain[what] for plain, tls in runs) for what in (0, 1)]
                result.add_row(load, *rates, *(f"{100 * share:.0f} %" for share in keeps))
        finally:
            hub.stop()
    Console(width=120).print(result)


if __name__ == "__main__":
    main()
