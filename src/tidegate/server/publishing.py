"""A publisher's link: transfers in, dispositions out when the log says durable."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from tidegate.amqp import ACCEPTED, Credit, Link, Rejected, Short, Transfer, TransferTooLarge
from tidegate.amqp.types import Int
from tidegate.hub.errors import HubError, MessageTooLarge
from tidegate.hub.namespace import Publisher

if TYPE_CHECKING:
    from tidegate.server.client import Client

CREDIT = 1000
SINGLE_FORMAT = 0
IDEMPOTENT = "com.microsoft:idempotent-producer"
PRODUCER_ID = "com.microsoft:producer-id"
PRODUCER_EPOCH = "com.microsoft:producer-epoch"
PRODUCER_SEQUENCE_NUMBER = "com.microsoft:producer-sequence-number"


class PublishingLink:
    """What stands behind a link whose target is a hub, a partition or a publisher.

    A publication that is refused is answered by `rejected`, never by a detach: clients lose the reason of a detach.
    """

    def __init__(self, client: Client, link: Link, publisher: Publisher) -> None:
        self._client = client
        self._link = link
        self._publisher = publisher
        self._completions = client.server.completions
        self.expires_at_s: float | None = publisher.expires_at_s

    @classmethod
    def attach(cls, client: Client, link: Link, address: str) -> PublishingLink:
        """Open the publisher and accept the link. Raises HubError."""
        idempotent = IDEMPOTENT in link.desired_capabilities
        publisher = client.server.namespace.open_publisher(
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
        return cls(client, link, publisher)

    def on_transfers(self, transfers: Sequence[Transfer]) -> None:
        for message_format, run in groupby(transfers, key=attrgetter("message_format")):
            if message_format == SINGLE_FORMAT:
                self._publish_singles(list(run))
            else:
                for transfer in run:
                    self._publish(transfer)

    def _publish_singles(self, transfers: list[Transfer]) -> None:
        """What came at once costs one append and one report, however many events it is."""
        payloads = [transfer.payload for transfer in transfers]
        self._client.count_in_flight(sum(map(len, payloads)))
        self._publisher.publish_singles(payloads, partial(self._completions.report, self._singles_done, transfers))

    def _singles_done(self, transfers: list[Transfer], indexes: Sequence[int], error: HubError | None) -> None:
        client = self._client
        done = [transfers[index] for index in indexes]
        client.count_in_flight(-sum([len(transfer.payload) for transfer in done]))
        if error is not None:
            for transfer in done:
                self._refuse(transfer.delivery_id, transfer.settled, error)
        else:
            client.server.metrics.publications += len(done)
            if self._link.is_attached:
                for first, last in _consecutive([transfer.delivery_id for transfer in done if not transfer.settled]):
                    self._link.settle(first, last, ACCEPTED)
        self._completions.afterwards(client.flush)

    def _publish(self, transfer: Transfer) -> None:
        payload = transfer.payload
        size = len(payload)
        done = partial(self._completions.report, self._done, transfer.delivery_id, transfer.settled, size)
        try:
            self._publisher.publish(transfer.message_format, payload, done)
        except HubError as error:
            self._refuse(transfer.delivery_id, transfer.settled, error)
            return
        self._client.count_in_flight(size)

    def on_transfer_too_large(self, transfer: TransferTooLarge) -> None:
        """The core kept nothing of it."""
        limit = self._publisher.max_message_bytes
        self._refuse(transfer.delivery_id, transfer.settled, MessageTooLarge(f"a publication may have {limit} bytes"))

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
        client = self._client
        client.count_in_flight(-size)
        if error is not None:
            self._refuse(delivery_id, settled, error)
        else:
            client.server.metrics.publications += 1
            if not settled and self._link.is_attached:
                self._link.settle(delivery_id, delivery_id, ACCEPTED)
        self._completions.afterwards(client.flush)

    def _refuse(self, delivery_id: int, settled: bool, error: HubError) -> None:
        self._client.refused("publication on", self._link.name, error)
        if not settled and self._link.is_attached:
            self._link.settle(delivery_id, delivery_id, Rejected(error.condition, error.description))


def _consecutive(delivery_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run without a gap."""
    if not delivery_ids:
        return
    first = last = delivery_ids[0]
    for delivery_id in delivery_ids[1:]:
        if delivery_id != last + 1:
            yield first, last
            first = delivery_id
        last = delivery_id
    yield first, last
