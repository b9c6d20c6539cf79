"""The process with the Spark that the jobs of a service share, where it is not Spark that matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from tidegate.spark.shared.host import _Messages


class FailingHost:
    """A host that cannot forget anybody."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def forget(self, owner: str) -> None:
        raise self._error


@pytest.fixture
def messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Messages:
    monkeypatch.setattr(_Messages, "_read", lambda self, lines: None)
    return _Messages([], tmp_path)


def forget(messages: _Messages, error: Exception) -> None:
    messages._forget(cast(Any, FailingHost(error)), "tidegate_tolls")


def test_what_cannot_be_deleted_is_said(messages: _Messages, capsys: pytest.CaptureFixture[str]) -> None:
    forget(messages, Py4JError("no space left"))
    assert capsys.readouterr().err == "what tidegate_tolls has left cannot be deleted: no space left\n"


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionResetError(), EOFError()])
def test_java_that_has_ended_has_left_nothing(
    messages: _Messages, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    forget(messages, error)
    assert capsys.readouterr().err == ""


def test_java_that_was_killed_at_the_end_has_left_nothing(
    messages: _Messages, capsys: pytest.CaptureFixture[str]
) -> None:
    messages.ending = True
    forget(messages, Py4JError("An error occurred while calling None.None"))
    assert capsys.readouterr().err == ""
