"""What goes out, field by field: Microsoft's clients read performatives by position."""

from __future__ import annotations

from typing import Any

import pytest
from azure.eventhub._pyamqp import performatives as microsoft
from azure.eventhub._pyamqp._decode import decode_frame
from azure.eventhub._pyamqp.endpoints import Source as MicrosoftSource
from azure.eventhub._pyamqp.endpoints import Target as MicrosoftTarget
from azure.eventhub._pyamqp.outcomes import Modified as MicrosoftModified
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.pair import Pair, attach, credit, open_server
from tests.amqp.test_link import attached
from tests.amqp.values import names, text, unsigned, values
from tidegate.amqp import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    AttachReceived,
    Connection,
    Described,
    Modified,
    Rejected,
    Source,
    Symbol,
    Target,
    Ulong,
)
from tidegate.amqp.encoding.codec import decode
from tidegate.amqp.encoding.composites import decode_composite, encode_composite
from tidegate.amqp.framing.performatives import (
    PERFORMATIVES,
    SASL_FRAMES,
    Attach,
    Begin,
    Close,
    Detach,
    DispositionFrame,
    End,
    Flow,
    Open,
    Received,
    SaslInitFrame,
    SaslMechanisms,
    SaslOutcome,
    TransferFrame,
)

MICROSOFTS = {
    Open: microsoft.OpenFrame,
    Begin: microsoft.BeginFrame,
    Attach: microsoft.AttachFrame,
    Flow: microsoft.FlowFrame,
    TransferFrame: microsoft.TransferFrame,
    DispositionFrame: microsoft.DispositionFrame,
    Detach: microsoft.DetachFrame,
    End: microsoft.EndFrame,
    Close: microsoft.CloseFrame,
    SaslMechanisms: microsoft.SASLMechanism,
    SaslInitFrame: microsoft.SASLInit,
    SaslOutcome: microsoft.SASLOutcome,
    Source: MicrosoftSource,
    Target: MicrosoftTarget,
    Modified: MicrosoftModified,
}
SHORTEST = [
    Open("c"),
    Begin(None, 0, 1, 1),
    Attach("n", 0, False),
    Flow(None, 1, 0, 1),
    TransferFrame(0),
    DispositionFrame(True, 0),
    Detach(0),
    End(),
    Close(),
    SaslMechanisms(("ANONYMOUS",)),
    SaslInitFrame("ANONYMOUS"),
    SaslOutcome(0),
    Source(),
    Target(),
    Modified(),
]


def fields_sent(composite: Any) -> list[Any]:
    value, _ = decode(encode_composite(composite))
    assert isinstance(value.value, list)
    return value.value


@pytest.mark.parametrize("composite", SHORTEST, ids=lambda composite: type(composite).__name__)
def test_all_fields_go_out_however_few_are_set(composite: Any) -> None:
    theirs = MICROSOFTS[type(composite)]
    definition = [field for field in theirs._definition if field is not None]
    encoded = encode_composite(composite)
    assert encoded[:3] == bytes((0x00, 0x53, theirs._code))
    assert encoded[3] in (0xC0, 0xD0)
    assert len(fields_sent(composite)) == len(definition)


def test_an_error_always_has_its_three_elements() -> None:
    """With two, in a rejected outcome, Python's client hangs for ever."""
    assert fields_sent(AmqpError("amqp:not-found")) == ["amqp:not-found", None, None]
    (error,) = fields_sent(Rejected("com.microsoft:server-busy", "later"))
    assert error == Described(Ulong(0x1D), ["com.microsoft:server-busy", "later", None])
    assert len(fields_sent(Rejected())[0].value) == 3
    assert len(fields_sent(Close(AmqpError("x")))[0].value) == 3


strings = st.none() | text
capabilities = st.none() | st.lists(names.map(Symbol), min_size=1, max_size=3).map(tuple)
uints = unsigned(32)
properties = st.none() | st.dictionaries(names.map(Symbol), values, max_size=3)
errors = st.none() | st.builds(AmqpError, names, strings, properties)
states = st.one_of(
    st.none(),
    st.sampled_from([ACCEPTED, RELEASED]),
    st.builds(Rejected, names, strings, properties),
    st.builds(Modified, st.booleans(), st.booleans(), properties),
    st.builds(Received, uints, unsigned(64)),
    st.just(Described(Ulong(0x34), [b"transaction"])),
)
sources = st.none() | st.builds(
    Source, values, uints, st.none() | names, uints, st.booleans(), properties, st.none() | names, properties, states,
    capabilities, capabilities,
)  # fmt: skip
targets = st.one_of(
    st.none(),
    st.builds(Target, values, uints, st.none() | names, uints, st.booleans(), properties, capabilities),
    st.just(Described(Ulong(0x30), [])),
)
flags = st.booleans()
tags = st.none() | st.binary(max_size=32)
composites = st.one_of(
    st.builds(Open, text, strings, uints, unsigned(16), st.none() | uints, capabilities, capabilities, capabilities,
              capabilities, properties),
    st.builds(Begin, st.none() | unsigned(16), uints, uints, uints, uints, capabilities, capabilities, properties),
    st.builds(Attach, text, uints, flags, unsigned(8), unsigned(8), sources, targets, properties, flags,
              st.none() | uints, st.none() | unsigned(64), capabilities, capabilities, properties),
    st.builds(Flow, st.none() | uints, uints, uints, uints, st.none() | uints, st.none() | uints, st.none() | uints,
              st.none() | uints, flags, flags, properties),
    st.builds(TransferFrame, uints, st.none() | uints, tags, st.none() | uints, st.none() | flags, flags,
              st.none() | unsigned(8), states, flags, flags, flags),
    st.builds(DispositionFrame, flags, uints, st.none() | uints, flags, states, flags),
    st.builds(Detach, uints, flags, errors),
    st.builds(End, errors),
    st.builds(Close, errors),
    st.builds(SaslMechanisms, st.lists(names.map(Symbol), min_size=1, max_size=3).map(tuple)),
    st.builds(SaslInitFrame, names, tags, strings),
    st.builds(SaslOutcome, unsigned(8), tags),
)  # fmt: skip


@given(composites)
def test_what_is_sent_is_read_as_it_was(composite: Any) -> None:
    value, _ = decode(encode_composite(composite))
    assert decode_composite(value, *PERFORMATIVES, *SASL_FRAMES) == composite


@given(composites)
def test_trailing_nulls_may_be_missing_and_the_descriptor_a_symbol(composite: Any) -> None:
    value, _ = decode(encode_composite(composite))
    fields = list(value.value)
    while len(fields) > 1 and fields[-1] is None:
        fields.pop()
    name = type(composite).__name__.removesuffix("Frame").replace("Sasl", "sasl-").lower()
    shorter = Described(Symbol(f"amqp:{name}:list"), fields)
    assert decode_composite(shorter, *PERFORMATIVES, *SASL_FRAMES) == composite


def test_one_symbol_stands_for_a_list_of_one() -> None:
    value = Described(Ulong(0x40), [Symbol("ANONYMOUS")])
    assert decode_composite(value, SaslMechanisms) == SaslMechanisms((Symbol("ANONYMOUS"),))


def by_microsoft(data: bytes) -> list[tuple[int, list[Any]]]:
    """The frames in bytes we send, as the Python client reads them."""
    found = []
    position = 0
    while position < len(data):
        if data.startswith(b"AMQP", position):
            position += 8
            continue
        size = int.from_bytes(data[position : position + 4], "big")
        found.append(decode_frame(memoryview(data)[position + 8 : position + size]))
        position += size
    return found


def test_the_python_client_reads_every_frame_of_a_conversation() -> None:
    lengths = {0x10: 10, 0x11: 8, 0x12: 14, 0x13: 11, 0x14: 12, 0x15: 6, 0x16: 3, 0x17: 1, 0x18: 1, 0x40: 1, 0x44: 2}
    seen: set[int] = set()

    def check(connection: Connection) -> None:
        for code, fields in by_microsoft(connection.data_to_send()):
            seen.add(code)
            assert len(fields) == lengths[code], hex(code)

    server = Connection("server", "server")
    pair = Pair(server=server)
    pair.client.open()
    server.receive_data(pair.client.data_to_send())
    pair.client.receive_data(server.data_to_send())
    server.receive_data(pair.client.data_to_send())
    server.sasl_outcome(True)
    check(server)
    assert 0x44 in seen

    server = open_server()
    publisher = attached(server, granted=10)
    publisher.flow(5)
    publisher.settle(0, 0, Rejected("com.microsoft:server-busy", "later"))
    publisher.settle(1, 1, ACCEPTED)
    check(server)
    (event,) = server.receive_data(attach(1, name="reader", sender=False))
    assert isinstance(event, AttachReceived)
    event.link.accept(properties={"com.microsoft:producer-id": 5})
    server.receive_data(credit(10, handle=1))
    event.link.send_deliveries([b"\x00\x53\x75\xa0\x01x"])
    check(server)
    publisher.detach("amqp:link:stolen", "gone")
    server.sessions[0].end()
    server.close("amqp:connection:forced", "bye")
    check(server)
    assert seen >= {0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18}


def test_the_python_client_finds_a_deliverys_fields_and_payload() -> None:
    server = open_server()
    reader = attached(server, sender=False)
    server.receive_data(credit(10))
    reader.send_deliveries([b"\x00\x53\x75\xa0\x01x"], message_format=7)
    ((code, fields),) = by_microsoft(server.data_to_send())
    assert code == 0x14
    assert fields[:6] == [0, 0, b"\0", 7, True, False]
    assert bytes(fields[11]) == b"\x00\x53\x75\xa0\x01x"
