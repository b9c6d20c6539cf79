"""`tidegate send`: publish what comes in on standard input, or is in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from tidegate.client import ConnectionString, Publisher

_READ_BYTES = 1 << 18


@click.command()
@click.argument("connection_string", envvar="TIDEGATE_CONNECTION_STRING")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--hub", metavar="NAME", help="The event hub, where the connection string has no EntityPath.")
@click.option("--partition", metavar="ID", help="Send to this partition; without it the hub chooses.")
@click.option("--key", metavar="TEXT", help="The partition key of every event.")
@click.option("--key-field", metavar="FIELD", help="Take each event's partition key from this field of its JSON.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="lines: each line is an event; json: each value is one, an array's elements one each.",
)
def send(
    connection_string: str,
    file: BinaryIO,
    hub: str | None,
    partition: str | None,
    key: str | None,
    key_field: str | None,
    form: str,
) -> None:
    """Publish lines, or JSON values, to an event hub.

    CONNECTION_STRING can also be set in the environment as TIDEGATE_CONNECTION_STRING. FILE is - (standard input)
    unless given. An event is counted when the hub has acknowledged it.

    \b
    Example:
      echo '{"booth": "north", "speed": 61.5}' | tidegate send "$CONNECTION_STRING" --hub tolls --key-field booth
      tidegate send "$CONNECTION_STRING;EntityPath=tolls" cars.json --format json
    """
    if sum(given is not None for given in (partition, key, key_field)) > 1:
        raise click.UsageError("--partition, --key and --key-field exclude each other: each says where events go")
    events = _lines(file) if form == "lines" else _values(file)
    sent = 0
    publisher = Publisher(ConnectionString.parse(connection_string, hub))
    try:
        for bodies in events:
            for of_key, same in _by_key(bodies, key, key_field).items():
                publisher.publish(same, partition=partition, key=of_key)
                sent += len(same)
    finally:
        publisher.close()
        click.echo(f"{sent:,} event{'' if sent == 1 else 's'} sent", err=True)


def _lines(file: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a file, as many at a time as there are: what comes through a pipe must not wait for more."""
    read = getattr(file, "read1", file.read)
    rest = b""
    while chunk := read(_READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        yield [line for line in (line.rstrip(b"\r") for line in lines) if line]
    if rest:
        yield [rest]


def _values(file: BinaryIO) -> Iterator[list[bytes]]:
    """The JSON values of a file, one after the other; the elements of an array count one by one."""
    source = getattr(file, "name", "<stdin>")
    try:
        text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{source} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    decoder = json.JSONDecoder()
    found: list[bytes] = []
    position = 0
    while position < len(text):
        if text[position] in " \t\r\n,":
            position += 1
            continue
        try:
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}, column {error.colno}"
            raise click.ClickException(f"{source} is not JSON at {place}: {error.msg}") from error
        for element in value if isinstance(value, list) else [value]:
            found.append(json.dumps(element, ensure_ascii=False, separators=(",", ":")).encode())
    yield found


def _by_key(bodies: list[bytes], key: str | None, field: str | None) -> dict[str | None, list[bytes]]:
    """The events by partition key, each key's in their order: the order that a hub keeps."""
    if field is None:
        return {key: bodies}
    by_key: dict[str | None, list[bytes]] = {}
    for body in bodies:
        by_key.setdefault(_key(body, field), []).append(body)
    return by_key


def _key(body: bytes, field: str) -> str:
    try:
        event: Any = json.loads(body)
    except ValueError:
        event = None
    if not isinstance(event, dict) or event.get(field) is None:
        shown = body[:60].decode("utf-8", errors="replace")
        raise click.ClickException(f"--key-field {field}: this event has no such field: {shown}")
    value = event[field]
    return value if isinstance(value, str) else json.dumps(value)
