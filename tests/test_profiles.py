"""The suite draws the same examples whatever ran before it, in whatever process."""

import os
import subprocess
import sys

import pytest

from tests.source import ROOT

DRAWING = """
import hashlib, importlib, sys
from tests import profiles
profiles.load()
for name in sys.argv[1:]:
    importlib.import_module(name)
from hypothesis import given, strategies as st
drawn = []

@given(st.integers(), st.floats(), st.text(), st.binary(), st.sets(st.text()), st.randoms(use_true_random=False))
def test(number, real, text, data, names, dice):
    drawn.append(repr((number, real, text, data, sorted(names), dice.random())))

test()
print(hashlib.sha256("".join(drawn).encode("utf-8", "surrogatepass")).hexdigest())
"""


def drawn(*modules: str, profile: str = "suite", hash_seed: str = "0") -> str:
    variables = {"TIDEGATE_HYPOTHESIS": profile, "TIDEGATE_FUZZ_EXAMPLES": "10", "PYTHONHASHSEED": hash_seed}
    environment = os.environ | variables
    command = [sys.executable, "-c", DRAWING, *modules]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_examples_depend_neither_on_imported_modules_nor_on_the_process() -> None:
    assert drawn() == drawn("tidegate.amqp", "tests.amqp.values", hash_seed="1")


@pytest.mark.slow
def test_a_search_draws_other_examples_each_time() -> None:
    assert drawn(profile="search") != drawn(profile="search")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("soak", "profile", "repeated", "examples"),
    [("1", "suite", 10, 14), ("3", "suite", 30, 300), ("1", "quick", 2, 5)],
)
def test_what_is_repeated_is_repeated_as_often_as_the_run_asks(
    soak: str, profile: str, repeated: int, examples: int
) -> None:
    environment = os.environ | {"TIDEGATE_SOAK": soak, "TIDEGATE_HYPOTHESIS": profile}
    program = "from tests import profiles; profiles.load(); print(profiles.scaled(10), profiles.example_count(100))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert [int(word) for word in done.stdout.split()] == [repeated, examples]
