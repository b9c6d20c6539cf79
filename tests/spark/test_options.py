"""Options of the source: read without regard to case, and refused with what was expected."""

from __future__ import annotations

import pytest

from tidegate.connectors.model.errors import InputError
from tidegate.spark.options import Options, SourcePosition

CONNECTION = {"connectionString": "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=sEcReT;EntityPath=e"}


def test_names_have_no_case_and_may_have_the_connector_s_prefix() -> None:
    options = Options.parse({"EVENTHUBS.connectionstring": "x", "MaxEventsPerTrigger": "5"}, streaming=True)
    assert (options.connection_string, options.max_events_per_trigger) == ("x", 5)


@pytest.mark.parametrize(
    ("value", "position"),
    [
        ("Earliest", SourcePosition.earliest()),
        ("latest", SourcePosition.latest()),
        ('{"offset": "-1", "seqNo": -1, "enqueuedTime": null, "isInclusive": true}', SourcePosition.earliest()),
        ('{"offset": "@latest"}', SourcePosition.latest()),
        ('{"seqNo": 7, "isInclusive": false}', SourcePosition("sequence", 7, inclusive=False)),
        ('{"offset": "1024"}', SourcePosition("offset", text="1024")),
        ("1970-01-01T00:00:00.0000001Z", SourcePosition("time", 1)),
    ],
)
def test_positions(value: str, position: SourcePosition) -> None:
    assert Options.parse({**CONNECTION, "startingPosition": value}, streaming=False).starting_position == position


@pytest.mark.parametrize(
    ("options", "streaming", "told"),
    [
        ({}, False, "connectionString is missing"),
        ({**CONNECTION, "eventhub": "e", "colour": "red"}, False, "colour: no such option"),
        ({**CONNECTION, "consumergrup": "x"}, False, "did you mean consumerGroup"),
        ({**CONNECTION, "startingPosition": "{"}, False, "not JSON"),
        ({**CONNECTION, "startingPosition": '{"seqNo": -5}'}, False, "expected earliest, latest"),
        ({**CONNECTION, "startingPositions": "[1]"}, False, "expected an object"),
        ({**CONNECTION, "startingPosition": "yesterday"}, False, "startingPosition"),
        ({**CONNECTION, "eventsPerTask": "0"}, False, "1 or more"),
        ({**CONNECTION, "eventsPerTask": "many"}, False, "eventsPerTask"),
        ({**CONNECTION, "segments": "always"}, False, "auto"),
        ({**CONNECTION, "endingPosition": "latest"}, True, "a stream has no end"),
        ({**CONNECTION, "maxEventsPerTrigger": "5"}, False, "limits the batches of a stream"),
        ({**CONNECTION, "eventhubs.consumerGroup": "a", "consumerGroup": "b"}, False, "consumerGroup is given twice"),
        (
            {**CONNECTION, "startingPosition": "latest", "startingPositions": '{"0": "earliest"}'},
            False,
            "startingPosition and startingPositions contradict each other",
        ),
        ({**CONNECTION, "startingPosition": '{"seqno": 7}'}, False, "did you mean seqNo"),
        ({**CONNECTION, "startingPosition": '{"seqNo": 7, "offset": "4"}'}, False, "seqNo and offset are two places"),
        ({**CONNECTION, "startingPosition": '{"seqNo": 7, "isInclusive": "false"}'}, False, "isInclusive is true or"),
        (
            {**CONNECTION, "startingPosition": '{"seqNo": 8}', "endingPosition": '{"seqNo": 7}'},
            False,
            "the start is after the end",
        ),
        (
            {**CONNECTION, "startingPosition": "2026-01-02T00:00:00Z", "endingPositions": '{"1": "2026-01-01"}'},
            False,
            "of partition 1: the start is after the end",
        ),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], streaming: bool, told: str) -> None:
    with pytest.raises(InputError) as caught:
        Options.parse(options, streaming=streaming)
    assert told in str(caught.value)
    assert "sEcReT" not in str(caught.value)


def test_what_does_not_contradict_is_taken() -> None:
    """The same value twice, the connector's four fields, and positions of kinds that do not compare."""
    given = {
        **CONNECTION,
        "eventhubs.consumerGroup": "a",
        "consumerGroup": "a",
        "startingPosition": '{"offset": null, "seqNo": 7, "enqueuedTime": null, "isInclusive": true}',
        "endingPosition": "2026-01-01T00:00:00Z",
    }
    options = Options.parse(given, streaming=False)
    assert (options.consumer_group, options.starting_position) == ("a", SourcePosition("sequence", 7))


def test_the_key_is_not_in_the_repr() -> None:
    assert "sEcReT" not in repr(Options.parse(CONNECTION, streaming=False))
