"""The hub on the network: AMQP over TCP, TLS and WebSocket, publishing over HTTPS. The only layer that waits for I/O.

`amqp` turns bytes into calls on the `hub`. Everything runs on one event loop, and the log's threads report back to it.
"""

from tidegate.server.background import BackgroundServer
from tidegate.server.context.settings import ServerSettings
from tidegate.server.server import ListenError, Server
from tidegate.server.transports.tls import CertificateError

__all__ = ["BackgroundServer", "CertificateError", "ListenError", "Server", "ServerSettings"]
