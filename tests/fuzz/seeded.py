"""Checks that draw everything from one seed: a failing seed is a failing example."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.engine.test_beside import check_beside
from tests.engine.test_fuzz import check_query
from tests.job.equality import check as check_equality

CHECKS: Mapping[str, Callable[[int], object]] = {
    "equality": check_equality,
    "queries": check_query,
    "beside": check_beside,
}
"""Each raises an AssertionError for a seed that shows a defect, and is quick enough to run thousands of times."""
