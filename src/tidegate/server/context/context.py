"""What the connections and requests of one server share."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.hub.namespace import Namespace
from tidegate.server.context.arrivals import Arrivals
from tidegate.server.context.completions import Completions
from tidegate.server.context.egress import EgressGate
from tidegate.server.context.in_flight import InFlightBytes
from tidegate.server.context.log_identities import LogIdentities
from tidegate.server.context.metrics import ServerMetrics
from tidegate.server.context.settings import ServerSettings
from tidegate.server.context.shared_chunks import SharedChunks


@dataclass(frozen=True, slots=True)
class ServerContext:
    """One running server's shared state, complete once its data is open. Used on the event loop only."""

    namespace: Namespace
    settings: ServerSettings
    metrics: ServerMetrics
    completions: Completions
    arrivals: Arrivals
    chunks: SharedChunks
    egress: EgressGate
    log_identities: LogIdentities
    in_flight: InFlightBytes
