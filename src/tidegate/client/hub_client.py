"""A blocking client for reading from an event hub, Tidegate's or Azure's, as a job's driver and tasks need it.

One socket, one session, one caller at a time. It signs in with a put-token on ``$cbs``, queries the hub's partitions
through ``$management``, and reads ranges of a partition by sequence number. `tidegate.amqp` implements the protocol;
this module adds the socket, waiting and timeouts.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidegate import outbound
from tidegate.amqp import (
    Closed,
    Connection,
    ConnectionSettings,
    Described,
    Detached,
    Disposition,
    Ended,
    Event,
    Link,
    LinkAttached,
    Message,
    Properties,
    Rejected,
    Symbol,
    Transfer,
    TransferTooLarge,
    encode_message,
    parse_message,
)
from tidegate.amqp.encoding.types import STOLEN
from tidegate.amqp.endpoints.link import SEND_SETTLED
from tidegate.client.connection_string import BusyError, ClientError, ConnectionLostError, ConnectionString
from tidegate.client.event import Delivery
from tidegate.retrying import PASSING_CONDITIONS, PASSING_STATUS

_ANSWER_WITHIN_S = 20.0
_RENEW_TOKEN_S = 300
_NOT_FOUND = 404
_RECEIVE_BYTES = 1 << 18
_CREDIT = 2_000
_SAS_TOKEN = "servicebus.windows.net:sastoken"
_ENTRA_TOKEN = "jwt"
_SELECTOR = "apache.org:selector-filter:string"
_MAX_OFFSET_DIGITS = 19
_PASSING_FOR_READERS = PASSING_CONDITIONS | {STOLEN}
"""Of refusals that end by themselves, when the hub is less busy or another reader leaves."""
_ANNOTATIONS = ("x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time")


@dataclass(frozen=True, slots=True)
class ReadingJob:
    """A job that reads a hub's segments, and the sequence number that it reads next."""

    name: str
    consumer_group: str
    position: int


@dataclass(frozen=True, slots=True)
class HubTopicAddress:
    """Where a gateway has the records of a hub.

    Attributes:
        bootstrap: `HOST:PORT[,HOST:PORT…]` of some brokers of the cluster.
        topic: the topic, whose partitions have the numbers of the hub's.
        topic_id: its identity; another topic of the same name has another one.
        is_open: whether the brokers talk to everybody, without TLS and SASL.
    """

    bootstrap: str
    topic: str
    topic_id: str
    is_open: bool


@dataclass(frozen=True, slots=True)
class KafkaGroupPosition:
    """What a group of Kafka's clients has committed: the sequence number that it reads next, and when."""

    name: str
    position: int
    committed_at_ms: int


@dataclass(frozen=True, slots=True)
class HubPartition:
    """The current range of a partition.

    Attributes:
        begin, end: the oldest sequence number, and that of the next event.
        arrival_lower_bound_ms: no event from ``end`` on is enqueued earlier; None if the hub does not report it.
        log_directory, log_id: the folder of the hub's segments, and an id that identifies it; None for other hubs.
        log_identity: what distinguishes the log from one that replaces it; None if the hub does not say.
        jobs: the jobs that read the segments themselves, where they were asked for.
        topic: where a gateway has the events, whose numbers have gaps then; None for other hubs.
        kafka_groups: what groups of Kafka's clients have committed, where it was asked for.
    """

    begin: int
    end: int
    arrival_lower_bound_ms: int | None
    log_directory: str | None
    log_id: str | None
    log_identity: str | None = None
    jobs: tuple[ReadingJob, ...] = ()
    topic: HubTopicAddress | None = None
    kafka_groups: tuple[KafkaGroupPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class HubDescription:
    """An event hub: the ids of its partitions, and when it was created (None if it does not say)."""

    partition_ids: tuple[str, ...]
    created_at_ms: int | None


@dataclass(frozen=True, slots=True)
class _Answer:
    """The response of a request-response node."""

    code: int
    description: str
    body: Any


def _answer(payload: bytes) -> tuple[str, _Answer]:
    """Return a response, and the number of its request."""
    message = parse_message(payload)
    said = message.application_properties or {}
    code = said.get("status-code", said.get("statusCode", 0))
    description = said.get("status-description") or said.get("statusDescription") or ""
    number = "" if message.properties is None else str(message.properties.correlation_id)
    return number, _Answer(int(code), str(description), message.body)


def _hub_partition(answer: Mapping[str, Any]) -> HubPartition:
    lower_bound = answer.get("tidegate:arrival-lower-bound")
    directory, log_id = answer.get("tidegate:log-directory"), answer.get("tidegate:log-id")
    identity = answer.get("tidegate:log-identity")
    return HubPartition(
        begin=max(int(answer["begin_sequence_number"]), 0),
        end=int(answer["last_enqueued_sequence_number"]) + 1,
        arrival_lower_bound_ms=None if lower_bound is None else int(lower_bound),
        log_directory=None if directory is None else str(directory),
        log_id=None if log_id is None else str(log_id),
        log_identity=None if identity is None else str(identity),
        jobs=tuple(
            ReadingJob(str(job["name"]), str(job["consumer-group"]), int(job["position"]))
            for job in answer.get("tidegate:jobs") or ()
        ),
        topic=_topic_address(answer.get("tidegate:topic")),
        kafka_groups=tuple(
            KafkaGroupPosition(str(group["name"]), int(group["position"]), int(group["committed-at"]))
            for group in answer.get("tidegate:kafka-groups") or ()
        ),
    )


def _topic_address(found: Any) -> HubTopicAddress | None:
    if not isinstance(found, Mapping):
        return None
    bootstrap, topic, topic_id, is_open = (found.get(name) for name in ("brokers", "name", "id", "is-open"))
    return HubTopicAddress(str(bootstrap), str(topic), str(topic_id), is_open is True)


def _error_of(status: int) -> type[ClientError]:
    """Return what a node's answer means to its caller."""
    return BusyError if status in PASSING_STATUS else ClientError


class HubClient:
    """A connection to one event hub."""

    def __init__(self, connection: ConnectionString) -> None:
        """Connect and sign in.

        Raises:
            ClientError: The hub cannot be reached or refuses.
        """
        self._to = connection
        self._inbox: dict[Link, list[Transfer]] = {}
        self._attached: set[Link] = set()
        self._refused: dict[Link, str] = {}
        self._passing: set[Link] = set()
        self._numbers = itertools.count(1)
        self._replies: dict[str, tuple[Link, Link]] = {}
        self._token_ends_s = 0.0
        self.closed = False
        self._socket = self._connect()
        self._amqp = Connection(
            "client",
            f"tidegate-{uuid.uuid4().hex[:12]}",
            ConnectionSettings(
                hostname=connection.host,
                sasl_mechanisms=("ANONYMOUS",) if connection.sasl_plain is None else ("PLAIN",),
                sasl_response=connection.sasl_plain or b"",
                incoming_window=65_536,
            ),
        )
        self._amqp.open()
        self._session = self._amqp.begin()
        try:
            self._sign_in()
        except BaseException:
            self.close()
            raise

    # -- properties of the hub ---------------------------------------------------------------------------------------

    def partition_ids(self) -> tuple[str, ...]:
        """Return the ids of the hub's partitions.

        Raises:
            ClientError: The hub does not exist or refuses.
        """
        return self.hub().partition_ids

    def hub(self) -> HubDescription:
        """Return what the hub says of itself.

        Raises:
            ClientError: The hub does not exist or refuses.
        """
        (answer,) = self._management([{"type": "com.microsoft:eventhub"}])
        listed, created = answer.get("partition_ids"), answer.get("created_at")
        ids = tuple(str(item) for item in getattr(listed, "items", listed) or ())
        return HubDescription(ids, None if created is None else int(created))

    def partition_properties(self, partition: str) -> HubPartition:
        """Return the current range of a partition.

        Raises:
            ClientError: The partition does not exist or the hub refuses.
        """
        return self.partitions_properties((partition,))[partition]

    def partitions_properties(
        self, partitions: Sequence[str], further: Mapping[str, Mapping[str, Any]] | None = None
    ) -> dict[str, HubPartition]:
        """Return the current ranges of several partitions, queried together because jobs poll often.

        Args:
            partitions: Their ids.
            further: By partition, further properties of its question, which only a Tidegate hub knows.

        Raises:
            ClientError: A partition does not exist or the hub refuses.
        """
        more = further or {}
        asked = [
            {"type": "com.microsoft:partition", "partition": partition, **more.get(partition, {})}
            for partition in partitions
        ]
        return {
            partition: _hub_partition(answer)
            for partition, answer in zip(partitions, self._management(asked), strict=True)
        }

    def enqueued_time_ms(self, group: str, partition: str, sequence_number: int) -> int:
        """Return the arrival of the first event at or after a sequence number, milliseconds since 1970.

        A Tidegate hub answers directly; on other hubs the event is read, which occupies a reader slot of ``group``.

        Raises:
            ClientError: There is no such event, or the hub refuses (a reader with an owner level is in the group).
        """
        question = {"type": "com.microsoft:partition", "partition": partition}
        (answer,) = self._management([{**question, "tidegate:sequence-number": sequence_number}])
        known = answer.get("tidegate:enqueued-time")
        if known is not None:
            return int(known)
        end = int(answer["last_enqueued_sequence_number"]) + 1
        if sequence_number >= end:
            raise ClientError(f"{self._name} has no event {sequence_number} in partition {partition} yet")
        with self._receiver(group, partition, f"amqp.annotation.x-opt-sequence-number >= '{sequence_number}'") as link:
            link.flow(1)
            self._wait(lambda: bool(self._inbox[link]) or link in self._refused, "an event")
            if link in self._refused:
                raise self._why_refused(link)
            return self._annotations(self._inbox[link][0].payload)[2]

    def first_at(self, group: str, partition: str, enqueued_time_ms: int) -> int:
        """Return the sequence number of the first event enqueued at the time or later; the partition's end if none."""
        asked = {"tidegate:at-time": enqueued_time_ms}
        found = self._found(group, partition, asked)
        if found is not None:
            return found
        return self._first(group, partition, f"amqp.annotation.x-opt-enqueued-time >= '{enqueued_time_ms}'")

    def first_at_offset(self, group: str, partition: str, offset: str, *, inclusive: bool) -> int:
        """Return the sequence number of the first event after an offset, or at it if ``inclusive``."""
        if offset.isdecimal() and len(offset) < _MAX_OFFSET_DIGITS:
            asked = {"tidegate:at-offset" if inclusive else "tidegate:after-offset": int(offset)}
            found = self._found(group, partition, asked)
            if found is not None:
                return found
        return self._first(group, partition, f"amqp.annotation.x-opt-offset {'>=' if inclusive else '>'} '{offset}'")

    def _found(self, group: str, partition: str, asked: dict[str, int]) -> int | None:
        """Return a position that the hub looks up itself, which takes none of a group's few readers; None if it does
        not, as other hubs."""
        question = {"type": "com.microsoft:partition", "partition": partition, "tidegate:consumer-group": group}
        (answer,) = self._management([{**question, **asked}])
        found = answer.get("tidegate:found-sequence-number")
        return None if found is None else int(found)

    def _first(self, group: str, partition: str, selector: str) -> int:
        # The end is queried first: an event that arrives in between is then found by its number, not missed.
        end = self.partition_properties(partition).end
        with self._receiver(group, partition, selector) as link:
            link.flow(1, drain=True)
            self._wait(lambda: bool(self._inbox[link]) or link.credit == 0, "an event")
            if not self._inbox[link]:
                return end
            return self._annotations(self._inbox[link][0].payload)[0]

    # -- events ------------------------------------------------------------------------------------------------------

    def check_group(self, group: str, partition: str) -> None:
        """Check that the partition can be read in this consumer group.

        Raises:
            ClientError: The hub refuses.
        """
        with self._receiver(group, partition, "amqp.annotation.x-opt-offset > '@latest'"):
            pass

    def read(self, group: str, partition: str, start: int, end: int, batch_events: int) -> Iterator[list[Delivery]]:
        """Yield events with ``start`` ≤ sequence number < ``end``, about ``batch_events`` at a time.

        Numbers may have gaps. An event ``end`` − 1 or a later one must exist, or the call waits for it.

        Raises:
            ClientError: The hub refuses or the connection breaks.
        """
        expected = start
        with self._receiver(group, partition, f"amqp.annotation.x-opt-sequence-number >= '{start}'") as link:
            while expected < end:
                want = min(batch_events, end - expected)
                link.flow(min(want, _CREDIT))
                deliveries: list[Delivery] = []
                while expected < end and len(deliveries) < want:
                    self._wait(lambda: bool(self._inbox[link]) or link in self._refused, "events")
                    if link in self._refused:
                        raise self._why_refused(link)
                    payloads = [transfer.payload for transfer in self._inbox[link]]
                    self._inbox[link].clear()
                    deliveries += [Delivery(*self._annotations(payload), payload) for payload in payloads]
                    expected = deliveries[-1].sequence_number + 1
                    if len(deliveries) < want and link.credit == 0 and expected < end:
                        link.flow(min(want - len(deliveries), _CREDIT))
                while deliveries and deliveries[-1].sequence_number >= end:
                    deliveries.pop()
                if deliveries:
                    yield deliveries

    def _annotations(self, payload: bytes) -> tuple[int, str, int]:
        annotations = parse_message(payload).message_annotations or {}
        try:
            number, offset, time_ms = (annotations[name] for name in _ANNOTATIONS)
            return int(number), str(offset), int(time_ms)
        except (KeyError, ValueError, TypeError) as error:
            raise ClientError(
                f"{self._name} sent an event without its sequence number, offset and enqueued time"
            ) from error

    @contextmanager
    def _receiver(self, group: str, partition: str, selector: str) -> Iterator[Link]:
        self._sign_in()
        link = self._session.attach_receiver(
            f"tidegate-{next(self._numbers)}",
            f"{self._to.entity_path}/ConsumerGroups/{group}/Partitions/{partition}",
            filter={_SELECTOR: Described(Symbol(_SELECTOR), selector)},
            snd_settle_mode=SEND_SETTLED,
        )
        self._inbox[link] = []
        try:
            self._attach(link)
            yield link
        finally:
            if not self.closed and link.is_attached:
                link.detach()
                self._flush()
            self._inbox.pop(link, None)
            self._attached.discard(link)

    # -- requests ----------------------------------------------------------------------------------------------------

    def _sign_in(self) -> None:
        if not self._to.has_tokens or time.time() < self._token_ends_s - _RENEW_TOKEN_S:
            return
        token, ends_s = self._to.token()
        kind = _SAS_TOKEN if token.startswith("SharedAccessSignature ") else _ENTRA_TOKEN
        question = {"operation": "put-token", "type": kind, "name": self._to.audience}
        (answer,) = self._requests("$cbs", [(question, token)])
        if answer.code == _NOT_FOUND:
            raise ClientError(f"{self._name} was not found ({answer.code}): {answer.description}")
        if answer.code not in (200, 202):
            what = f"key '{self._to.key_name}'" if self._to.token_provider is None else f"the {kind} token"
            raise _error_of(answer.code)(f"{self._name} refuses {what} ({answer.code}): {answer.description}")
        self._token_ends_s = float(ends_s)

    def _management(self, questions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        self._sign_in()
        token = self._to.token()[0]
        always = {"operation": "READ", "name": self._to.entity_path, "security_token": token}
        answers = []
        for asked, answer in zip(
            questions, self._requests("$management", [({**always, **more}, None) for more in questions]), strict=True
        ):
            if answer.code != 200 or not isinstance(answer.body, dict):
                what = asked.get("partition", "itself")
                kind = _error_of(answer.code)
                raise kind(f"{self._name} does not answer for {what} ({answer.code}): {answer.description}")
            answers.append({str(key): value for key, value in answer.body.items()})
        return answers

    def _requests(self, node: str, questions: Sequence[tuple[dict[str, Any], Any]]) -> list[_Answer]:
        """Send several requests to a request-response node at once, each (application properties, body)."""
        sender, receiver = self._request_links(node)
        numbers = [f"{node}-{next(self._numbers)}" for _ in questions]
        waiting = [
            encode_message(
                Message(
                    properties=Properties(message_id=number, reply_to=receiver.name),
                    application_properties=properties,
                    body_kind="value",
                    body=body,
                )
            )
            for number, (properties, body) in zip(numbers, questions, strict=True)
        ]
        answers: dict[str, _Answer] = {}
        while len(answers) < len(questions):
            taken = len(sender.send_deliveries(waiting, settled=False)) if waiting and sender.sendable else 0
            del waiting[:taken]
            self._wait(
                lambda: (
                    bool(self._inbox[receiver])
                    or bool(waiting and sender.sendable)
                    or sender in self._refused
                    or receiver in self._refused
                ),
                f"an answer of {node}",
            )
            for link in (sender, receiver):
                if link in self._refused:
                    raise self._why_refused(link)
            for transfer in self._inbox[receiver]:
                number, answer = _answer(transfer.payload)
                answers[number] = answer
            self._inbox[receiver].clear()
        return [answers[number] for number in numbers]

    def _request_links(self, node: str) -> tuple[Link, Link]:
        links = self._replies.get(node)
        if links is None:
            name = f"tidegate-{node[1:]}-{next(self._numbers)}"
            sender = self._session.attach_sender(f"{name}-out", node)
            receiver = self._session.attach_receiver(name, node, target=name, credit=10, snd_settle_mode=SEND_SETTLED)
            self._inbox[receiver] = []
            self._attach(sender)
            self._attach(receiver)
            links = self._replies[node] = (sender, receiver)
        return links

    def _attach(self, link: Link) -> None:
        self._wait(lambda: link in self._attached or link in self._refused, "a link")
        if link not in self._refused:
            # A refusal is an attach with a null terminus, followed at once by a detach.
            terminus = link.source if link.role == "receiver" else link.target
            if terminus is None:
                self._wait(lambda: link in self._refused, "a reason")
        if link in self._refused:
            raise self._why_refused(link)

    # -- the socket --------------------------------------------------------------------------------------------------

    def _connect(self) -> socket.socket:
        try:
            plain = outbound.connect(self._to.host, self._to.port, _ANSWER_WITHIN_S, is_amqp=True)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._to.tls:
                return plain
            return ssl.create_default_context().wrap_socket(plain, server_hostname=self._to.host)
        except UnicodeError:  # a label of the name is too long, or empty
            raise ClientError(
                f"cannot reach {self._name}: {self._to.host[:80]!r} cannot be the name of a host"
            ) from None
        except outbound.AddressRefused as error:
            raise ClientError(f"cannot reach {self._name}: {error}") from None
        except OSError as error:
            hint = "" if self._to.tls else "; is the hub up (tidegate up)?"
            raise ConnectionLostError(f"cannot reach {self._name}: {error.strerror or error}{hint}") from error

    def _wait(self, until: Callable[[], bool], for_what: str) -> None:
        """Exchange bytes with the hub until a condition holds."""
        self._flush()
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        while not until():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                self.close()
                raise ConnectionLostError(f"{self._name} gave no {for_what} within {_ANSWER_WITHIN_S:g} s")
            try:
                self._socket.settimeout(left_s)
                data = self._socket.recv(_RECEIVE_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                self.close()
                raise ConnectionLostError(f"{self._name} broke the connection: {error.strerror or error}") from error
            for event in self._amqp.receive_data(data) if data else self._amqp.receive_eof():
                self._take(event)
            self._flush()

    def still_open(self) -> bool:
        """Take in what the hub has sent meanwhile, without waiting, and return whether the connection can be used.

        A broker closes a connection that has been idle for long, which only a read notices.
        """
        try:
            self._socket.settimeout(0)
            while not self.closed:
                data = self._socket.recv(_RECEIVE_BYTES)
                for event in self._amqp.receive_data(data) if data else self._amqp.receive_eof():
                    self._take(event)
            return False
        except (BlockingIOError, ssl.SSLWantReadError):
            self._socket.settimeout(_ANSWER_WITHIN_S)
            return True
        except (OSError, ConnectionLostError):
            self.close()
            return False

    def _flush(self) -> None:
        if self.closed:
            raise ConnectionLostError(f"the connection to {self._name} is closed")
        self._amqp.tick(time.monotonic_ns() // 1_000_000)
        data = self._amqp.data_to_send()
        if data:
            try:
                self._socket.sendall(data)
            except OSError as error:
                self.close()
                raise ConnectionLostError(f"{self._name} broke the connection: {error.strerror or error}") from error

    def _take(self, event: Event) -> None:
        match event:
            case LinkAttached(link=link):
                self._attached.add(link)
            case Transfer(link=link):
                self._inbox.setdefault(link, []).append(event)
            case TransferTooLarge(link=link):
                self._refused[link] = f"{self._name} sent an event larger than this client takes"
            case Disposition(link=link, state=Rejected(error=error)):
                self._refuse(link, error, "rejected a request")
            case Detached(link=link, error=error):
                self._refuse(link, error, "closed a link")
            case Ended(error=error) | Closed(error=error):
                self.close()
                raise ConnectionLostError(self._reason(error, "closed the connection"))
            case _:
                pass

    def _refuse(self, link: Link, error: Any, otherwise: str) -> None:
        self._refused[link] = self._reason(error, otherwise)
        if error is not None and str(error.condition) in _PASSING_FOR_READERS:
            self._passing.add(link)

    def _why_refused(self, link: Link) -> ClientError:
        return (BusyError if link in self._passing else ClientError)(self._refused[link])

    def _reason(self, error: Any, otherwise: str) -> str:
        if error is None:
            return f"{self._name} {otherwise}"
        return f"{self._name}: {error.description or otherwise} ({error.condition})"

    @property
    def _name(self) -> str:
        return f"event hub {self._to.entity_path} at {self._to.host}:{self._to.port}"

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if not self.closed:
            self.closed = True
            self._amqp.close()
            try:
                self._socket.settimeout(1.0)
                self._socket.sendall(self._amqp.data_to_send())
            except OSError:
                pass  # The hub closed first, which is fine when closing.
            self._socket.close()
