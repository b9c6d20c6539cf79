"""Events a second of one core in the AMQP core, without sockets: python benchmarks/amqp_core.py"""

from __future__ import annotations

import time

from tidegate.amqp import (
    ACCEPTED,
    BATCH_FORMAT,
    AttachReceived,
    Connection,
    ConnectionSettings,
    SaslInit,
    Transfer,
    annotate_run,
    encode,
)
from tidegate.amqp.encoding.types import Described, Ulong
from tidegate.amqp.messages import split_batch

EVENT = encode(Described(Ulong(0x75), b"x" * 200))
BATCH = encode(Described(Ulong(0x75), EVENT)) * 100
WINDOW = 1 << 20


def connect() -> tuple[Connection, Connection]:
    """A client with a sender link and a server that grants it credit, through their handshake."""
    client, server = (
        Connection("client", "client"),
        Connection("server", "server", ConnectionSettings(incoming_window=WINDOW)),
    )
    client.open()
    client.begin().attach_sender("publisher", "hub")
    for _ in range(6):
        for event in server.receive_data(client.data_to_send()):
            if isinstance(event, SaslInit):
                server.sasl_outcome(True)
            if isinstance(event, AttachReceived):
                event.link.accept(credit=WINDOW)
        client.receive_data(server.data_to_send())
    return client, server


def measure_receiving(payload: bytes, message_format: int, deliveries: int, events: int) -> float:
    """Deliveries read, split and settled, from reads of 64 KiB."""
    client, server = connect()
    client.sessions[0].links[0].send_deliveries([payload] * deliveries, message_format=message_format, settled=False)
    data = client.data_to_send()
    start = time.process_time()
    for position in range(0, len(data), 65536):
        for event in server.receive_data(data[position : position + 65536]):
            if isinstance(event, Transfer):
                if event.message_format == BATCH_FORMAT:
                    split_batch(event.payload)
                event.link.settle(event.delivery_id, event.delivery_id, ACCEPTED)
        server.data_to_send()
    return events / (time.process_time() - start)


def measure_sending(annotated: bool) -> float:
    """Stored events sent by runs of 1,000, with the hub's annotations or as they are."""
    client, _ = connect()
    link = client.sessions[0].links[0]
    events, offsets = [EVENT] * 1000, list(range(1000))
    start = time.process_time()
    for run in range(100):
        link.send_deliveries(annotate_run(events, run * 1000, offsets, 1_700_000_000_000) if annotated else events)
        client.data_to_send()
    return 100_000 / (time.process_time() - start)


if __name__ == "__main__":
    for name, best in {
        "receive single events": max(measure_receiving(EVENT, 0, 60_000, 60_000) for _ in range(3)),
        "receive batches of 100": max(measure_receiving(BATCH, BATCH_FORMAT, 5_000, 500_000) for _ in range(3)),
        "send stored events": max(measure_sending(False) for _ in range(3)),
        "annotate and send stored events": max(measure_sending(True) for _ in range(3)),
    }.items():
        print(f"{name:32} {best:12,.0f} events/s")
