"""Every target on mutations of good input: see the package's description for how to run them for long."""

import pytest

from tests.fuzz.mutation import mutations
from tests.fuzz.targets import TARGETS, run
from tests.profiles import scaled

RUNS = scaled(400)


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_is_taken_or_refused(name: str) -> None:
    target = TARGETS[name]
    for data in mutations(target.seeds, RUNS // target.slowness, seed=1):
        run(target, data)
