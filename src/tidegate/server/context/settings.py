"""Settings of a server: what it listens on, its timeouts and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidegate.hub.capture.description import CaptureDescription
from tidegate.store import ClientSettings


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Ports: 0 lets the system choose, None leaves that transport off."""

    host: str = "127.0.0.1"
    amqp_port: int | None = 5672
    amqps_port: int | None = None
    http_port: int | None = None
    https_port: int | None = None
    kafka_port: int | None = None
    kafka_tls_port: int | None = None
    kafka_advertised: str | None = None
    """HOST or HOST:PORT to which Kafka's clients are sent after the first connection; None: where they connected to."""
    replaceable_ports: frozenset[int] = frozenset()
    """Ports of HTTP and of Kafka's protocol instead of which any free one is taken if another program has them."""
    reuse_port: bool = False
    """Share the AMQP ports with other processes that serve the same namespace."""
    listen: tuple[str, ...] = ()
    """Further URLs to accept AMQP connections on, of any transport that exists: `amqp://[::1]:5673`."""
    cert_file: Path | None = None
    """A certificate chain of your own for the TLS ports; None: one signed by the data directory's development CA."""
    key_file: Path | None = None

    store: ClientSettings | None = None
    """The cluster of Kafka where events and definitions are; None: in the data directory."""

    open_timeout_s: float = 15.0
    """From the TCP connection to the AMQP open, or to the end of a request's head; slower clients are disconnected."""
    body_timeout_s: float = 60.0
    """For the body of an HTTP request, after its head (which has as long as an open)."""
    idle_timeout_ms: int = 240_000
    """Silence after which a connection counts as dead (Azure's own figure; clients see half of it)."""
    stop_timeout_s: float = 0.4
    """When the server stops: for what is in flight to be acknowledged, again for clients' goodbyes, and again for
    answers by HTTP."""

    drain_s: float = 0.0
    """When the server stops: how long it says that it is not ready before it closes connections, so that a balancer
    sends no new clients."""

    in_flight_bytes_per_client: int = 4 << 20
    """Published but not yet durable: above it, that client's socket is not read."""
    in_flight_bytes: int = 256 << 20
    """The same over all clients."""
    unsent_bytes_per_client: int = 1 << 20
    """Written but not yet taken by the peer: above it, nothing more is delivered to that client nor read from it."""
    shared_chunk_bytes: int = 32 << 20
    """Annotated events kept for further readers of the same partition, over all partitions."""
    retention_interval_s: float = 60.0
    """How often expired segments are deleted."""
    storage_check_interval_s: float = 5.0
    """How often the data disk is checked by writing to it, and failed writes are tried again."""
    check_pause_s: float = 0.025
    """After the start: between two pieces of the logs that are read to find damage early."""
    capture: CaptureDescription | None = None
    """How to capture hubs without a description of their own; None: they are not captured."""
    durable: bool = True
    """False: acknowledge before fdatasync (for measuring what durability costs)."""
