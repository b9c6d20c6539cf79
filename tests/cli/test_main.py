"""`tidegate` itself: what it says alone, and how it ends when asked wrongly."""

import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S
from tidegate.cli import COMMANDS, main


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidegate", *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def test_alone_it_says_what_to_do_next() -> None:
    result = run()
    assert result.returncode == 0
    assert "tidegate up" in result.stdout
    assert "tidegate job run" in result.stdout


def test_it_knows_its_version() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout.startswith("tidegate 0.")) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["nope"], ["--nope"], ["send"], ["up", "--amqp-port", "many"]])
def test_misuse_is_two_lines_and_code_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("tidegate: ")
    assert "--help'" in result.stderr
    assert "Traceback" not in result.stderr


def test_help_lists_every_command_without_loading_one() -> None:
    script = (
        "import sys; from tidegate.cli import main\ntry: main(['--help'])\nfinally: print('pyspark' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert result.stdout.endswith("False\n")
    assert all(name in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_s_line_is_the_command_s_own_and_its_help_has_an_example(name: str) -> None:
    with main.make_context("tidegate", [], resilient_parsing=True) as context:
        command = main.get_command(context, name)
    assert command is not None
    assert (command.help or "").splitlines()[0] == COMMANDS[name]


@pytest.mark.slow
def test_the_hub_starts_without_the_packages_of_any_extra() -> None:
    packages = "{'azure', 'numpy', 'pyarrow', 'psycopg', 'obstore'}"
    program = f"import sys, tidegate.cli.up; print(*sorted({packages} & {{*sys.modules}}))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
