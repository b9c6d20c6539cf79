"""A publisher's link: transfers in, dispositions out when the log says durable."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from tidegate.amqp import ACCEPTED, Credit, Link, Rejected, Short, Transfers, TransferTooLarge
from tidegate.amqp.encoding.types import CONNECTION_FORCED, Int
from tidegate.hub.errors import HubError, MessageTooLarge, Unauthorized
from tidegate.hub.namespace import Publisher
from tidegate.server.connections.link_handler import follow_token
from tidegate.server.context.metrics import hub_in

if TYPE_CHECKING:
    from tidegate.server.connections.client_connection import ClientConnection

CREDIT = 1000
SINGLE_FORMAT = 0
IDEMPOTENT = "com.microsoft:idempotent-producer"
PRODUCER_ID = "com.microsoft:producer-id"
PRODUCER_EPOCH = "com.microsoft:producer-epoch"
PRODUCER_SEQUENCE_NUMBER = "com.microsoft:producer-sequence-number"
STOPPING = "the hub is stopping; connect again"


class PublishingLink:
    """The behaviour of a link whose target is a hub, a partition or a publisher.

    A publication that is refused is answered by `rejected`, never by a detach: clients lose the reason of a detach.
    """

    def __init__(self, client: ClientConnection, link: Link, publisher: Publisher, address: str) -> None:
        self._client = client
        self._link = link
        self._address = address
        self._hub = hub_in(client.context.namespace, address)
        self._publisher = publisher
        self._completions = client.context.completions
        self.expires_at_s: float | None = publisher.expires_at_s

    @classmethod
    def attach(cls, client: ClientConnection, link: Link, address: str) -> PublishingLink:
        """Open the publisher and accept the link. Raises HubError."""
        idempotent = IDEMPOTENT in link.desired_capabilities
        publisher = client.context.namespace.open_publisher(
            address, client.tokens.grants, time.time(), idempotent=idempotent, properties=link.properties
        )
        properties = {}
        if publisher.producer_id is not None:
            properties = {
                PRODUCER_ID: publisher.producer_id,
                PRODUCER_EPOCH: Short(publisher.producer_epoch or 0),
                PRODUCER_SEQUENCE_NUMBER: Int(publisher.producer_sequence_number or 0),
            }
        link.accept(
            credit=CREDIT,
            max_message_size=publisher.max_message_bytes,
            properties=properties,
            offered_capabilities=[IDEMPOTENT] if idempotent else [],
        )
        return cls(client, link, publisher, address)

    def on_transfers(self, transfers: Transfers) -> None:
        self._client.context.metrics.request(self._hub, len(transfers.payloads))
        try:
            follow_token(self)
        except Unauthorized as error:
            last_id = transfers.first_id + len(transfers.payloads) - 1
            self._answer(transfers.first_id, last_id, transfers.settled, error)
            return
        if transfers.message_format == SINGLE_FORMAT:
            self._publish_singles(transfers)
            return
        for delivery_id, payload in enumerate(transfers.payloads, transfers.first_id):
            self._publish(delivery_id, transfers.message_format, transfers.settled, payload)

    def _publish_singles(self, transfers: Transfers) -> None:
        """What came at once costs one append and one report, however many events it is."""
        size = sum(map(len, transfers.payloads))
        self._client.count_in_flight(size)
        done = partial(self._completions.report, self._singles_done, transfers, size)
        self._publisher.publish_singles(transfers.payloads, done)

    def _singles_done(self, transfers: Transfers, size: int, indexes: Sequence[int], error: HubError | None) -> None:
        payloads = transfers.payloads
        if len(indexes) < len(payloads):
            size = sum(len(payloads[index]) for index in indexes)
        self._client.count_in_flight(-size)
        for first, last in _consecutive(indexes):
            self._answer(transfers.first_id + first, transfers.first_id + last, transfers.settled, error)
        self._completions.afterwards(self._client.flush)

    def _publish(self, delivery_id: int, message_format: int, settled: bool, payload: bytes) -> None:
        size = len(payload)
        done = partial(self._completions.report, self._done, delivery_id, settled, size)
        try:
            self._publisher.publish(message_format, payload, done)
        except HubError as error:
            self._answer(delivery_id, delivery_id, settled, error)
            return
        self._client.count_in_flight(size)

    def turn_away(self, transfers: Transfers) -> None:
        """Answer that the connection is about to end, so that the client tries again on another."""
        if not transfers.settled and self._link.is_attached:
            last_id = transfers.first_id + len(transfers.payloads) - 1
            self._link.settle(transfers.first_id, last_id, Rejected(CONNECTION_FORCED, STOPPING))

    def on_transfer_too_large(self, transfer: TransferTooLarge) -> None:
        """The core kept nothing of it."""
        self._client.context.metrics.request(self._hub)
        limit = self._publisher.max_message_bytes
        error = MessageTooLarge(f"a publication may have {limit} bytes")
        self._answer(transfer.delivery_id, transfer.delivery_id, transfer.settled, error)

    def on_credit(self, credit: Credit) -> None:
        """Only senders get credit."""

    def on_writable(self) -> None:
        """Dispositions are small and never held back."""

    def renew(self) -> None:
        """The token has ended; a later one may cover the link. Raises Unauthorized."""
        self.expires_at_s = self._publisher.renew(self._client.tokens.grants, time.time())

    def check(self) -> None:
        self._publisher.check()

    def close(self) -> None:
        self._publisher.close()

    def _done(self, delivery_id: int, settled: bool, size: int, error: HubError | None) -> None:
        self._client.count_in_flight(-size)
        self._answer(delivery_id, delivery_id, settled, error)
        self._completions.afterwards(self._client.flush)

    def _answer(self, first_id: int, last_id: int, settled: bool, error: HubError | None) -> None:
        """Tell what became of deliveries."""
        if error is None:
            self._client.context.metrics.publications += last_id - first_id + 1
        else:
            for _ in range(first_id, last_id + 1):
                self._client.refused("publication to", self._address, error)
        if not settled and self._link.is_attached:
            state = ACCEPTED if error is None else Rejected(error.condition, error.description)
            self._link.settle(first_id, last_id, state)


def _consecutive(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run without a gap, of numbers that go up."""
    if indexes[-1] - indexes[0] < len(indexes):
        return [(indexes[0], indexes[-1])]
    starts = [0, *(at for at in range(1, len(indexes)) if indexes[at] > indexes[at - 1] + 1), len(indexes)]
    return [(indexes[start], indexes[end - 1]) for start, end in pairwise(starts)]
