"""Request and reply over a pair of links: `$cbs` (put-token) and `$management` (READ).

AMQP Claims-based Security, working draft: https://docs.oasis-open.org/amqp/amqp-cbs/v1.0/amqp-cbs-v1.0.html
AMQP Management, working draft: https://docs.oasis-open.org/amqp/amqp-man/v1.0/amqp-man-v1.0.html
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.amqp import (
    ACCEPTED,
    Array,
    Credit,
    DecodeError,
    Int,
    Link,
    Message,
    Properties,
    Rejected,
    Source,
    Symbol,
    Timestamp,
    Transfers,
    encode_message,
    parse_message,
)
from tidegate.amqp.encoding.types import DECODE_ERROR
from tidegate.amqp.endpoints.link import SEND_SETTLED
from tidegate.hub.access import Grant, claimed_rule
from tidegate.hub.access_rules import Right
from tidegate.hub.errors import ArgumentError, HubError, InternalError, ServerBusy, Unauthorized
from tidegate.hub.event_hub import EventHub
from tidegate.hub.namespace import Partition
from tidegate.log import LogError, TopicAddress
from tidegate.server.connections.link_handler import settle_mode

if TYPE_CHECKING:
    from tidegate.server.connections.client_connection import ClientConnection

CBS = "$cbs"
MANAGEMENT = "$management"
REPLIES = "$replies"
"""What the names of nodes begin with that exist for one link."""
SAS_TOKEN = "servicebus.windows.net:sastoken"
SECURITY_TOKEN = "security_token"
"""The application property of a `$management` request that holds its token."""
HUB_TYPE = "com.microsoft:eventhub"
PARTITION_TYPE = "com.microsoft:partition"
CREDIT = 100
MAX_REQUEST_BYTES = 64 << 10
MAX_WAITING_REPLIES = 1000
CONSUMER_GROUP = "tidegate:consumer-group"
"""The application property of a READ that names the consumer group of the job that asks."""
SEARCHES = frozenset(("tidegate:sequence-number", "tidegate:at-time", "tidegate:at-offset", "tidegate:after-offset"))
"""The application properties of a READ for which the log has to be searched."""
MAX_WAITING_REPLY_BYTES = 2 * MAX_REQUEST_BYTES
"""Of one link: a reply repeats the id of its request, which is as large as its client makes it."""


class ReplyLink:
    """Replies wait here until the peer has given credit for them. `address` is the node they are from, or, where the
    peer asked for a node of its own, the name that the hub has given it.
    """

    expires_at_s: float | None = None

    def __init__(self, link: Link, address: str) -> None:
        self.address = address
        self.link = link
        self._replies: deque[bytes] = deque()
        self._waiting_bytes = 0

    @classmethod
    def attach(cls, client: ClientConnection, link: Link, address: str) -> ReplyLink:
        link.accept(snd_settle_mode=settle_mode(link, client.peer_properties))
        return cls(link, address)

    @classmethod
    def attach_dynamic(cls, client: ClientConnection, link: Link, source: Source) -> ReplyLink:
        """For a peer that says in each request where it wants the reply (part 3, section 3.5.3, `dynamic`)."""
        address = f"{REPLIES}/{uuid.uuid4()}"
        source.address = address
        link.accept(snd_settle_mode=settle_mode(link, client.peer_properties))
        return cls(link, address)

    def send(self, reply: bytes) -> None:
        """Send a reply now or with the next credit. The oldest ones make room if the peer gives none."""
        self._replies.append(reply)
        self._waiting_bytes += len(reply)
        self._pump()
        while len(self._replies) > MAX_WAITING_REPLIES or self._waiting_bytes > MAX_WAITING_REPLY_BYTES:
            self._waiting_bytes -= len(self._replies.popleft())

    def on_transfers(self, transfers: Transfers) -> None:
        """The peer only receives on this link."""

    def on_credit(self, credit: Credit) -> None:
        self._pump()
        if credit.drain:
            self.link.drained()

    def on_writable(self) -> None:
        """Replies are small and never held back."""

    def renew(self) -> None:
        """The link needs no token."""

    def check(self) -> None:
        """It leads to the hub itself."""

    def close(self) -> None:
        self._replies.clear()

    def _pump(self) -> None:
        settled = self.link.snd_settle_mode == SEND_SETTLED
        sent = len(self.link.send_deliveries(list(self._replies), settled=settled, remembered=False))
        for _ in range(sent):
            self._waiting_bytes -= len(self._replies.popleft())


class RequestLink:
    """Requests to `$cbs` or `$management`; each is answered on one of the peer's reply links."""

    expires_at_s: float | None = None

    def __init__(self, client: ClientConnection, link: Link, address: str) -> None:
        self._client = client
        self._link = link
        self._address = address
        self._searches: deque[tuple[Message, Mapping[str, Any], EventHub]] = deque()
        self._searching: asyncio.Task[None] | None = None

    @classmethod
    def attach(cls, client: ClientConnection, link: Link, address: str) -> RequestLink:
        link.accept(credit=CREDIT, max_message_size=MAX_REQUEST_BYTES)
        return cls(client, link, address)

    def on_transfers(self, transfers: Transfers) -> None:
        self._client.context.metrics.request(count=len(transfers.payloads))
        for delivery_id, payload in enumerate(transfers.payloads, transfers.first_id):
            self._answer(delivery_id, transfers.settled, payload)

    def _answer(self, delivery_id: int, settled: bool, payload: bytes) -> None:
        try:
            request = parse_message(payload)
        except DecodeError as error:
            if not settled:
                self._link.settle(delivery_id, delivery_id, Rejected(DECODE_ERROR, str(error)))
            return
        if not settled:
            self._link.settle(delivery_id, delivery_id, ACCEPTED)
            self._link.flush_settlements()  # uamqp takes a reply ahead of it for a failure
        arguments = {str(key): value for key, value in (request.application_properties or {}).items()}
        try:
            if self._address == CBS:
                answer = put_token(self._client, arguments, request.body)
            else:
                hub = asked_hub(self._client, arguments)
                if arguments.get("type") == PARTITION_TYPE and _may_wait(hub, arguments):
                    self._search_soon(request, arguments, hub)
                    return
                answer = read(self._client, hub, arguments, {})
        except HubError as error:
            self._refuse(request, arguments, error)
            return
        self._reply(request, _reply(request, *answer))

    def _search_soon(self, request: Message, arguments: Mapping[str, Any], hub: EventHub) -> None:
        if len(self._searches) >= MAX_WAITING_REPLIES:
            raise ServerBusy("too many requests of this link wait for the log; try again later")
        self._searches.append((request, arguments, hub))
        if self._searching is None:
            self._searching = self._client.loop.create_task(self._search())
            self._searching.add_done_callback(lambda done: self._client.guard(lambda: _raise(done)))

    async def _search(self) -> None:
        """Answer the requests for which the log has to be searched, which may wait for it, one after the other."""
        while self._searches:
            request, arguments, hub = self._searches.popleft()
            try:
                found = await asyncio.to_thread(find, hub, arguments)
                answer = read(self._client, hub, arguments, found)
            except HubError as error:
                self._refuse(request, arguments, error)
            else:
                self._reply(request, _reply(request, *answer))
            self._client.flush()
        self._searching = None

    def _refuse(self, request: Message, arguments: Mapping[str, Any], error: HubError) -> None:
        token = request.body if self._address == CBS else arguments.get(SECURITY_TOKEN)
        what = f"{self._address} {_shortened(arguments.get('operation'))!r}{_signer(token)} of"
        self._client.refused(what, _shortened(arguments.get("name")), error)
        self._reply(request, _reply(request, error.http_status, error.description, None, error.condition))

    def on_credit(self, credit: Credit) -> None:
        """Only senders get credit."""

    def on_writable(self) -> None:
        """Nothing is sent on this link."""

    def renew(self) -> None:
        """The link needs no token: tokens are what comes on it."""

    def check(self) -> None:
        """It leads to the hub itself."""

    def close(self) -> None:
        self._searches.clear()
        if self._searching is not None:
            self._searching.cancel()

    def _reply(self, request: Message, reply: bytes) -> None:
        """On the link the request names, else the one this session receives on, else any."""
        everywhere = self._client.reply_links()
        links = [r for r in everywhere if r.address == self._address]
        reply_to = None if request.properties is None else request.properties.reply_to
        named = [r for r in links if reply_to is not None and reply_to in (r.link.name, _target_address(r.link))]
        named += [r for r in everywhere if reply_to == r.address]
        beside = [r for r in links if r.link.session is self._link.session]
        for link in (named or beside or links)[-1:]:
            link.send(reply)


def put_token(client: ClientConnection, arguments: Mapping[str, Any], token: Any) -> tuple[int, str, Any]:
    """Verify and keep a token. Raises HubError."""
    if arguments.get("operation") != "put-token":
        raise ArgumentError("the operation of a $cbs request must be put-token")
    if arguments.get("type") != SAS_TOKEN:
        raise ArgumentError(f"the token must be of type {SAS_TOKEN}")
    audience = arguments.get("name")
    if not isinstance(audience, str) or not isinstance(token, str):
        raise ArgumentError("put-token needs the property `name` and a string as its body")
    client.tokens.put(audience, client.context.namespace.put_token(audience, token, time.time()))
    return 202, "Accepted", None


def asked_hub(client: ClientConnection, arguments: Mapping[str, Any]) -> EventHub:
    """Return the hub whose properties a READ asks for. Raises HubError if the client may not know them."""
    if arguments.get("operation") != "READ":
        raise ArgumentError("the operation of a $management request must be READ")
    name = arguments.get("name")
    if not isinstance(name, str):
        raise ArgumentError("READ needs the property `name`: that of an event hub")
    grants = _grants(client, name, arguments.get(SECURITY_TOKEN))
    return client.context.namespace.open_management(name, grants, time.time())


def read(
    client: ClientConnection, hub: EventHub, arguments: Mapping[str, Any], found: Mapping[str, Any]
) -> tuple[int, str, Mapping[str, Any]]:
    """Properties of a hub or of one of its partitions, with what `find` has found in its log. Raises HubError."""
    if arguments.get("type") == HUB_TYPE:
        properties = hub.properties()
        return (
            200,
            "OK",
            {
                "type": HUB_TYPE,
                "name": properties.name,
                "created_at": Timestamp(properties.created_at_ms),
                "partition_count": Int(len(properties.partition_ids)),
                "partition_ids": Array.of(str, properties.partition_ids),
                "georeplication_factor": Int(1),
            },
        )
    if arguments.get("type") == PARTITION_TYPE:
        partition = hub.partition(str(arguments.get("partition")))
        group = arguments.get(CONSUMER_GROUP)
        if isinstance(group, str):
            hub.consumer_group(group)
        _note_job(client, hub, partition, arguments)
        # The lower bound first: it then holds for every event after the last one reported.
        is_awaited = arguments.get("tidegate:awaits-lower-bound") is True
        lower_bound_ms = partition.log.arrival_lower_bound(is_awaited=is_awaited).lower_bound_ms
        state = partition.properties()
        return (
            200,
            "OK",
            {
                **found,
                "type": PARTITION_TYPE,
                "name": state.name,
                "partition": state.partition_id,
                "begin_sequence_number": state.begin_sequence_number,
                "last_enqueued_sequence_number": state.last_enqueued_sequence_number,
                "last_enqueued_sequence_number_epoch": Int(0),  # of geo-replication; the client for Rust requires it
                "last_enqueued_offset": state.last_enqueued_offset,
                "last_enqueued_time_utc": Timestamp(state.last_enqueued_time_ms),
                "is_partition_empty": state.is_empty,
                "tidegate:arrival-lower-bound": Timestamp(lower_bound_ms),
                "tidegate:log-identity": partition.log.log_id,
                **_jobs(client, hub, partition, arguments),
                **_kafka_groups(client, hub, partition, arguments),
                **_log_location(client, hub, partition, arguments),
            },
        )
    raise ArgumentError(f"READ knows the types {HUB_TYPE} and {PARTITION_TYPE}")


def _may_wait(hub: EventHub, arguments: Mapping[str, Any]) -> bool:
    """Return whether `find` may wait: to search the log, or for a cluster to say where it ends. Raises HubError."""
    return not SEARCHES.isdisjoint(arguments) or hub.partition(str(arguments.get("partition"))).log.topic is not None


def find(hub: EventHub, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a READ wants to know that only the log says, once that has caught up. May wait for it.

    Raises NotFound, ArgumentOutOfRange, ServerBusy, InternalError.
    """
    partition = hub.partition(str(arguments.get("partition")))
    try:
        partition.log.catch_up()
    except LogError as error:
        raise ServerBusy(f"where the partition ends cannot be looked up now; try again: {error}") from error
    try:
        return {
            **_enqueued_time(partition, arguments.get("tidegate:sequence-number")),
            **_position(partition, arguments),
        }
    except LogError as error:
        raise InternalError(f"the log cannot be searched: {error}") from error


def _grants(client: ClientConnection, name: str, token: Any) -> Sequence[Grant]:
    """Return the grants that decide about a READ: that of its own token if it has one, else the connection's.

    Microsoft's clients put a token into every request, and Java's puts none on `$cbs` for it. A request's token is
    checked like one that is put for the hub, counts for that request only, and is never made good by the connection's.
    Raises HubError.
    """
    if token is None:
        return client.tokens.grants
    if not isinstance(token, str):
        raise ArgumentError(f"the property `{SECURITY_TOKEN}` of a READ must be a string")
    return [client.context.namespace.put_token(name, token, time.time())]


def _note_job(client: ClientConnection, hub: EventHub, partition: Partition, arguments: Mapping[str, Any]) -> None:
    """Note what a job says of its reading, which no link shows: its name, its position, and how much it has read.

    Raises Unauthorized for a client that could not have read that.
    """
    name, group = arguments.get("tidegate:job"), arguments.get(CONSUMER_GROUP)
    position, count = arguments.get("tidegate:position"), arguments.get("tidegate:read-events")
    if not (isinstance(name, str) and isinstance(group, str) and isinstance(position, int) and isinstance(count, int)):
        return
    if group.lower() not in {known.lower() for known in hub.consumer_groups}:
        return
    path = (hub.name.lower(), "consumergroups", group.lower(), "partitions", partition.partition_id)
    grants = _grants(client, hub.name, arguments.get(SECURITY_TOKEN))
    client.context.namespace.access.authorize(grants, Right.LISTEN, path, time.time())
    partition.reader_slots(group).note_job(_shortened(name), min(max(position, 0), partition.log.next_sequence_number))
    if count > 0:
        client.context.metrics.delivered_events += count
        client.context.metrics.deliveries.count(hub.name, count)


def _jobs(
    client: ClientConnection, hub: EventHub, partition: Partition, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the jobs that read the partition's segments, where they are asked for. Raises Unauthorized."""
    if not arguments.get("tidegate:with-jobs"):
        return {}
    _check_may_listen(client, hub, partition, arguments)
    found = [
        {"name": job.name, "consumer-group": group, "position": job.next_sequence_number}
        for group in hub.consumer_groups
        for job in partition.reader_slots(group).jobs
    ]
    return {"tidegate:jobs": found}


def _kafka_groups(
    client: ClientConnection, hub: EventHub, partition: Partition, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what groups of Kafka's clients have committed, where it is asked for. Raises Unauthorized."""
    if not arguments.get("tidegate:with-kafka-groups"):
        return {}
    _check_may_listen(client, hub, partition, arguments)
    known = client.context.namespace.group_offsets.in_hub(hub.definition.directory)
    number = int(partition.partition_id)
    found = [
        {
            "name": group,
            "position": positions[number].offset,
            "committed-at": Timestamp(positions[number].committed_at_ms),
        }
        for group, positions in known.items()
        if number in positions
    ]
    return {"tidegate:kafka-groups": found}


def _log_location(
    client: ClientConnection, hub: EventHub, partition: Partition, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Where a reader finds the log itself; others than those who may read the events are not told."""
    directory, topic = partition.log.directory, partition.log.topic
    if directory is None and topic is None:
        return {}
    if not _may_listen(client, hub, partition, arguments):
        return {}
    return {**_segments(client, directory), **_topic(topic)}


def _may_listen(client: ClientConnection, hub: EventHub, partition: Partition, arguments: Mapping[str, Any]) -> bool:
    grants = _grants(client, hub.name, arguments.get(SECURITY_TOKEN))
    return client.context.namespace.access.may_listen(grants, hub.name, partition.partition_id, time.time())


def _check_may_listen(
    client: ClientConnection, hub: EventHub, partition: Partition, arguments: Mapping[str, Any]
) -> None:
    if not _may_listen(client, hub, partition, arguments):
        raise Unauthorized(f"who reads {hub.name} is shown to those who may read it: a token with the right Listen")


def _segments(client: ClientConnection, directory: Path | None) -> dict[str, Any]:
    """Where a reader on this machine finds the segments, if anywhere; left out on a disk that takes no writes."""
    if directory is None:
        return {}
    try:
        log_id = client.context.log_identities.of(directory)
    except OSError:  # readers then ask for deliveries
        return {}
    return {"tidegate:log-directory": str(directory), "tidegate:log-id": log_id}


def _topic(address: TopicAddress | None) -> dict[str, Any]:
    """Where a reader finds the records of a partition that gateways serve."""
    if address is None:
        return {}
    place = {"brokers": address.bootstrap, "name": address.topic, "id": address.topic_id, "is-open": address.is_open}
    return {"tidegate:topic": place}


def _enqueued_time(partition: Partition, sequence_number: Any) -> dict[str, Any]:
    """When the first event at or after a sequence number arrived, which shows how far a reader is behind."""
    if not isinstance(sequence_number, int) or not 0 <= sequence_number < partition.log.next_sequence_number:
        return {}
    try:
        batches = partition.log.read_batches(sequence_number, max_bytes=1, max_events=1)
    except LogError:  # damaged there: the other properties are true all the same
        return {}
    return {"tidegate:enqueued-time": Timestamp(batches[0].enqueued_time_ms)} if batches else {}


def _position(partition: Partition, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Where a job begins to read, without a link, which would take one of the few places of a group's readers.

    Raises LogError.
    """
    if not isinstance(arguments.get(CONSUMER_GROUP), str):
        return {}
    for name, find in (
        ("tidegate:at-time", partial(partition.log.sequence_at_time, inclusive=True)),
        ("tidegate:at-offset", partial(partition.log.sequence_after_offset, inclusive=True)),
        ("tidegate:after-offset", partial(partition.log.sequence_after_offset, inclusive=False)),
    ):
        value = arguments.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return {"tidegate:found-sequence-number": find(value)}
    return {}


def _raise(task: asyncio.Task[None]) -> None:
    """Raise what ended a task, unless it was cancelled."""
    if not task.cancelled():
        task.result()


def _reply(request: Message, status: int, description: str, body: Any, condition: str | None = None) -> bytes:
    """Both spellings of the status: Microsoft's Python client reads `status-code` but `statusDescription`.

    Of the condition only the one that its JavaScript client reads too: given `error-condition`, the Python client drops
    status and description, and its user learns nothing.
    """
    properties: dict[str, Any] = {
        "status-code": Int(status),
        "statusCode": Int(status),
        "status-description": description,
        "statusDescription": description,
    }
    if condition is not None:
        properties["errorCondition"] = Symbol(condition)  # .NET's reads it as a symbol or not at all
    asked = request.properties or Properties()
    correlation_id = asked.message_id if asked.correlation_id is None else asked.correlation_id
    return encode_message(
        Message(
            properties=Properties(correlation_id=correlation_id),
            application_properties=properties,
            body_kind="value",
            body=body,
        )
    )


def _signer(token: Any) -> str:
    rule = claimed_rule(token)
    return f" by {rule!r}" if rule else ""


def _shortened(value: Any) -> str:
    """What a client wrote, fit for the log."""
    return str(value)[:256]


def _target_address(link: Link) -> Any:
    return None if link.target is None else link.target.address
