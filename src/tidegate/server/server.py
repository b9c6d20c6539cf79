"""The server: opens a namespace's data, listens, and shuts down in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidegate.durable_files import refuses_writes
from tidegate.hub.access_rules import AccessRule
from tidegate.hub.capture_scheduler import CaptureScheduler, CaptureThread
from tidegate.hub.config import NamespaceConfig
from tidegate.hub.kafka_backend import ChangedElsewhere, KafkaBackend
from tidegate.hub.namespace import Namespace
from tidegate.log import Committer, LogClock, LogError
from tidegate.server.certificates import Certificate, development_certificate
from tidegate.server.connections.client_connection import ClientConnection
from tidegate.server.context.completions import Completions, InFlightBytes
from tidegate.server.context.context import LogIdentities, ServerContext
from tidegate.server.context.metrics import GatewayCollector, ServerMetrics
from tidegate.server.context.origin import Origin
from tidegate.server.context.readers import Arrivals, EgressGate, SharedChunks
from tidegate.server.context.settings import ServerSettings
from tidegate.server.endpoint import Endpoint, remove_endpoint
from tidegate.server.http.handover import HandOver
from tidegate.server.http.listener import WebListener
from tidegate.server.http.routing import RouteGroup
from tidegate.server.kafka.connection import Handle, KafkaConnection, KafkaRequests, listen_kafka
from tidegate.server.transports.strangers import Strangers
from tidegate.server.transports.transport import Listener, ListenOptions, Transport, UnknownTransport, listen

_logger = logging.getLogger(__name__)

_WSAEADDRINUSE, _WSAEACCES = 10048, 10013
_IN_USE = (errno.EADDRINUSE, _WSAEADDRINUSE)
"""Windows reports Winsock error numbers, which differ from those in `errno`."""
_NO_RIGHT = (errno.EACCES, _WSAEACCES)
_DONE = object()
_OPEN_TRIES = 20
_GC_THRESHOLD = 20_000
"""Net allocations between two collections."""


class ListenError(OSError):
    """A port cannot be listened on. The message names the port and what to do."""


class Server:
    """One namespace, served on the ports its settings name, on the event loop that start() runs on."""

    def __init__(
        self,
        config: NamespaceConfig,
        data_dir: Path,
        settings: ServerSettings | None = None,
        further_routes: Sequence[RouteGroup] = (),
    ) -> None:
        """Prepare a server; `further_routes` are served on the HTTP ports beside its own."""
        self.config = config
        self.further_routes = further_routes
        self.data_dir = data_dir
        self.settings = settings or ServerSettings()
        self.metrics = ServerMetrics()
        self.clients: set[ClientConnection | KafkaConnection] = set()
        self.certificate: Certificate | None = None
        self.amqp_port: int | None = None
        self.amqps_port: int | None = None
        self.http_port: int | None = None
        self.https_port: int | None = None
        self.kafka_port: int | None = None
        self.kafka_tls_port: int | None = None
        self.context: ServerContext
        self.listeners: list[Listener] = []
        self.further_urls: list[str] = []
        """The listeners that `settings.listen` led to."""
        self.further_client_rows: list[Callable[[], list[dict[str, Any]]]] = []
        """Return the clients of other processes that serve the same namespace."""
        self.followers: list[Callable[[], None]] = []
        """Called after each change of hubs, groups, rules or publishers, in the changing thread."""
        self._hand_over: HandOver | None = None
        """What a worker does with the connections of HTTP that another process is to answer."""
        self._strangers = Strangers(self._ports, time.monotonic)
        self._tls: ssl.SSLContext | None = None
        self._web: list[WebListener] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._kafka: Handle | None = None
        self._open = contextlib.ExitStack()
        self._backend: KafkaBackend | None = None
        self._takes_over = False
        self._taken_over: set[KafkaConnection] = set()
        self._is_stopping = False

    @property
    def namespace(self) -> Namespace:
        """Return the namespace that is served, once start() has opened it."""
        return self.context.namespace

    async def start(self) -> None:
        """Open the data, then listen. On return clients can connect.

        Raises ConfigError, LogError (also for a directory another hub has open), OSError for one that cannot be
        written, StoreError and JournalDamaged (capture), CertificateError and ListenError. Errors leave nothing open.
        """
        self._check_ports()
        try:
            self._open_data()
            await self._listen()
            self._leave_endpoint()
        except BaseException:
            await self.stop()
            raise
        work = [self._apply_retention(), self._check_logs(), self._check_storage()]
        self._tasks += [asyncio.create_task(one) for one in work]

    # -- instead of listening

    async def prepare_to_take_over(self) -> None:
        """Be ready to answer clients whose connections other processes have accepted."""
        web = WebListener(self.context, self, None, self._strangers)
        await web.start_without_port()
        self._web.append(web)
        self._kafka = self._kafka_requests()
        self._takes_over = True

    async def take_over(self, connection: socket.socket, origin: Origin) -> None:
        """Answer a client whose connection another process has accepted."""
        try:
            if not self._takes_over:
                connection.close()
            elif origin.scheme == "kafka":
                assert self._kafka is not None
                handle = self._kafka
                context = replace(self.context, metrics=ServerMetrics())  # the other process counts
                protocol = KafkaConnection(context, handle, lambda _: origin.server, self._taken_over, origin)
                await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection)
            else:
                await self._web[0].take_over(connection, origin)
        except OSError as error:
            _logger.warning("a client of a worker could not be taken over: %s", error)

    async def end_taking_over(self) -> None:
        """Finish what is under way for clients that were taken over, within a second."""
        if self._takes_over:
            self._takes_over = False
            await self._web[0].stop()

    def announce(self, ports: Mapping[str, int | None]) -> None:
        """Note on which ports other processes listen in this one's place, and leave word of them for commands.

        Args:
            ports: By the names of the settings: `amqp_port`, `kafka_tls_port` and so on.
        """
        for name, port in ports.items():
            setattr(self, name, port)
        self._leave_endpoint()

    async def stop(self) -> None:
        """Stop listening, close clients' connections, and flush and close the logs."""
        await self.drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self.listeners:
            listener.close()
        await asyncio.sleep(max([client.wind_down() for client in self.clients], default=0))
        await self._until(lambda: not self.clients or not self.context.in_flight.total)
        for client in list(self.clients):
            client.say_goodbye()
        await self._until(lambda: not self.clients)
        for client in list(self.clients):
            client.abort()
        self._takes_over = False
        await asyncio.gather(*(web.stop() for web in self._web))
        if self._web:
            await asyncio.gather(*(group.end() for group in self.further_routes if group.end is not None))
        if self._web:
            with contextlib.suppress(OSError):
                remove_endpoint(self.data_dir)
        self.listeners.clear()
        self._web.clear()
        await asyncio.get_running_loop().run_in_executor(None, self._open.close)

    async def drain(self) -> None:
        """Say that the server is not ready, and keep serving for `drain_s` seconds. Calling it again does nothing."""
        if not self._is_stopping:
            self._is_stopping = True
            if (self.listeners or self._takes_over) and self.settings.drain_s:
                await asyncio.sleep(self.settings.drain_s)

    def connection_string(self, rule: AccessRule | None = None, key: str = "", hub: str = "") -> str:
        """Return a connection string for SDKs, in emulator mode (which honours the port) unless there is only TLS.

        Without a rule, it has the primary key of the rule with all rights.
        """
        rule = rule or self.namespace.access.rule_table.root_rule
        plain = self.amqp_port is not None
        port = self.amqp_port if plain else self.amqps_port
        path = f"EntityPath={hub};" if hub else ""
        return (
            f"Endpoint=sb://{self._client_host()}:{port};SharedAccessKeyName={rule.name};"
            f"SharedAccessKey={key or rule.primary_key};{path}{'UseDevelopmentEmulator=true;' if plain else ''}"
        )

    def web_url(self) -> str:
        """Return the URL of the HTTP port, or of the HTTPS port if there is only that, as clients here reach it."""
        scheme, port = ("http", self.http_port) if self.http_port is not None else ("https", self.https_port)
        return f"{scheme}://{self._client_host()}:{port}"

    @property
    def own_ports(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the ports that serve AMQP, and those that serve HTTP."""
        further = (urlsplit(url).port for url in self.further_urls)
        amqp = (self.amqp_port, self.amqps_port, *further)
        return frozenset(filter(None, amqp)), frozenset(filter(None, (self.http_port, self.https_port)))

    def client_rows(self) -> list[dict[str, Any]]:
        """Return who is connected over AMQP and Kafka's protocol, and what each uses."""
        own = [client.describe() for client in list(self.clients)]
        return own + [row for rows in self.further_client_rows for row in rows()]

    def check_links(self) -> None:
        """Close links whose target, key or right no longer exists after a change."""
        for client in list(self.clients):
            client.check_links()

    def _on_change(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check the links soon. May be called in any thread."""
        with contextlib.suppress(RuntimeError):  # the server has stopped
            loop.call_soon_threadsafe(self.check_links)
        for follow in list(self.followers):
            follow()

    def _client_host(self) -> str:
        """Return the name by which clients on this machine reach the server."""
        host = self.settings.host
        if host in ("", "0.0.0.0", "::", "127.0.0.1"):
            return "localhost"
        return f"[{host}]" if ":" in host else host

    def converse(self, transport: Transport) -> ClientConnection:
        """Return the connection of a new client on any kind of transport."""
        return ClientConnection(self.context, transport, self.clients)

    def _open_data(self) -> None:
        settings = self.settings
        loop = asyncio.get_running_loop()
        completions = Completions(loop)
        self._open.callback(completions.close)
        clock = LogClock(self.data_dir / "clock")
        self._open.callback(clock.close)
        committer = Committer()
        self._open.callback(committer.close)
        namespace = self._open_namespace(clock, committer)
        self._open.callback(namespace.close)
        namespace.on_change(partial(self._on_change, loop))
        self.context = ServerContext(
            namespace=namespace,
            settings=settings,
            metrics=self.metrics,
            completions=completions,
            arrivals=Arrivals(completions),
            chunks=SharedChunks(settings.shared_chunk_bytes),
            egress=EgressGate(namespace.throughput, loop),
            log_identities=LogIdentities(),
            in_flight=InFlightBytes(settings.in_flight_bytes),
        )
        on_captured = partial(completions.report, self.metrics.capture)
        capture = CaptureScheduler(namespace, settings.capture, on_captured=on_captured)
        self._open.callback(CaptureThread(capture, clock).stop)

    def _open_namespace(self, clock: LogClock, committer: Committer) -> Namespace:
        """Open the namespace in the data directory, or in the cluster that the settings name."""
        store, durable = self.settings.store, self.settings.durable
        if store is None:
            return Namespace.open(self.data_dir, self.config, clock=clock, committer=committer, durable=durable)
        for tries_left in reversed(range(_OPEN_TRIES)):
            backend = KafkaBackend(store, self.config.name)
            try:
                namespace = Namespace.open(
                    self.data_dir, self.config, clock=clock, committer=committer, backend=backend
                )
            except ChangedElsewhere:  # several gateways start at the same time
                if not tries_left:
                    raise
                continue
            backend.on_definitions = namespace.follow
            self._backend = backend
            self.metrics.collectors.append(GatewayCollector(backend.facts))
            return namespace
        raise AssertionError("unreachable")

    @property
    def not_ready(self) -> str | None:
        """Why new clients should go elsewhere; None if they are welcome."""
        if self._is_stopping or not (self.listeners or self._takes_over):
            return "the hub is stopping"
        if self._backend is not None and not self._backend.is_connected:
            return "the gateway does not hear its cluster of Kafka"
        return None

    def _check_ports(self) -> None:
        """Raise ListenError for a port that is taken, before the data is opened, which may take long."""
        settings = self.settings
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        for port in (
            settings.amqp_port,
            settings.amqps_port,
            settings.http_port,
            settings.https_port,
            settings.kafka_port,
            settings.kafka_tls_port,
        ):
            if port and port not in settings.replaceable_ports:
                try:
                    socket.create_server((settings.host, port), family=family).close()
                except socket.gaierror:
                    return  # a name that only the listener can resolve
                except OSError as error:
                    raise _listen_error(f"tcp://{_in_url(settings.host)}:{port}", error) from error

    async def _listen(self) -> None:
        settings = self.settings
        if settings.amqp_port is not None:
            self.amqp_port = await self._listen_amqp("amqp", settings.amqp_port)
        if settings.amqps_port is not None:
            self.amqps_port = await self._listen_amqp("amqps", settings.amqps_port)
        for url in settings.listen:
            self.further_urls.append((await self._listen_on(url)).url)
        if settings.kafka_port is not None:
            self.kafka_port = await self._listen_kafka(settings.kafka_port, None)
        if settings.kafka_tls_port is not None:
            self.kafka_tls_port = await self._listen_kafka(settings.kafka_tls_port, self._tls_context())
        if settings.http_port is not None:
            self.http_port = await self._listen_web(settings.http_port, None)
        if settings.https_port is not None:
            self.https_port = await self._listen_web(settings.https_port, self._tls_context())

    def _kafka_requests(self) -> Handle:
        """Return what answers Kafka's clients, and coordinate their groups from now on."""
        requests = KafkaRequests(self.context)
        self._tasks.append(asyncio.create_task(requests.groups.run()))
        return requests.begin

    async def _listen_kafka(self, port: int, tls: ssl.SSLContext | None) -> int:
        if self._kafka is None:
            self._kafka = self._kafka_requests()
        try:
            listener = await listen_kafka(self.context, self._kafka, self.clients, port, tls, self._strangers)
        except OSError as error:
            if self._can_replace(port, error):
                return await self._listen_kafka(0, tls)
            raise _listen_error(f"kafka://{_in_url(self.settings.host)}:{port}", error) from error
        self.listeners.append(listener)
        return listener.port

    async def _listen_amqp(self, scheme: str, port: int) -> int:
        listener = await self._listen_on(f"{scheme}://{_in_url(self.settings.host)}:{port}")
        return urlsplit(listener.url).port or port

    async def _listen_on(self, url: str) -> Listener:
        unsent_bytes = self.settings.unsent_bytes_per_client
        options = ListenOptions(
            self.converse, unsent_bytes, self._tls_context, self._strangers, self.settings.reuse_port
        )
        try:
            listener = await listen(url, options)
        except UnknownTransport as error:
            raise ListenError(str(error)) from error
        except (OSError, ValueError) as error:
            raise _listen_error(url, error) from error
        self.listeners.append(listener)
        return listener

    def _tls_context(self) -> ssl.SSLContext:
        """Return the context of the TLS ports, made when the first of them needs it. Raises CertificateError."""
        if self._tls is None:
            self.certificate = self._find_certificate()
            self._tls = context = self.certificate.server_context()
            context.on_plaintext = self._answer_plaintext
        return self._tls

    def prepare_tls(self) -> None:
        """Find the certificate, or make the development certificate. Raises CertificateError."""
        self._tls_context()

    def _answer_plaintext(self, data: bytes) -> bytes:
        """Log a client that sends no TLS to a port with TLS. Return what it is answered, in the clear."""
        stranger = self._strangers.without_tls(data)
        self._strangers.note(stranger, "a port with TLS")
        return stranger.answer

    def _ports(self) -> dict[str, int]:
        """Return the ports that are open, by scheme."""
        ports = {
            "amqp": self.amqp_port,
            "amqps": self.amqps_port,
            "http": self.http_port,
            "https": self.https_port,
            "kafka": self.kafka_port,
            "kafka-tls": self.kafka_tls_port,
        }
        return {scheme: port for scheme, port in ports.items() if port}

    def _leave_endpoint(self) -> None:
        """Write the endpoint by which `tidegate hub` finds the server, preferring plain HTTP."""
        authority = None
        if self.http_port is None and (self.https_port is None or self.certificate is None):
            return
        if self.http_port is None and self.certificate is not None:
            authority = self.certificate.authority_file
        endpoint = Endpoint(url=self.web_url(), authority_file=authority and authority.absolute())
        try:
            endpoint.write(self.data_dir)
        except OSError as error:
            if not refuses_writes(error):
                raise
            self.namespace.storage.postpone(lambda: endpoint.write(self.data_dir))

    async def _listen_web(self, port: int, context: ssl.SSLContext | None) -> int:
        web = WebListener(self.context, self, context, self._strangers, self._hand_over)
        try:
            chosen = await web.start(self.settings.host, port)
        except OSError as error:
            if self._can_replace(port, error):
                return await self._listen_web(0, context)
            raise _listen_error(f"http://{_in_url(self.settings.host)}:{port}", error) from error
        self._web.append(web)
        return chosen

    def _can_replace(self, port: int, error: OSError) -> bool:
        return port in self.settings.replaceable_ports and error.errno in _IN_USE

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, but no longer than a stop may take."""
        deadline = asyncio.get_running_loop().time() + self.settings.stop_timeout_s
        while not condition() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)

    async def _apply_retention(self) -> None:
        loop = asyncio.get_running_loop()
        failure = None
        while True:
            await asyncio.sleep(self.settings.retention_interval_s)
            try:
                await loop.run_in_executor(None, self.namespace.apply_retention)
                failure = None
            except (LogError, OSError) as error:
                if str(error) != failure:
                    _logger.error("retention could not be applied; trying again: %s", error)
                failure = str(error)

    async def _check_storage(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(None, self.namespace.storage.check)
            await asyncio.sleep(self.settings.storage_check_interval_s)

    async def _check_logs(self) -> None:
        """Check the logs' unread events, slowly enough not to disturb clients."""
        loop = asyncio.get_running_loop()
        for event_hub in list(self.namespace.event_hubs.values()):
            for partition in event_hub.partitions:
                pieces = partition.check()
                try:
                    while await loop.run_in_executor(None, next, pieces, _DONE) is not _DONE:
                        await asyncio.sleep(self.settings.check_pause_s)
                except (LogError, OSError) as error:
                    _logger.warning("%s/%s was not checked: %s", event_hub.name, partition.partition_id, error)

    def _find_certificate(self) -> Certificate:
        settings = self.settings
        if settings.cert_file is not None and settings.key_file is not None:
            return Certificate(settings.cert_file, settings.key_file)
        return development_certificate(self.data_dir / "tls", settings.host)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listen_error(url: str, error: OSError | ValueError) -> ListenError:
    """Return an error that says what to do about a URL that cannot be listened on."""
    if not isinstance(error, OSError):
        return ListenError(f"cannot listen on {url}: {error}")
    try:
        port = urlsplit(url).port
    except ValueError:
        port = None
    if error.errno in _IN_USE:
        return ListenError(f"port {port} is in use; stop what uses it or choose another port (0 = any free one)")
    if error.errno in _NO_RIGHT:
        return ListenError(f"port {port} needs more rights; choose one above 1023")
    return ListenError(f"cannot listen on {url}: {error.strerror or error}")


def tune_gc() -> None:
    """Make garbage collections rarer in a process that only runs a hub. Call it once the server has started.

    Nearly all of a hub's objects are freed with their last reference; only rare exceptions leave cycles to collect. By
    default the collector still runs whenever a few hundred more objects were allocated than freed, as happens with a
    few publications in flight, and its full collections pause every client for some ten milliseconds. So objects that
    exist after the start, which live until the end, are exempt, and the rest is examined less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])
