"""What holds for every test: which are heavy, and how Hypothesis searches."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A deadline measures the machine, which may be busy with other work; a test that hangs is ended by pytest.
settings.register_profile("tidegate", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("quick", parent=settings.get_profile("tidegate"), max_examples=10)
settings.register_profile("thorough", parent=settings.get_profile("tidegate"), max_examples=2_000)
settings.load_profile(os.environ.get("TIDEGATE_HYPOTHESIS", "tidegate"))

# A shell lets what it starts in the background ignore Ctrl-C, and so would all that the tests start, and then stop.
signal.signal(signal.SIGINT, signal.default_int_handler)

# `make check` leaves these out. Where a test stands says what it needs, so that no mark can be forgotten.
HEAVY_FOLDERS = {"spark": "spark"}
HEAVY_WORDS = {"sdk": "sdk", "crash": "crash", "spark": "spark"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder and by the words of their file's name."""
    for item in items:
        path = Path(item.path)
        marks = {HEAVY_FOLDERS.get(path.parent.name)} | {HEAVY_WORDS.get(word) for word in path.stem.split("_")}
        for mark in filter(None, marks):
            item.add_marker(mark)
