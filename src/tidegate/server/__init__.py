"""The hub on the network: AMQP over TCP, TLS and WebSocket, publishing over HTTPS. The only layer that waits for I/O.

`amqp` turns bytes into calls on the `hub`. Everything runs on one event loop, and the log's threads report back to it.
"""

from tidegate.server.background import BackgroundServer
from tidegate.server.certificates import CertificateError
from tidegate.server.context.settings import ServerSettings
from tidegate.server.server import ListenError, Server

__all__ = ["BackgroundServer", "CertificateError", "ListenError", "Server", "ServerSettings"]
