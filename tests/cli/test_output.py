"""How resources are printed in terminals of different widths."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from rich.console import Console

from tidegate.cli import output

HUBS = {
    "value": [
        {"name": "tolls-by-booth", "partitions": 8, "retentionHours": 24, "consumerGroups": ["$Default", "jobs"]},
        {"name": "eh2", "partitions": 2, "retentionHours": None, "consumerGroups": ["$Default"]},
    ]
}
BLOCKS = """\
name             tolls-by-booth
partitions       8
retention hours  24
consumer groups  $Default, jobs

name             eh2
partitions       2
retention hours  -
consumer groups  $Default
"""


def shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: Any, width: int, form: str = "table"
) -> list[str]:
    """The lines on a terminal, without the spaces that fill them."""
    terminal = partial(Console, width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "Console", terminal)
    output.show(answer, form)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("width", [20, 40, 45])
def test_a_table_that_would_break_words_is_a_block_for_each_resource(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    lines = shown(monkeypatch, capsys, HUBS, width)
    assert max(map(len, lines)) <= width
    if width > 20:
        assert lines == BLOCKS.splitlines()
    else:
        # nothing is left out, however narrow the terminal is
        assert "".join("".join(lines).split()).count("$Default") == 2


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_table_that_fits_has_a_line_for_each_resource(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    lines = [line.split() for line in shown(monkeypatch, capsys, HUBS, width) if line]
    rows = {line[0]: line[1:] for line in lines}
    assert rows["tolls-by-booth"][:2] == ["8", "24"]
    assert rows["eh2"][:2] == ["2", "-"]


def test_one_resource_is_a_block(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = BLOCKS.split("\n\n")
    assert shown(monkeypatch, capsys, HUBS["value"][0], 200) == first.splitlines()


def test_a_program_reads_json_whatever_the_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert json.loads("\n".join(shown(monkeypatch, capsys, HUBS, 20, "json"))) == HUBS["value"]


def test_nothing_is_cut_off_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    output.show({"value": [{"name": "x" * 300, "other": "y" * 300}]}, "table")
    said = capsys.readouterr().out
    assert "x" * 300 in said
    assert "y" * 300 in said
