"""Tokens of Microsoft Entra ID, from a credential that a name leads to.

The name, not the credential, travels to other machines and processes, so each has a credential of its own and no secret
is sent.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

from tidegate.client.errors import ClientError

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
