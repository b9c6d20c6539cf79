"""Tests that start programs of others have a mark, and those without one are refused them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import jars, programs, redis_server
from tests.azurite import azurite
from tests.checkpoints.postgres import postgres
from tests.kafka import kafka_broker
from tests.mariadb import mariadb


def directly() -> None:
    programs.program("true")


def by_a_context() -> None:
    with postgres() as address, mariadb():
        print(address)


def by_a_module() -> None:
    redis_server.redis_server()


class Place:
    @property
    def folder(self) -> str:
        return jars.class_path(Path())


def by_a_class() -> None:
    print(Place().folder)


def in_a_function_within() -> None:
    def later() -> None:
        azurite()

    later()


def by_name_alone() -> None:
    print(programs.__name__, "postgres")


@pytest.mark.parametrize(
    "function", [directly, by_a_context, by_a_module, by_a_class, in_a_function_within, kafka_broker]
)
def test_what_starts_programs_is_known_by_its_code(function: Callable[..., object]) -> None:
    assert programs.is_reached_from([function])
    assert not programs.is_reached_from([by_name_alone, test_a_light_test_is_refused_programs])


def test_a_light_test_is_refused_programs() -> None:
    found = vars(programs)["program"]
    with pytest.raises(AssertionError, match="a test that starts redis-server needs a mark"):
        found("redis-server")
    with pytest.raises(AssertionError, match="a test that starts node needs a mark"):
        subprocess.run(["node", "--version"], check=False)


def test_so_are_the_processes_that_it_starts_java() -> None:
    code = "import os, subprocess; subprocess.run([os.environ['JAVA_HOME'] + '/bin/java'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "a test that starts Java needs a mark" in done.stderr


@pytest.mark.programs
def test_a_test_with_a_mark_may_start_them() -> None:
    assert Path(programs.program("sh")).exists()
    assert os.environ.get("JAVA_HOME") != str(programs.NO_JAVA)
