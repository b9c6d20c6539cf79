"""Rules for every test: which are heavy, how Hypothesis draws, and what a search keeps."""

from __future__ import annotations

import gc
import inspect
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import __version__ as hypothesis_version
from hypothesis import is_hypothesis_test, reproduce_failure
from hypothesis.errors import DidNotReproduce

from tests import jars, profiles, programs, regressions
from tidegate.job.config.spark_settings import PLACEMENT_VARIABLE

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

# What is imported and collected stays, and looking for garbage in it is a fourth of the work until the tests begin.
gc.disable()

# Tests start hundreds of Python processes, each of which would compile everything that it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

profiles.load()
jars.start_spark_quickly()
programs.watch()

# A shell makes what it starts in the background ignore Ctrl-C, and everything that the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The marks of tests that `make check` leaves out. A folder, or a word in a file's name, gives one to all tests there; a
# test that starts a program which is not Python gets one for that (tests/programs.py), and fails without it.
HEAVY_FOLDERS = {"spark": "spark"}
HEAVY_WORDS = {"sdk": "sdk", "crash": "crash", "spark": "spark", "browser": "browser"}
HEAVY = ("spark", "sdk", "crash", "browser", "programs", "slow", "soak")

# The name of the one saved example to replay; tests/regressions/test_regressions.py sets it.
REPLAYED = os.environ.get("TIDEGATE_REPLAY")


# What `make check` runs.
LIGHT = "not heavy"

# Most tests write little and make it durable, which on a disk is most of what they wait for.
MEMORY = Path("/dev/shm")
ENOUGH_MEMORY_BYTES = 2 << 30


def pytest_configure() -> None:
    """Put temporary folders into memory, where a file system for that has room and runs programs. A soak needs more."""
    is_there = profiles.SOAK == 1 and os.access(MEMORY, os.W_OK) and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    if is_there and shutil.disk_usage(MEMORY).free >= ENOUGH_MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a test; on a disk if it kills processes, so that kills hit what waits for a disk too."""
    if request.node.get_closest_marker("crash") is None or not tmp_path.is_relative_to(MEMORY):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix=f"tg-{tmp_path.name}-")).resolve()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what there is then out of every later collection of garbage: it stays until the end."""
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """End what tests of this process have shared, and spare pytest the search of everything for garbage."""
    if azurite := sys.modules.get("tests.azurite"):
        azurite.end_shared()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by where they are and by what they start, and begin with what takes long."""
    reaches: dict[tuple[object, ...], bool] = {}
    for item in items:
        marks = {*marks_of(item.path)}
        if isinstance(item, pytest.Function):
            # The examples of a test have the same function and the same fixtures.
            key = (item.module, item.originalname, *item.fixturenames)
            if key not in reaches:
                reaches[key] = programs.is_reached_from(functions_of(config, item))
            if reaches[key]:
                marks.add("programs")
        for mark in marks:
            item.add_marker(mark)
        if is_heavy(item):
            item.add_marker("heavy")
        if REPLAYED and isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            reproduce_failure(hypothesis_version, regressions.examples()[REPLAYED].blob.encode())(item.obj)
    if hasattr(config, "workerinput"):
        # The light tests, which are short, then keep every process busy until the end. Before them come the files that
        # share a Spark: one between them that starts its own would end it.
        sharing = {unit_of(item.nodeid) for item in items if shares_spark(item)}
        items.sort(key=lambda item: ordered_by(item, sharing))


def ordered_by(item: pytest.Item, sharing: set[str]) -> tuple[bool, bool, bool]:
    unit = unit_of(item.nodeid)
    return not is_heavy(item), unit.endswith(".py"), unit in sharing


def shares_spark(item: pytest.Item) -> bool:
    """Return whether a test uses the Spark session of its process (tests/spark/conftest.py)."""
    fixtures = item.fixturenames if isinstance(item, pytest.Function) else ()
    return "spark" in fixtures and "no_spark" not in fixtures


# Folders whose files share what is expensive: brokers, and the syntax trees of the source.
TOGETHER = ("tests", "tests/store/kafka")


def unit_of(nodeid: str) -> str:
    """Return what one process runs as a whole: a folder whose files share something, or else a file."""
    path = nodeid.partition("::")[0]
    folder = path.rpartition("/")[0]
    return folder if folder in TOGETHER else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Let `--dist loadfile` keep the files of some folders together as well."""
    from xdist.scheduler import LoadFileScheduling

    class ByUnit(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    return ByUnit(config, log) if config.getvalue("dist") == "loadfile" else None


@cache
def marks_of(path: Path) -> frozenset[str]:
    """Return the marks that a file gives to all of its tests."""
    found = {HEAVY_FOLDERS.get(path.parent.name), *(HEAVY_WORDS.get(word) for word in path.stem.split("_"))}
    return frozenset(filter(None, found))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import files without a light test where only light tests are wanted, as in `make check`."""
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if is_test and config.option.markexpr == LIGHT and marks_of(collection_path) else None


def is_heavy(item: pytest.Item) -> bool:
    return any(mark.name in HEAVY for mark in item.iter_markers())


def functions_of(config: pytest.Config, item: pytest.Function) -> list[object]:
    """Return a test's function, and those of the fixtures that it asks for."""
    given = getattr(item.obj, "hypothesis", None)
    plugins = (plugin for plugin in config.pluginmanager.get_plugins() if inspect.ismodule(plugin))
    modules = [item.module, *(plugin for plugin in plugins if plugin.__name__.startswith("tests."))]
    fixtures = (vars(module).get(name) for name in item.fixturenames for module in modules)
    test = given.inner_test if given else getattr(item.obj, "__func__", item.obj)
    return [test, *(fixture for fixture in fixtures if hasattr(fixture, "__wrapped__"))]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Refuse other programs to a test without a mark, and keep jobs off Spark where Spark is not what is tested."""
    programs.refuse(not is_heavy(item))
    if item.get_closest_marker("spark") is None:
        os.environ[PLACEMENT_VARIABLE] = "process"
    else:
        os.environ.pop(PLACEMENT_VARIABLE, None)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Allow programs where fixtures end, which may be those of earlier tests."""
    programs.refuse(False)
    return (yield)


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
