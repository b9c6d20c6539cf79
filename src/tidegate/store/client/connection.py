"""One connection to a broker: TLS, SASL, versions, and requests whose answers come back in order."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import hashlib
import hmac
import itertools
import secrets
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress

from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import VERSIONS, Api, MalformedMessage, Message, encode_request, parse_response
from tidegate.store.client.settings import ClientSettings, Credentials

MAX_FRAME_BYTES = 128 << 20
_NAMED_TOPICS = {Api.PRODUCE: 12, Api.FETCH: 12, Api.METADATA: 12, Api.DELETE_TOPICS: 5}
"""The last versions in which these requests name topics; later ones know them by ids alone."""
_LENGTH = struct.Struct(">i")
_BUFFER_BYTES = 64 << 10
_NAMES = {
    19: "NOT_ENOUGH_REPLICAS: fewer replicas are in sync than min.insync.replicas demands",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND: fewer replicas are in sync than min.insync.replicas demands",
    41: "NOT_CONTROLLER",
    ErrorCode.KAFKA_STORAGE_ERROR: "KAFKA_STORAGE_ERROR: the broker cannot write to its disk",
    ErrorCode.REQUEST_TIMED_OUT: "REQUEST_TIMED_OUT: the replicas did not confirm it in time",
}


class KafkaError(Exception):
    """What a cluster answered or did not answer; the message is for people."""


class Unreachable(KafkaError):
    """No answer: no connection, a lost one, or none in time. Whether the request was carried out is unknown."""


class LoginRefused(KafkaError):
    """The broker does not accept the credentials or the certificate."""


class BrokerError(KafkaError):
    """A broker answered with an error."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        self.code = code
        name = _NAMES.get(code) or (ErrorCode(code).name if code in list(ErrorCode) else f"error {code}")
        super().__init__(f"{what}: {name}" + (f" ({message})" if message else ""))


class TooOld(KafkaError):
    """The broker knows no version of a request that this client knows."""


async def _checked(settings: ClientSettings, host: str, port: int) -> str:
    """Return the address to connect to, which was checked if that is wanted. Raises OSError."""
    if settings.addresses_of is None:
        return host
    context = contextvars.copy_context()
    resolve = settings.addresses_of
    found = await asyncio.get_running_loop().run_in_executor(None, context.run, resolve, host, port)
    return str(found[0][4][0])


class Connection(asyncio.BufferedProtocol):
    """A connection, in the event loop that opened it. Requests may overlap; the broker answers them in order.

    An answer with many records is received where it stays, without a copy.
    """

    def __init__(self, settings: ClientSettings, host: str, port: int) -> None:
        """Use `open`."""
        self._settings = settings
        self.address = f"{host}:{port}"
        self._transport: asyncio.WriteTransport | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Message] | None, Api, int]] = {}
        self._received = bytearray(_BUFFER_BYTES)
        self._filled = 0
        self._large: memoryview | None = None  # a frame that does not fit, of which so many bytes are here
        self._large_filled = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self.failure: KafkaError | None = None

    @classmethod
    async def open(cls, settings: ClientSettings, host: str, port: int, timeout_s: float = 10.0) -> Connection:
        """Connect and log in. Raises Unreachable, LoginRefused, TooOld."""
        connection = cls(settings, host, port)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(
                    lambda: connection,
                    await _checked(settings, host, port),
                    port,
                    ssl=settings.tls,
                    server_hostname=host if settings.tls is not None else None,
                )
                await connection._greet()
        except ssl.SSLError as error:
            connection.close()
            raise LoginRefused(f"TLS with {host}:{port} failed: {error}") from error
        except (OSError, TimeoutError) as error:
            connection.close()
            reason = str(error) or f"no answer within {timeout_s:.0f} s"
            raise Unreachable(f"{host}:{port} cannot be reached: {reason}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    # -- requests

    async def request(
        self,
        api: Api,
        values: Mapping[str, object],
        *,
        timeout_s: float | None = None,
        most: int | None = None,
        client_id: str | None = None,
    ) -> Message:
        """Send a request and return the answer. Raises Unreachable, TooOld."""
        answer = self.send(api, values, most, client_id)
        timeout_s = self._settings.request_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            error = Unreachable(f"{self.address} did not answer within {timeout_s:.0f} s")
            self._fail(error)
            raise error from None

    def send(
        self, api: Api, values: Mapping[str, object], most: int | None = None, client_id: str | None = None
    ) -> asyncio.Future[Message]:
        """Send a request, and return what its answer will be. Raises Unreachable, TooOld.

        Args:
            api: The request.
            values: Its fields.
            most: The last version to use, unless the broker's first is later.
            client_id: What to be called instead of what the settings say.
        """
        if self.failure is not None or self._transport is None:
            raise self.failure or Unreachable(f"{self.address} is not connected")
        version = self._version(api, most)
        number = next(self._numbers) & 0x7FFFFFFF
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        frame = encode_request(api, version, number, client_id or self._settings.client_id, values)
        self._waiting[number] = answer, api, version
        self._transport.write(frame)
        return answer

    def _version(self, api: Api, most: int | None) -> int:
        first, last = VERSIONS[api]
        last = min(last, _NAMED_TOPICS.get(api, last))
        if api is Api.API_VERSIONS:
            return 0
        if api not in self._versions:
            raise TooOld(f"{self.address} does not know the request {api.name}: Kafka 2.8 or newer is needed")
        lowest, highest = self._versions[api]
        if most is not None:
            last = min(last, max(most, lowest))
        version = min(last, highest)
        if version < max(first, lowest):
            raise TooOld(
                f"{self.address} knows versions {lowest} to {highest} of the request {api.name}, expected {first} to "
                f"{last}: Kafka 2.8 or newer is needed"
            )
        return version

    def last_version(self, api: Api) -> int:
        """Return the last version of a request that the broker knows, -1 if it knows none."""
        return self._versions.get(api, (-1, -1))[1]

    # -- what arrives

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._large_filled :]
        return memoryview(self._received)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is not None:
            self._large_filled += nbytes
            if self._large_filled == len(self._large):
                frame, self._large = self._large, None
                self._take(frame.toreadonly())
            return
        self._filled += nbytes
        received, at, end = self._received, 0, self._filled
        while end - at >= 4:
            (size,) = _LENGTH.unpack_from(received, at)
            if not 0 <= size <= MAX_FRAME_BYTES:
                self._fail(Unreachable(f"{self.address} does not speak Kafka's protocol (a frame of {size} bytes)"))
                return
            here = end - at - 4
            if here < size:
                if size > _BUFFER_BYTES - 4:
                    self._large, self._large_filled = memoryview(bytearray(size)), here
                    self._large[:here] = received[at + 4 : end]
                    at = end
                break
            self._take(bytes(memoryview(received)[at + 4 : at + 4 + size]))
            at += 4 + size
        if at:
            received[: end - at] = received[at:end]
            self._filled = end - at

    def _take(self, frame: bytes | memoryview) -> None:
        number = int.from_bytes(frame[:4], "big")
        answer, api, version = self._waiting.pop(number, (None, Api.API_VERSIONS, 0))
        if answer is None or answer.done():
            return
        try:
            answer.set_result(parse_response(api, version, frame)[1])
        except MalformedMessage as error:
            failure = Unreachable(f"{self.address} sent what cannot be read: {error}")
            answer.set_exception(failure)
            self._fail(failure)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(Unreachable(f"the connection to {self.address} was lost{f': {exc}' if exc else ''}"))

    def _fail(self, error: KafkaError) -> None:
        if self.failure is None:
            self.failure = error
        waiting, self._waiting = self._waiting, {}
        for answer, _, _ in waiting.values():
            if answer is not None and not answer.done():
                answer.set_exception(self.failure)
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection; requests without an answer fail."""
        self._fail(Unreachable(f"the connection to {self.address} is closed"))

    # -- logging in

    async def _greet(self) -> None:
        answer = await self.request(Api.API_VERSIONS, {}, timeout_s=10)
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        credentials = self._settings.credentials
        if credentials is None:
            return
        shaken = await self.request(Api.SASL_HANDSHAKE, {"mechanism": credentials.mechanism}, timeout_s=10)
        if shaken.error_code:
            offered = ", ".join(shaken.mechanisms) or "none"
            raise LoginRefused(
                f"{self.address} does not offer {credentials.mechanism}, only {offered}: see sasl.mechanism"
            )
        if credentials.mechanism == "PLAIN":
            await self._authenticate(b"\0%b\0%b" % (credentials.username.encode(), credentials.password.encode()))
        else:
            await self._scram(credentials)

    async def _authenticate(self, data: bytes) -> bytes:
        try:
            answer = await self.request(Api.SASL_AUTHENTICATE, {"auth_bytes": data}, timeout_s=10)
        except Unreachable as error:
            raise LoginRefused(f"{self.address} ended the connection during the login: {error}") from error
        if answer.error_code:
            raise LoginRefused(f"{self.address} refuses the login: {answer.error_message or answer.error_code}")
        return bytes(answer.auth_bytes or b"")

    async def _scram(self, credentials: Credentials) -> None:
        """Log in by SCRAM (RFC 5802), which proves that either side knows the password."""
        digest = "sha512" if credentials.mechanism.endswith("512") else "sha256"
        name = credentials.username.replace("=", "=3D").replace(",", "=2C")
        nonce = secrets.token_urlsafe(24)
        first = f"n={name},r={nonce}"
        server_first = (await self._authenticate(f"n,,{first}".encode())).decode()
        fields = dict(part.split("=", 1) for part in server_first.split(",") if "=" in part)
        if not fields.get("r", "").startswith(nonce) or "s" not in fields or not fields.get("i", "").isdecimal():
            raise LoginRefused(f"{self.address} answers the login with something else than SCRAM")
        salted = hashlib.pbkdf2_hmac(
            digest, credentials.password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        final = f"c=biws,r={fields['r']}"
        signed = f"{first},{server_first},{final}".encode()
        client_key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
        server_final = (await self._authenticate(f"{final},p={proof}".encode())).decode()
        expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
        answered = b""
        with suppress(ValueError):
            answered = base64.b64decode(server_final.partition("v=")[2].partition(",")[0])
        if not hmac.compare_digest(answered, expected):
            raise LoginRefused(f"{self.address} does not know the password: it may be another server")
