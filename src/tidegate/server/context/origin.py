"""Where a client's connection comes from that another process has accepted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tidegate.hub.access import Grant


@dataclass(frozen=True, slots=True)
class Origin:
    """A client as the process knows it that accepted its connection.

    Attributes:
        scheme: `http`, `https` or `kafka`.
        client: The client's address.
        server: The address to which it connected, or for a client of Kafka the one that it is to use.
        grant: What the key allows that a client of Kafka has shown; HTTP's clients show theirs with each request.
    """

    scheme: str
    client: tuple[str, int]
    server: tuple[str, int]
    grant: Grant | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the origin in the form in which it travels."""
        described = asdict(self)
        if self.grant is not None:
            described["grant"]["key_digest"] = self.grant.key_digest.hex()
        return described

    @classmethod
    def from_json(cls, described: dict[str, Any]) -> Origin:
        """Return the origin that `to_json` was given."""
        grant = described["grant"]
        if grant is not None:
            grant = Grant(**{**grant, "scope": tuple(grant["scope"]), "key_digest": bytes.fromhex(grant["key_digest"])})
        return cls(described["scheme"], tuple(described["client"]), tuple(described["server"]), grant)
