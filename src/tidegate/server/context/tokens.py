"""The tokens a connection has been given through `$cbs`, by the audience each was put for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote_plus

from tidegate.hub.access import Grant

MAX_TOKENS = 1000


class Tokens:
    """Grants of one connection. A token put again for an audience takes the place of the former."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def put(self, audience: str, grant: Grant) -> None:
        """Keep a verified token's grant; the oldest goes when there are too many."""
        self._grants.pop(audience, None)
        self._grants[audience] = grant
        if len(self._grants) > MAX_TOKENS:
            del self._grants[next(iter(self._grants))]

    @property
    def rule_names(self) -> Sequence[str]:
        """The access rules whose keys signed the tokens: all that is known of who the client is."""
        return sorted({grant.rule_name for grant in self._grants.values()})

    @property
    def grants(self) -> Sequence[Grant]:
        """All of them, the newest first."""
        return list(reversed(self._grants.values()))


def claimed_rule(token: object) -> str | None:
    """The rule whose key a token claims to be signed with, for the log; nothing else of a token is for people."""
    match = re.search(r"(?:^|[ &])skn=([^&]{1,256})", token) if isinstance(token, str) else None
    return unquote_plus(match[1]) if match else None
