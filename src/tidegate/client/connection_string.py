"""Event Hubs connection strings, as shown by the portal and the emulator.

``Endpoint=sb://host[:port];SharedAccessKeyName=…;SharedAccessKey=…[;EntityPath=hub][;UseDevelopmentEmulator=true]``,
or a ``SharedAccessSignature`` instead of name and key. ``UseDevelopmentEmulator`` means plain TCP, on port 5672
unless the endpoint has one; without it the transport is TLS on 5671.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit


class ClientError(Exception):
    """A hub cannot be reached, or refuses a request."""


class BusyError(ClientError):
    """The hub refuses for now: it is throttled, all places of readers are taken, or another reader owns a partition."""


class ConnectionLostError(ClientError):
    """The connection broke, or the hub did not answer; another attempt may succeed."""


class PublishError(ClientError):
    """The hub refused events; none of their batch is stored."""


_SCOPE = "https://eventhubs.azure.net//.default"


def provided_token(provider: str) -> tuple[str, int]:
    """Return a token of a provider and its expiry (seconds since 1970).

    Args:
        provider: MODULE:NAME of a credential (an object with ``get_token``), or of what returns one when it is called.

    Raises:
        ClientError: there is no such provider, or it has no token.
    """
    try:
        token = _credential(provider).get_token(_SCOPE)
        return str(token.token), int(token.expires_on)
    except ClientError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ClientError(f"token provider {provider} has no token: {reason[0]}") from error


@lru_cache
def _credential(provider: str) -> Any:
    module, colon, name = provider.partition(":")
    if not colon or not module or not name:
        raise ClientError(
            f"token provider '{provider}': expected MODULE:NAME, such as azure.identity:DefaultAzureCredential"
        )
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ClientError(
            f"token provider '{provider}': {error}; install it for the Python of the driver and of every executor"
        ) from error
    except AttributeError as error:
        raise ClientError(f"token provider '{provider}': module {module} has no '{name}'") from error
    credential = found if hasattr(found, "get_token") and not isinstance(found, type) else found()
    if not hasattr(credential, "get_token"):
        raise ClientError(f"token provider '{provider}': a {type(credential).__name__} has no method get_token(scope)")
    return credential


_TOKEN_LIFETIME_S = 3600
_KEYS = (
    "Endpoint",
    "SharedAccessKeyName",
    "SharedAccessKey",
    "SharedAccessSignature",
    "EntityPath",
    "UseDevelopmentEmulator",
)


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """A parsed connection string. Its text form and its repr hold no secret."""

    host: str
    port: int
    tls: bool
    entity_path: str
    key_name: str
    key: str = field(repr=False)
    signature: str | None = field(repr=False, default=None)
    sasl_plain: bytes | None = field(repr=False, default=None)
    """The response of SASL PLAIN, for a broker that takes a name and a password instead of tokens."""
    has_tokens: bool = True
    token_provider: str | None = None

    @classmethod
    def of_url(cls, url: str, entity: str) -> ConnectionString:
        """Return the connection to any AMQP 1.0 broker: ``amqp://user:password@host:port``, or ``amqps://…``.

        Raises:
            ClientError: it is no such address. The message never repeats it, as it may hold a password.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if host is None or parts.scheme not in ("amqp", "amqps"):
            raise ClientError("expected an address such as amqp://user:password@host:5672, or one with amqps")
        tls = parts.scheme == "amqps"
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(
            host=host,
            port=port or (5671 if tls else 5672),
            tls=tls,
            entity_path=entity,
            key_name=user,
            key="",
            sasl_plain=f"\0{user}\0{password}".encode() if user else None,
            has_tokens=False,
        )

    @classmethod
    def parse(cls, text: str, event_hub: str | None = None, *, token_provider: str | None = None) -> ConnectionString:
        """Parse a connection string.

        Args:
            text: the connection string; beside a token provider it has no key.
            event_hub: the hub, if the string has no EntityPath.
            token_provider: MODULE:NAME of a token credential as `azure.identity` has them (an object with
                ``get_token``), or of a class or function that returns one: authentication with Microsoft Entra ID.

        Raises:
            ClientError: A part is missing or unknown. The message never repeats the string, which holds a key.
        """
        parts: dict[str, str] = {}
        known = {key.lower(): key for key in _KEYS}
        for part in filter(None, (part.strip() for part in text.split(";"))):
            name, equals, value = part.partition("=")
            if not equals or name.strip().lower() not in known:
                raise ClientError(
                    f"connection string: expected parts such as {', '.join(_KEYS[:3])}, got one named '{name[:24]}'"
                )
            parts[known[name.strip().lower()]] = value.strip()
        try:
            endpoint = urlsplit(parts.get("Endpoint", ""))
            host, port = endpoint.hostname, endpoint.port
        except ValueError as error:
            raise ClientError(f"connection string: Endpoint is not sb://HOST or sb://HOST:PORT: {error}") from error
        if not host:
            raise ClientError("connection string: Endpoint=sb://HOST/ is missing")
        signature = parts.get("SharedAccessSignature")
        keyed = signature is not None or ("SharedAccessKeyName" in parts and "SharedAccessKey" in parts)
        if token_provider is not None and (keyed or "SharedAccessKey" in parts):
            raise ClientError("connection string: it has a key or signature, and there is a token provider; give one")
        if token_provider is None and not keyed:
            raise ClientError(
                "connection string: SharedAccessKeyName and SharedAccessKey (or SharedAccessSignature) are missing"
            )
        path = parts.get("EntityPath") or event_hub
        if not path:
            raise ClientError("connection string: it names no event hub; add EntityPath=HUB, or name the hub beside it")
        if event_hub and parts.get("EntityPath", event_hub) != event_hub:
            raise ClientError(f"connection string: EntityPath is {parts['EntityPath']}, but event_hub is {event_hub}")
        plain = parts.get("UseDevelopmentEmulator", "").lower() == "true"
        return cls(
            host=host,
            port=port or (5672 if plain else 5671),
            tls=not plain,
            entity_path=path,
            key_name=parts.get("SharedAccessKeyName", ""),
            key=parts.get("SharedAccessKey", ""),
            signature=signature,
            token_provider=token_provider,
        )

    @property
    def audience(self) -> str:
        """The resource of a token: the hub, with all its groups and partitions."""
        return f"sb://{self.host}/{self.entity_path}"

    def token(self, now_s: float | None = None) -> tuple[str, int]:
        """Return a token for the hub, and its expiry (seconds since 1970). Raises ClientError.

        It is that of the token provider, or a shared access signature.

        Source: Authorize access with shared access signatures (Event Hubs documentation): HMAC-SHA256 over the
        encoded resource, a line feed and the expiry.
        """
        if self.token_provider is not None:
            return provided_token(self.token_provider)
        if self.signature is not None:
            fields = dict(part.partition("=")[::2] for part in self.signature.partition(" ")[2].split("&"))
            expiry = fields.get("se", "")
            if not (expiry.isascii() and expiry.isdecimal() and len(expiry) <= 15):
                raise ClientError("connection string: SharedAccessSignature is no token: its `se` is not a time")
            return self.signature, int(expiry)
        expires_at_s = int(time.time() if now_s is None else now_s) + _TOKEN_LIFETIME_S
        resource = quote(self.audience, safe="")
        digest = hmac.new(self.key.encode(), f"{resource}\n{expires_at_s}".encode(), hashlib.sha256).digest()
        sig = quote(base64.b64encode(digest), safe="")
        name = quote(self.key_name, safe="")
        return f"SharedAccessSignature sr={resource}&sig={sig}&se={expires_at_s}&skn={name}", expires_at_s
