"""What a user can fix is one line and an exit code; an internal error keeps its traceback."""

import json
import logging
from pathlib import Path
from typing import Any

import click
import pytest

from tidegate.cli.errors import run_and_explain
from tidegate.log import LogError
from tidegate.log_format import JsonFormatter


def leave(error: BaseException) -> int:
    def run() -> None:
        raise error

    with pytest.raises(SystemExit) as exit_:
        run_and_explain(run)
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def test_our_own_error_is_one_line_and_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(LogError("partition 3: the disk is full; make room and start again")) == 1
    printed = capsys.readouterr()
    assert printed.err == "tidegate: partition 3: the disk is full; make room and start again\n"
    assert printed.out == ""


@pytest.mark.parametrize(
    ("error", "said", "has_traceback"),
    [(LogError("the disk is full"), "the disk is full", False), (KeyError("x"), "KeyError: 'x'", True)],
)
def test_in_a_log_of_json_the_end_is_an_object_too(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    said: str,
    has_traceback: bool,
) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    assert leave(error) == 1
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["level"], told["message"], "traceback" in told) == ("CRITICAL", said, has_traceback)


def test_misuse_is_code_2_and_names_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(click.UsageError("No such option: --prot")) == 2
    assert capsys.readouterr().err == "tidegate: no such option: --prot\ntry 'tidegate --help'\n"


@pytest.mark.parametrize(
    ("type_", "given", "expected"),
    [
        (click.IntRange(256), "lots", "a whole number, 256 or more, got 'lots'"),
        (click.IntRange(256), "255", "a whole number, 256 or more, got 255"),
        (click.IntRange(1, 32), "33", "a whole number from 1 to 32, got 33"),
        (click.IntRange(max=9), "1.5", "a whole number, at most 9, got '1.5'"),
        (click.INT, "a is not b", "a whole number, got 'a is not b'"),
        (click.FloatRange(0, min_open=True), "0", "a number above 0, got 0.0"),
        (click.FLOAT, "x", "a number, got 'x'"),
    ],
)
def test_an_option_that_is_a_number_says_which_it_takes(
    capsys: pytest.CaptureFixture[str], type_: click.ParamType[Any], given: str, expected: str
) -> None:
    command = click.Command("up", params=[click.Option(["-m", "--memory"], type=type_)])
    with pytest.raises(SystemExit) as left:
        run_and_explain(lambda: command.main(["--memory", given], prog_name="up", standalone_mode=False))
    assert left.value.code == 2
    said = f"tidegate: invalid value for '--memory': expected {expected}\ntry 'up --help'\n"
    assert capsys.readouterr().err == said


def test_an_option_of_a_group_says_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    command = click.Group("hub", {"list": click.Command("list")}, params=[click.Option(["--data"])])
    with pytest.raises(SystemExit) as left:
        run_and_explain(lambda: command.main(["list", "--data", "x"], prog_name="hub", standalone_mode=False))
    assert left.value.code == 2
    said = "tidegate: --data is an option of 'hub': give it there, as in 'hub --data … list'"
    assert capsys.readouterr().err.startswith(said)


def test_a_missing_folder_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        run_and_explain(lambda: (tmp_path / "missing" / "file.json").write_text(""))
    said = f"tidegate: {tmp_path}/missing/file.json: there is no folder '{tmp_path}/missing'; make it first\n"
    assert capsys.readouterr().err == said


def test_the_system_s_errors_name_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(FileNotFoundError(2, "No such file or directory", "tolls.toml")) == 1
    assert capsys.readouterr().err == "tidegate: tolls.toml: No such file or directory\n"


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("pyspark.sql", "spark"),
        ("azure.eventhub", "checkpoints"),
        ("psycopg", "checkpoints"),
        ("obstore.store", "capture"),
    ],
)
def test_without_the_extra_the_line_to_run_is_named(
    capsys: pytest.CaptureFixture[str], module: str, extra: str
) -> None:
    assert leave(ModuleNotFoundError(f"No module named '{module}'", name=module)) == 1
    assert f'pip install "tidegate[{extra}]"' in capsys.readouterr().err


@pytest.mark.parametrize("error", [ValueError("a bug"), ModuleNotFoundError("No module named 'x'", name="x")])
def test_a_fault_of_ours_keeps_its_traceback(error: Exception) -> None:
    def run() -> None:
        raise error

    with pytest.raises(type(error)):
        run_and_explain(run)


def test_debugging_keeps_every_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_DEBUG", "1")

    def run() -> None:
        raise LogError("closed")

    with pytest.raises(LogError):
        run_and_explain(run)


def test_an_interrupt_is_130_and_a_command_s_own_code_is_kept() -> None:
    assert leave(KeyboardInterrupt()) == 130
    assert leave(click.Abort()) == 130
    with pytest.raises(SystemExit) as exit_:
        run_and_explain(lambda: 3)
    assert exit_.value.code == 3


def test_an_interrupt_that_comes_back_as_another_error_is_still_one(capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError("the answer is empty")
    error.__context__ = KeyboardInterrupt()
    assert leave(error) == 130
    assert capsys.readouterr().err == ""
