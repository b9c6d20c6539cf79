"""Publishers over a network that loses requests and acknowledgements."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from tests.hub.support import NOW_S, batch, grant, message
from tidegate.amqp.encoding.types import Int, Short
from tidegate.amqp.messages import BATCH_FORMAT
from tidegate.hub import HubError, Namespace
from tidegate.hub.errors import ServerBusy
from tidegate.hub.producers import PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQUENCE_NUMBER
from tidegate.hub.publish import Publisher

HUB = "sim"


@dataclass
class Publication:
    """Some events that are sent together until they are acknowledged.

    Attributes:
        bodies: JSON with a number `n` that no other event has.
        first: of an idempotent producer, the number of the first event.
        sent: how often the hub has received it.
    """

    bodies: list[bytes]
    first: int = 0
    sent: int = 0
    acknowledged: bool = False


@dataclass
class SimulatedPublisher:
    """One publisher on one partition; it sends its publications in order, each until it is acknowledged.

    Attributes:
        producer_id: of an idempotent producer, once the hub has named it.
    """

    partition: str
    idempotent: bool
    waiting: list[Publication] = field(default_factory=list)
    done: list[Publication] = field(default_factory=list)
    producer_id: int | None = None
    next_number: int = 1
    _link: Publisher | None = None
    _connection: int = 0
    _in_flight: bool = False

    def offer(self, bodies: list[bytes]) -> None:
        """Add events to be published."""
        self.waiting.append(Publication(bodies, self.next_number))
        self.next_number += len(bodies)

    def send(self, namespace: Namespace, dice: random.Random, loss: float) -> str:
        """Send the publication whose turn it is; return what became of it, in a word."""
        if not self.waiting or self._in_flight:
            return "nothing to send"
        if dice.random() < loss:
            return "request lost"
        publication = self.waiting[0]
        ack_is_lost = dice.random() < loss
        connection = self._connection
        self._in_flight = True

        def answered(error: HubError | None) -> None:
            if connection != self._connection:
                return
            self._in_flight = False
            if error is None and not ack_is_lost:
                publication.acknowledged = True
                self.waiting.remove(publication)
                self.done.append(publication)

        try:
            link = self._linked(namespace)
            publication.sent += 1
            link.publish(BATCH_FORMAT, self._payload(link, publication), answered)
        except ServerBusy:
            self._in_flight = False
            return "refused, busy"
        return "sent, acknowledgement lost" if ack_is_lost else "sent"

    def lose_connection(self) -> None:
        """Forget the link and what was under way on it: the hub is gone, and answers nothing."""
        self._connection += 1
        self._link, self._in_flight = None, False

    def _linked(self, namespace: Namespace) -> Publisher:
        if self._link is None:
            properties: dict[str, Any] = {}
            if self.producer_id is not None:
                properties = {PRODUCER_ID: self.producer_id, PRODUCER_SEQUENCE_NUMBER: self.waiting[0].first - 1}
            self._link = namespace.open_publisher(
                f"{HUB}/Partitions/{self.partition}",
                [grant(namespace)],
                NOW_S,
                idempotent=self.idempotent,
                properties=properties,
            )
            if self.idempotent and self.producer_id is None:
                self.producer_id = self._link.producer_id
        return self._link

    def _numbers(self, link: Publisher, number: int) -> dict[str, Any]:
        """Return the annotations of an idempotent producer's event."""
        epoch = Short(link.producer_epoch or 0)
        return {PRODUCER_ID: self.producer_id, PRODUCER_EPOCH: epoch, PRODUCER_SEQUENCE_NUMBER: Int(number)}

    def _payload(self, link: Publisher, publication: Publication) -> bytes:
        if not self.idempotent:
            return batch([message(body) for body in publication.bodies])
        return batch(
            [
                message(body, **self._numbers(link, publication.first + place))
                for place, body in enumerate(publication.bodies)
            ]
        )


def number_of(body: bytes) -> int:
    """Return the number `n` of an event."""
    return int(json.loads(body)["n"])
