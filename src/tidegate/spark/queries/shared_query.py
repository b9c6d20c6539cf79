"""A query as it is sent to executors, and unpickled there once."""

from __future__ import annotations

import gc
import hashlib
import pickle
from dataclasses import dataclass, field
from functools import cache

from tidegate.engine import Program
from tidegate.engine.sharding.payloads import Sharding
from tidegate.ordering import END_OF_TIME, NO_TIME, Policy
from tidegate.spark.queries.data_error_shares import DataErrorShares

_PROGRAMS: dict[str, Program] = {}
_MOST_PROGRAMS = 32


@dataclass(frozen=True, slots=True)
class SharedProgram:
    """A pickled program, which a worker unpickles once.

    Attributes:
        name: of the content and its owner, as two jobs of one query must not share what its functions remember.
    """

    content: bytes
    name: str

    @classmethod
    def of(cls, program: Program, owner: str = "") -> SharedProgram:
        """Pickle a program."""
        content = pickle.dumps(program, protocol=5)
        return cls(content, hashlib.sha256(content + owner.encode()).hexdigest())

    def value(self) -> Program:
        """Return the program."""
        if (program := _PROGRAMS.pop(self.name, None)) is None:
            program = pickle.loads(self.content)
        else:
            _leave_out_imports()
        while len(_PROGRAMS) >= _MOST_PROGRAMS:
            _PROGRAMS.pop(next(iter(_PROGRAMS)))
        # The last one is the one that was used last.
        _PROGRAMS[self.name] = program
        return program


@cache
def _leave_out_imports() -> None:
    """Leave what the first use of a program has imported, such as pandas, out of later collections of garbage.

    PySpark collects after every task, and would look at all of it each time.
    """
    gc.freeze()


@dataclass(frozen=True, slots=True)
class QueryOnShards:
    """A query over logs that have ended, as every place on executors knows it.

    Attributes:
        program: prepared for shards.
        sharding: how its keyed side is divided.
        start: ticks; the output start time.
        until: ticks; only results before this time are wanted.
        parcel_events: how many events of a timeline travel together.
        data_errors: how many data errors are noticed.
    """

    program: SharedProgram
    policy: Policy
    sharding: Sharding
    start: int = NO_TIME
    until: int = END_OF_TIME
    parcel_events: int = 131_072
    data_errors: DataErrorShares = field(default_factory=DataErrorShares)
