"""`tidegate up --capture …`: the options, and files that come of them."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tidegate.cli import main
from tidegate.cli.capture_options import capture_description
from tidegate.hub.capture.description import CaptureDescription


def test_without_options_nothing_is_captured() -> None:
    names = ("capture", "capture_interval", "capture_size", "capture_names", "capture_skip_empty")
    assert capture_description(**dict.fromkeys(names)) is None


def test_the_options_are_the_description() -> None:
    assert capture_description(capture="archive") == CaptureDescription(destination="archive")
    assert capture_description(
        capture="az://lake", capture_interval=60, capture_size=10_485_760, capture_skip_empty=True
    ) == CaptureDescription(
        destination="az://lake", interval_in_seconds=60, size_limit_in_bytes=10_485_760, skip_empty_archives=True
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"capture_interval": 60}, "--capture-interval needs --capture"),
        ({"capture": "x", "capture_interval": 59}, "--capture-interval: .*60"),
        ({"capture": "x", "capture_size": 1}, "--capture-size: .*10485760"),
        ({"capture": "x", "capture_names": "{Hour}"}, "--capture-names: all nine parts"),
        ({"capture": ""}, "--capture: "),
    ],
)
def test_what_is_wrong_is_said_of_its_option(given: dict[str, Any], said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        capture_description(**given)


def test_a_destination_that_cannot_be_used_ends_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["up", "--data", str(tmp_path), "--amqp-port", "0", "--capture", "nowhere://archive"]
    )
    assert result.exit_code == 1
    assert "nowhere://archive cannot be used" in result.stderr
