"""API sketch, being filled in: what the server calls. Everything here is plain Python without waiting (appends excepted: callback)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.hub.config import NamespaceConfig
from tidegate.hub.errors import HubError
from tidegate.log import Appended, Clock, Committer, EventBatch, PartitionLog


class Right:  # enum: SEND, LISTEN, MANAGE
    pass


@dataclass(frozen=True)
class Grant:
    """What a verified token (or key) allows: rights under a path until a time."""

    rule_name: str
    scope: tuple[str, ...]
    rights: frozenset[Right]
    expires_at_s: int | None


class Access:
    """The namespace's SAS rules. All checks in constant time where a secret is compared; all refusals raise Unauthorized."""

    def check_token(self, token: str, now_s: float) -> Grant:
        """Verify a `SharedAccessSignature sr=…&sig=…&se=…&skn=…` (signature, key name, expiry). Raises Unauthorized."""

    def check_key(self, rule_name: str, key: str) -> Grant:
        """SASL PLAIN: user = rule name, password = primary or secondary key. Raises Unauthorized."""

    def authorize(self, grants: Sequence[Grant], right: Right, path: tuple[str, ...], now_s: float) -> Grant:
        """The grant that allows `right` on `path` now (the link ends when it expires). Raises Unauthorized."""


@dataclass(frozen=True)
class HubProperties:
    name: str
    created_at_ms: int
    partition_ids: tuple[str, ...]


@dataclass(frozen=True)
class PartitionProperties:
    """Empty: sequence numbers -1, offset "-1", time 0."""

    name: str
    partition_id: str
    begin_sequence_number: int
    last_enqueued_sequence_number: int
    last_enqueued_offset: str
    last_enqueued_time_ms: int
    is_empty: bool


class Publisher:
    """One publishing link's target (or an HTTPS request's)."""

    max_message_bytes: int
    expires_at_s: int | None
    # idempotent producers: what the attach reply must carry (com.microsoft:producer-id long, -epoch short, -sequence-number int)
    producer_id: int | None
    producer_epoch: int | None
    producer_sequence_number: int | None

    def publish(self, message_format: int, payload: bytes | memoryview, on_done: Callable[[HubError | None], None]) -> None:
        """One transfer: one event (format 0) or a batch (0x80013700), all or nothing.

        Raises HubError at once when it is refused (the disposition is `rejected` with its condition); else on_done is called from a
        committer thread (or at once, for a repeated idempotent batch) when it is durable (None) or failed."""

    def publish_events(self, events: Sequence[bytes], partition_key: str | None, on_done: Callable[[HubError | None], None]) -> None:
        """The same for already encoded AMQP messages (HTTPS)."""

    def close(self) -> None: ...


class Reader:
    """One receiving link on one partition in one consumer group."""

    next_sequence_number: int
    expires_at_s: int | None
    partition: Partition

    def read(self, *, max_events: int, max_bytes: int) -> list[EventBatch]:
        """What comes next; moves on. Damaged stretches are reported in the log once and passed over (the gap shows in the numbers)."""

    def close(self) -> None: ...


class Partition:
    partition_id: str
    log: PartitionLog  # .on_grow(callback) to wake receivers

    def properties(self) -> PartitionProperties: ...


class EventHub:
    name: str
    partitions: tuple[Partition, ...]
    consumer_groups: tuple[str, ...]

    def partition(self, partition_id: str) -> Partition:
        """Raises NotFound."""

    def properties(self) -> HubProperties: ...


class Namespace:
    """The hubs of one data directory."""

    name: str
    access: Access
    event_hubs: Mapping[str, EventHub]

    @classmethod
    def open(
        cls, data_dir: Path, config: NamespaceConfig, *, clock: Clock, committer: Committer, durable: bool = True
    ) -> Namespace:
        """Raises ConfigError (e.g. another partition count than at creation), DirectoryLocked, LogError."""

    def event_hub(self, name: str) -> EventHub:
        """By name without case. Raises NotFound."""

    def put_token(self, audience: str, token: str, now_s: float) -> Grant:
        """$cbs put-token. NotFound for an unknown hub (reply 404), Unauthorized (reply 401)."""

    def open_publisher(
        self,
        address: str,
        grants: Sequence[Grant],
        now_s: float,
        *,
        idempotent: bool = False,
        properties: Mapping[str, object] | None = None,
    ) -> Publisher:
        """Target address `hub`, `hub/Partitions/N`, `hub/Publishers/NAME` (a URL's host part is ignored).

        properties: the attach properties with plain keys and values. Raises NotFound, Unauthorized, ..."""

    def open_reader(
        self,
        address: str,
        grants: Sequence[Grant],
        now_s: float,
        *,
        selector: str | None = None,
        epoch: int | None = None,
        receiver_name: str = "",
        on_stolen: Callable[[HubError], None],
    ) -> Reader:
        """Source address `hub/ConsumerGroups/CG/Partitions/N`. selector: the text of the selector filter.

        on_stolen is called (in this thread, from a later open_reader) when a higher owner level evicts this reader. Raises NotFound,
        Unauthorized, ArgumentError, LinkStolen, QuotaExceeded."""

    def management_read(self, address: str, grants: Sequence[Grant], now_s: float) -> HubProperties: ...
    def close(self) -> None: ...
