"""How Hypothesis draws examples: the same ones everywhere in the suite, new ones in a search.

`suite` is what `pytest`, `make test` and continuous integration use, `quick` is the same on fewer examples. Both derive
every example from the test's own source, so a run on one machine says what it says on any other. `search` draws with a
new seed on every run; `make fuzz` uses it, and keeps what it finds in tests/regressions.

TIDEGATE_HYPOTHESIS selects a profile by name, TIDEGATE_FUZZ_EXAMPLES sets the number of examples of a search.
TIDEGATE_SOAK says how many times as often the suite does what it repeats: examples, kills, random logs and queries.
"""

from __future__ import annotations

import os
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

SUITE = "suite"
SEARCH = "search"
# A replay has to draw as the search did: an example is a list of the choices that were made.
REPLAY = "replay"


SOAK = int(os.environ.get("TIDEGATE_SOAK", "1"))


def scaled(count: int) -> int:
    """Return how often a test repeats something: `count` times in `make test`, many times that in `make soak`.

    In `make check`, it is a fifth.
    """
    is_quick = os.environ.get("TIDEGATE_HYPOTHESIS") == "quick"
    return max(1, count // 5) if is_quick else count * SOAK


def example_count(count: int) -> int:
    """Return how many examples the profile gives to a test that has `count` where others have 100."""
    return max(5, count * (settings.default or settings()).max_examples // _EXAMPLES)


_EXAMPLES = 100


def load() -> None:
    """Register the profiles and load the one that the environment names."""
    # A deadline would measure the machine, which may be busy with other work; pytest ends a test that hangs.
    common = settings(
        deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, database=None, derandomize=False
    )
    # The suite draws the same examples each time, so a part of them finds as much; the soak draws all, many times.
    examples_of_suite = _EXAMPLES // 7 if SOAK == 1 else scaled(_EXAMPLES)
    settings.register_profile(SUITE, parent=common, derandomize=True, max_examples=examples_of_suite)
    settings.register_profile("quick", parent=settings.get_profile(SUITE), max_examples=_EXAMPLES // 20)
    examples = int(os.environ.get("TIDEGATE_FUZZ_EXAMPLES", "500"))
    settings.register_profile(SEARCH, parent=common, max_examples=examples)
    settings.register_profile(REPLAY, parent=common)
    profile = os.environ.get("TIDEGATE_HYPOTHESIS", SUITE)
    settings.load_profile(profile)
    if profile != SEARCH:
        # Hypothesis also draws literals of every module imported so far, which depends on the tests that ran before.
        mock.patch.object(providers, "_get_local_constants", Constants).start()
