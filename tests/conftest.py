"""Rules for every test: which are heavy, how Hypothesis draws, and what a search keeps."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import __version__ as hypothesis_version
from hypothesis import is_hypothesis_test, reproduce_failure
from hypothesis.errors import DidNotReproduce

from tests import profiles, regressions

profiles.load()

# A shell makes what it starts in the background ignore Ctrl-C, and everything that the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# `make check` leaves these out. The marks come from where a test is, so none can be forgotten.
HEAVY_FOLDERS = {"spark": "spark"}
HEAVY_WORDS = {"sdk": "sdk", "crash": "crash", "spark": "spark", "browser": "browser"}

# The name of the one saved example to replay; tests/regressions/test_regressions.py sets it.
REPLAYED = os.environ.get("TIDEGATE_REPLAY")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder and by the words of their file's name."""
    for item in items:
        path = Path(item.path)
        marks = {HEAVY_FOLDERS.get(path.parent.name)} | {HEAVY_WORDS.get(word) for word in path.stem.split("_")}
        for mark in filter(None, marks):
            item.add_marker(mark)
        if REPLAYED and isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            reproduce_failure(hypothesis_version, regressions.examples()[REPLAYED].blob.encode())(item.obj)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Expect a replayed example to pass, which Hypothesis reports as an error."""
    if not REPLAYED:
        return (yield)
    with pytest.raises(DidNotReproduce, match="completed successfully"):
        yield
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what a search has found, and see that a replay drew what was saved."""
    report = yield
    if report.failed and os.environ.get("TIDEGATE_HYPOTHESIS") == profiles.SEARCH:
        for path in regressions.save_examples(item.nodeid, report.longreprtext):
            report.sections.append(("saved", str(path)))
    if REPLAYED and report.passed and call.when == "call":
        drawn = "".join(text for title, text in report.sections if title == "Hypothesis")
        if not regressions.examples()[REPLAYED].is_shown_in(drawn):
            report.outcome = "failed"
            report.longrepr = f"{REPLAYED} no longer fits its test, which now draws {drawn}"
    return report
