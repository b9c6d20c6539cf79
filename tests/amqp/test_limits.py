"""Hostile bytes, each in a process with little memory and time: whatever a peer sends costs in proportion."""

import pickle
import struct
import subprocess
import sys
from typing import Any

import pytest

from tests.amqp.pair import attach, raw, transfer
from tests.patience import PATIENCE_S
from tidegate.amqp import Source, Symbol, Target
from tidegate.amqp.framing.performatives import Attach, Begin

MEMORY_BYTES = 400 << 20
"""Address space of the process; the interpreter and this package need a tenth of it."""

RUN = """
import pickle, resource, sys
from tidegate.amqp import AttachReceived, DecodeError, decode, parse_message, split_batch
from tests.amqp.pair import open_server

resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
inputs = pickle.load(sys.stdin.buffer)


def quietly(read, data):
    try:
        result = read(data)
        return result if isinstance(result, str) else "read"
    except DecodeError:
        return "refused"


def converse(data, answer):
    server = open_server()
    for start in range(0, len(data), 65_536):
        for event in server.receive_data(data[start : start + 65_536]):
            if isinstance(event, AttachReceived):
                answer(event.link)
        server.data_to_send()
    return "closed" if server.closed else "open"


def refusing(data):  # as the hub does with a peer that has no token; this one never answers
    return converse(data, lambda link: link.refuse("amqp:unauthorized-access", "no token"))


def accepting(data):
    return converse(data, lambda link: link.accept(credit=100, max_message_size=1_000_000))


for data in inputs:
    print(quietly({read}, data), flush=True)
"""


def outcomes(read: str, *inputs: bytes) -> list[str]:
    """What becomes of each input; a process that dies or takes too long fails the test."""
    result = subprocess.run(
        [sys.executable, "-c", RUN.format(memory=MEMORY_BYTES, read=read)],
        input=pickle.dumps(inputs),
        capture_output=True,
        timeout=PATIENCE_S,
    )
    found = result.stdout.decode().split()
    assert result.returncode == 0, f"died of input {len(found)}: {result.stderr.decode()[-2000:]}"
    return found


def list32(count: int, body: bytes) -> bytes:
    return b"\xd0" + struct.pack(">II", 4 + len(body), count) + body


def array32(count: int, body: bytes) -> bytes:
    return b"\xf0" + struct.pack(">II", 4 + len(body), count) + body


def value_section(body: bytes) -> bytes:
    return b"\x00\x53\x77" + body


MEGABYTE = 1_000_000
HOSTILE = {
    "lists nested half a million deep": b"\xd0\x00\x0f\x42\x40\x00\x00\x00\x01" * 55_000,
    "small lists nested": b"\xc0\xff\x01" * 300_000,
    "maps nested in keys": b"\xc1\xff\x02" * 300_000,
    "arrays nested": b"\xe0\xff\x01" * 300_000,
    "descriptions nested": b"\x00" * MEGABYTE,
    "a description of a description as descriptor": (b"\x00\x00\x53\x01") * 250_000,
    "a list of 2^32 - 1 items": b"\xd0\x00\x00\x00\x0a\xff\xff\xff\xff" + b"\x40" * 6,
    "a map of 2^32 - 2 entries": b"\xd1\x00\x00\x00\x0a\xff\xff\xff\xfe" + b"\x40" * 6,
    "an array of 2^32 - 1 nulls": array32(0xFFFFFFFF, b"\x40"),
    "an array of 2^32 - 1 empty lists": array32(0xFFFFFFFF, b"\x45"),
    "an array of 2^32 - 1 described nulls": array32(0xFFFFFFFF, b"\x00\x53\x01\x40"),
    "a hundred thousand arrays of 4,096 nulls": list32(99_000, array32(4096, b"\x40") * 99_000),
    "two hundred thousand arrays of 255 nulls": list32(200_000, b"\xe0\x02\xff\x41" * 200_000),
    "a binary of 2^32 - 1 bytes": b"\xb0\xff\xff\xff\xff" + b"x" * 100,
    "a string of 2^32 - 1 bytes": b"\xb1\xff\xff\xff\xff" + b"x" * 100,
    "a million empty lists": list32(MEGABYTE, b"\x45" * MEGABYTE),
    "a million nulls": list32(MEGABYTE, b"\x40" * MEGABYTE),
}
SOUND = {"a million empty lists", "a million nulls"}


@pytest.mark.slow
@pytest.mark.parametrize("read", ["decode", "parse_message", "split_batch"])
def test_a_hostile_value_costs_no_more_than_its_bytes(read: str) -> None:
    inputs = [value if read == "decode" else value_section(value) for value in HOSTILE.values()]
    expected = {name: "read" if name in SOUND and read != "split_batch" else "refused" for name in HOSTILE}
    assert dict(zip(HOSTILE, outcomes(read, *inputs), strict=True)) == expected


def test_a_hostile_value_in_a_frame_ends_at_most_its_connection() -> None:
    bodies = [b"\x00\x53\x12" + value for value in HOSTILE.values()]
    frames = [struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body for body in bodies]
    assert outcomes("refusing", *frames) == ["closed"] * len(frames)


@pytest.mark.slow
def test_refused_links_with_large_descriptions_are_not_kept() -> None:
    """Each attach is as large as a performative may be, of the values that need most memory once decoded.

    Together they would need 480 MB.
    """
    placeholder = b"x" * 15_004
    filler = list32(15_000, b"\x45" * 15_000)
    frames = []
    for number in range(500):
        channel, handle = divmod(number, 250)
        if not handle and channel:
            frames.append(raw(Begin(None, 0, 4096, 4096), channel=channel))
        properties = {Symbol("p"): placeholder}
        ends: dict[str, Any] = {"source": Source("a"), "target": Target("a"), "initial_delivery_count": 0}
        frame = raw(Attach(str(number), handle, False, properties=properties, **ends), channel=channel)
        frames.append(frame.replace(b"\xb0" + struct.pack(">I", len(placeholder)) + placeholder, filler))
    assert outcomes("refusing", b"".join(frames)) == ["open"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 2])
def test_a_delivery_of_tiny_frames_costs_no_more_than_its_bytes(size: int) -> None:
    frame = transfer(0, b"x" * size, more=True)
    assert outcomes("accepting", attach() + frame * 200_000) == ["open"]
