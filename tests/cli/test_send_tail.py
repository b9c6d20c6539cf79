"""`tidegate send` and `tidegate tail` against a hub of this process: what goes in comes out."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import main
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer


@pytest.fixture
def connection_string(tmp_path: Path) -> Iterator[str]:
    config = NamespaceConfig(name="tests", event_hubs=(EventHubConfig(name="cars", partition_count=4),))
    with BackgroundServer(config, tmp_path / "data") as server:
        yield server.connection_string


def run(*arguments: str, given: str | bytes = "") -> Result:
    return CliRunner().invoke(main, arguments, input=given)


def events(connection_string: str, *options: str) -> list[dict[str, object]]:
    result = run("tail", connection_string, "--hub", "cars", "--from-beginning", "--no-wait", "-o", "json", *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_each_line_is_an_event_and_a_key_keeps_them_in_order(connection_string: str) -> None:
    lines = [f"line {number}" for number in range(2_500)]
    result = run("send", connection_string, "--hub", "cars", "--key", "north", given="\n".join(lines))
    assert (result.exit_code, result.stderr) == (0, "2,500 events sent\n")
    found = events(connection_string)
    assert [event["body"] for event in found] == lines
    assert {event["partitionKey"] for event in found} == {"north"}
    assert len({event["partition"] for event in found}) == 1
    assert [event["sequenceNumber"] for event in found] == list(range(2_500))


def test_the_key_may_be_a_field_of_the_event(connection_string: str) -> None:
    cars = [{"booth": booth, "number": number} for number in range(50) for booth in ("north", "south", "west")]
    run("send", connection_string, "--hub", "cars", "--key-field", "booth", "--format", "json", given=json.dumps(cars))
    found = events(connection_string)
    bodies = [json.loads(str(event["body"])) for event in found]
    assert sorted(map(json.dumps, bodies)) == sorted(map(json.dumps, cars))
    for booth in ("north", "south", "west"):
        assert [body["number"] for body in bodies if body["booth"] == booth] == list(range(50))
    assert all(event["partitionKey"] == body["booth"] for event, body in zip(found, bodies, strict=True))


def test_a_partition_can_be_named_and_read_alone(connection_string: str) -> None:
    assert run("send", connection_string, "--hub", "cars", "--partition", "3", given="one").stderr == "1 event sent\n"
    run("send", connection_string, "--hub", "cars", "--partition", "2", given="a\nb\n\nc\r\n")
    assert [event["body"] for event in events(connection_string, "--partition", "2")] == ["a", "b", "c"]
    assert events(connection_string, "--partition", "1") == []


def test_tail_ends_after_so_many_events_and_its_text_names_the_place(connection_string: str) -> None:
    run("send", connection_string, "--hub", "cars", "--partition", "0", given="a\nb\nc\n")
    result = run("tail", connection_string, "--hub", "cars", "--from-beginning", "--count", "2")
    first, second = result.stdout.splitlines()
    assert first.startswith("0/0  ")
    assert first.endswith("Z  a")
    assert second.startswith("0/1  ")


@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    [
        (("--hub", "nope"), "a", "nope"),
        (("--hub", "cars", "--partition", "9"), "a", "9"),
        (("--hub", "cars", "--key-field", "booth"), '{"speed": 3}', "no such field"),
        (("--hub", "cars", "--format", "json"), '[{"a": 1}, {]', "not JSON at line 1, column 13"),
        ((), "a", "names no event hub"),
    ],
)
def test_what_cannot_be_sent_is_said_in_a_line(
    connection_string: str, arguments: tuple[str, ...], given: str, message: str
) -> None:
    result = run("send", connection_string, *arguments, given=given)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "SharedAccessKey=" not in result.stderr


def test_an_event_that_is_too_large_is_refused_and_nothing_of_it_is_stored(connection_string: str) -> None:
    result = run("send", connection_string, "--hub", "cars", "--partition", "0", given="x" * (2 << 20))
    assert result.exit_code == 1
    assert "larger than" in result.stderr
    assert events(connection_string) == []


@pytest.mark.parametrize(
    ("option", "said"),
    [(["--group", "nobody"], "no consumer group 'nobody'"), (["--partition", "9"], "no partition '9'")],
)
def test_what_cannot_be_read_is_said_at_once(connection_string: str, option: list[str], said: str) -> None:
    result = run("tail", connection_string, "--hub", "cars", *option)
    assert result.exit_code == 1
    assert said in result.stderr


def test_a_wrong_key_is_refused_without_repeating_it(connection_string: str) -> None:
    key = connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    wrong = connection_string.replace(key, "bm90IHRoZSBrZXk=")
    result = run("tail", wrong, "--hub", "cars", "--no-wait")
    assert result.exit_code == 1
    assert "bm90IHRoZSBrZXk=" not in result.stderr


def test_no_hub_there_names_the_next_step() -> None:
    nobody = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
    result = run("send", nobody, "--hub", "cars", given="a")
    assert result.exit_code == 1
    assert "tidegate up" in result.stderr
