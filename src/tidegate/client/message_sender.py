"""A sender of single messages to a queue or topic: Service Bus, or any other AMQP 1.0 broker.

Messages are sent as fast as the broker gives credit, without waiting for the outcome of one before the next. The
sender keeps account of outcomes, so that after an interruption a caller knows which messages were accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.amqp import Accepted, Disposition, Event, Link, Modified, Rejected, Released
from tidegate.client.connection_string import ConnectionString
from tidegate.client.hub_client import HubClient
from tidegate.client.producer import RefusedError
from tidegate.retrying import PASSING_CONDITIONS


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that the broker rejected: its index among those sent, AMQP's condition, and the broker's words."""

    index: int
    condition: str
    description: str


class MessageSender(HubClient):
    """A connection that sends to one queue or topic, opened and closed like a `HubClient`."""

    def __init__(self, connection: ConnectionString) -> None:
        """Connect, sign in, and open the queue or topic.

        Raises:
            ClientError: the broker cannot be reached or refuses.
        """
        self._ids: dict[int, int] = {}
        self._accepted: set[int] = set()
        self._refusals: list[Refusal] = []
        super().__init__(connection)
        try:
            self._link = self._session.attach_sender(f"tidegate-send-{next(self._numbers)}", connection.entity_path)
            self._attach(self._link)
        except BaseException:
            self.close()
            raise

    @property
    def max_message_bytes(self) -> int | None:
        """The largest message that the broker accepts; None if it names no limit."""
        return int(self._link.max_message_size) or None

    def send(self, messages: Sequence[bytes], accepted: set[int]) -> list[Refusal]:
        """Send encoded messages in order, and return those that the broker rejected when it has answered for all.

        Args:
            accepted: the indexes of messages that need not be sent; those that the broker accepts are added to it,
                also if the call fails.

        Raises:
            RefusedError: the broker closes the link, or puts a message off.
            ClientError: the connection breaks.
        """
        self._sign_in()
        self._ids, self._accepted, self._refusals = {}, accepted, []
        waiting = [index for index in range(len(messages)) if index not in accepted]
        first = 0
        while first < len(waiting):
            self._wait(lambda: self._link.sendable > 0 or self._link in self._refused, "credit")
            self._check()
            some = [messages[index] for index in waiting[first : first + self._link.sendable]]
            sent = self._link.send_deliveries(some, settled=False)
            self._ids.update(zip(sent, waiting[first:], strict=False))
            first += len(sent)
        self._wait(lambda: not self._ids or self._link in self._refused, "acknowledgement")
        self._check()
        return self._refusals

    def _check(self) -> None:
        if self._link in self._refused:
            raise RefusedError(self._refused[self._link], self._condition)

    _condition = ""

    def _take(self, event: Event) -> None:
        link: Link | None = getattr(self, "_link", None)
        if not isinstance(event, Disposition) or event.link is not link or link is None:
            if getattr(event, "link", None) is link and (error := getattr(event, "error", None)) is not None:
                self._condition = str(error.condition)
            super()._take(event)
            return
        indexes = [self._ids.pop(number) for number in range(event.first, event.last + 1) if number in self._ids]
        match event.state:
            case Accepted():
                self._accepted.update(indexes)
            case Rejected(error=error):
                condition, text = ("", "") if error is None else (str(error.condition), str(error.description or ""))
                self._refusals += [Refusal(index, condition, text) for index in indexes]
            case Released() | Modified():
                self._refused[link] = f"{self._name} put a message off"
            case _:
                self._refused[link] = f"{self._name} gave a message no outcome"

    @property
    def _name(self) -> str:
        return f"{self._to.entity_path} at {self._to.host}:{self._to.port}"


def is_temporary(condition: Any) -> bool:
    """Return whether a message that was refused with this condition may be accepted later."""
    return str(condition) in PASSING_CONDITIONS or str(condition) in _PASSING_FOR_SENDERS


_PASSING_FOR_SENDERS = frozenset({"", "com.microsoft:message-lock-lost"})
