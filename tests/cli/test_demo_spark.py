"""The demo as a newcomer runs it: it proves itself, and leaves nothing running."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.patience import PATIENCE_S, eventually
from tidegate.cli.demo import _compare, _make_fresh
from tidegate.job import JobError


def command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "tidegate", "demo", "--seconds", "20", "--folder", str(folder)]


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def port_of(output: str) -> int:
    found = re.search(r"Endpoint=sb://localhost:(\d+);", output)
    assert found, output
    return int(found[1])


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def processes_with(variable: str) -> list[str]:
    """What still runs of all that was started with the variable in its environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable.encode() in environment.read_bytes():
                found.append((environment.parent / "cmdline").read_text().replace("\0", " "))
    return found


def test_it_ends_by_itself_with_two_outputs_that_are_the_same(tmp_path: Path) -> None:
    said, mark = tmp_path / "said", f"TIDEGATE_DEMO_TEST={tmp_path}"
    # Not through pipes: who waits for the end of those has waited for everybody who has them.
    with said.open("w+") as out, (tmp_path / "errors").open("w+") as err:
        environment = os.environ | dict([mark.split("=", 1)])
        process = subprocess.Popen(command(tmp_path / "demo"), stdout=out, stderr=err, env=environment)
        try:
            process.wait(5 * PATIENCE_S)
            eventually(lambda: processes_with(mark) == [])
        finally:
            process.kill()
    output, errors = said.read_text("utf-8"), (tmp_path / "errors").read_text("utf-8")
    assert process.returncode == 0, errors
    assert errors == ""
    assert "identical byte for byte" in output
    assert is_free(port_of(output))

    results = [json.loads(line) for line in (tmp_path / "demo" / "tolls.jsonl").read_text("utf-8").splitlines()]
    assert [row["window_end"] for row in results] == sorted(row["window_end"] for row in results)
    assert set(results[0]) == {"window_end", "booth", "cars", "avg_speed"}
    assert {row["booth"] for row in results} == {"north", "east", "south", "west"}

    # Every event is a car in a result, or was early, or could not be read.
    published = int(re.search(r"([\d,]+) events in \d+ steps", output)[1].replace(",", ""))
    unreadable = int(re.search(r"(\d+) events could not be read", output)[1])
    early, late, out_of_order = map(int, re.findall(r"(\d+) +(\d+) +(\d+)$", output, re.MULTILINE)[-1])
    assert sum(row["cars"] for row in results) == published - unreadable - early
    assert min(unreadable, early, late, out_of_order) > 0

    assert ElementTree.parse(tmp_path / "demo" / "watermark.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("after_s", [pytest.param(0.5, marks=pytest.mark.soak), 3])
def test_stopped_in_the_middle_it_stops_its_hub(tmp_path: Path, after_s: float) -> None:
    process = start(tmp_path)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Endpoint=" in line:
            break
    time.sleep(after_s)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert is_free(port_of("".join(lines)))


def test_outputs_that_differ_are_shown_where_they_do(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text('{"cars": 1}\n{"cars": 2}\n')
    second.write_text('{"cars": 1}\n{"cars": 3}\n')
    with pytest.raises(JobError, match=r'line 2:\n.*"cars": 2.*\n.*"cars": 3'):
        _compare(first, second)
    second.write_text('{"cars": 1}\n')
    with pytest.raises(JobError, match=r"line 2:\n.*\n.*\(ends before\)"):
        _compare(first, second)
    first.write_text("")
    second.write_text("")
    with pytest.raises(JobError, match="both empty"):
        _compare(first, second)


def test_a_new_run_keeps_what_the_last_one_left(tmp_path: Path) -> None:
    for run in ("first", "second", "third"):
        _make_fresh(tmp_path)
        (tmp_path / "result").write_text(run)
    assert (tmp_path / "result").read_text() == "third"
    assert (tmp_path / "previous" / "result").read_text() == "second"
    assert not (tmp_path / "previous" / "previous").exists()
