"""What the connections and requests of one server share."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass
from pathlib import Path

from tidegate.durable_files import replace_file
from tidegate.hub.namespace import Namespace
from tidegate.server.context.completions import Completions, InFlightBytes
from tidegate.server.context.metrics import ServerMetrics
from tidegate.server.context.readers import Arrivals, EgressGate, SharedChunks
from tidegate.server.context.settings import ServerSettings

_LOG_ID_FILE = "log-id"


class LogIdentities:
    """Identities by which a reader on the hub's own machine recognises the hub's folders, written when first needed.

    The hub names each partition's folder and an identity that it wrote into it. A reader that finds the identity in the
    folder of that name may read segments instead of asking for deliveries. The identity is new at every start, so a
    copy of the data (on another machine, in a container's image) is never taken for the original.
    """

    def __init__(self) -> None:
        self._identities: dict[Path, str] = {}
        self._lock = threading.Lock()

    def of(self, directory: Path) -> str:
        """The identity that the file in `directory` holds from now on. Raises OSError."""
        with self._lock:
            identity = self._identities.get(directory)
            if identity is None:
                identity = uuid.uuid4().hex
                replace_file(directory / _LOG_ID_FILE, identity.encode("ascii"))
                self._identities[directory] = identity
            return identity


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
