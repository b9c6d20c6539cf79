"""kill -9 while a document is being replaced: the last one reported is there, or the one after it, intact."""

import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.profiles import scaled
from tidegate.durable_files import read_checked

ROUNDS = scaled(10)
CHILD = Path(__file__).with_name("crash_child.py")


def test_kill_9_leaves_the_last_document_or_the_next(tmp_path: Path) -> None:
    chance = random.Random(9)
    path, last = tmp_path / "state", 0
    for _ in range(ROUNDS):
        with subprocess.Popen([sys.executable, str(CHILD), str(path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(chance.randint(1, 60)):
                child.stdout.readline()
            child.send_signal(signal.SIGKILL)
            reported = [int(line) for line in child.stdout.read().splitlines()]
        document = read_checked(path)
        assert document is not None
        number = document["number"]
        assert number > last
        if reported:
            assert number in (reported[-1], reported[-1] + 1)
        assert len(document["filling"]) == number * 37 % 5000
        last = number
        assert {file.name for file in tmp_path.iterdir()} <= {"state", ".state.new"}
