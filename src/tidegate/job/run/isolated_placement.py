"""A placement in a process of its own, for code of the user's, which may end the process that runs it.

The first steps of a job with functions are taken there, until Spark is up; its workers may end, too, and the job goes
on. A death counts as one of a worker: the step is taken again, in another process, with a state from the log.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, BinaryIO

from tidegate.connectors.model.errors import JobError
from tidegate.engine import Program, ResultRows
from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.placement import (
    DriverPlacement,
    Outcome,
    Placement,
    StateLocation,
    StateLost,
    WorkersLost,
)
from tidegate.job.runtime.sealing import SealedState, SealFolder
from tidegate.job.runtime.task import Task
from tidegate.ordering import Policy

# The Ctrl-C of a terminal is for the job's process to handle.
_WITHOUT_INTERRUPTS = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "tidegate"]
_CALL_ENDS_WITHIN_S = 1.0


class IsolatedPlacement(Placement):
    """The keyed side and the tasks of a job in a child process, which ends with this one."""

    def __init__(self, program: Program, policy: Policy) -> None:
        """Begin with an empty state."""
        command = [sys.executable, "-m", "tidegate.job.run.isolated_placement"]
        if os.name == "posix":
            command = [*_WITHOUT_INTERRUPTS, *command]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._has_ended = False
        # A call in another thread ends by itself when the process has ended, and must not lose its pipes before.
        self._calling = threading.RLock()
        self._first: list[Any] = [(program, policy)]

    @property
    def location(self) -> StateLocation:
        return StateLocation(child=True)

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        outcome: Outcome = self._call("run", tasks, order)
        return outcome

    def preview(self, order: StepOrder) -> list[ResultRows]:
        rows: list[ResultRows] = self._call("preview", order)
        return rows

    def use(self, program: Program) -> None:
        self._call("use", program)

    def seal(self, folder: SealFolder) -> SealedState:
        sealed: SealedState = self._call("seal", folder)
        return sealed

    def restore(self, folder: SealFolder, sealed: SealedState) -> None:
        self._call("restore", folder, sealed)

    def close(self) -> None:
        """End the process, even within a step."""
        self._has_ended = True
        self._process.kill()
        self._process.wait()
        # Programs that functions have started may hold the pipes open.
        if not self._calling.acquire(timeout=_CALL_ENDS_WITHIN_S):
            return
        try:
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                with suppress(OSError):
                    stream.close()
        finally:
            self._calling.release()

    def _call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the placement in the process.

        Raises:
            WorkersLost: the process has ended meanwhile; StateLost: it had before.
        """
        sent, received = self._process.stdin, self._process.stdout
        assert sent is not None
        assert received is not None
        try:
            with self._calling:
                if self._has_ended:
                    raise StateLost("the state is gone with the process that ran the job's own functions")
                for one in (*self._first, (method, arguments)):
                    pickle.dump(one, sent, protocol=5)
                sent.flush()
                self._first = []
                result, error = pickle.load(received)
        except (EOFError, OSError, pickle.UnpicklingError) as broken:
            self.close()
            raise WorkersLost(f"the process that runs the job's own functions has ended: {self._how()}") from broken
        if error is not None:
            raise error
        return result

    def _how(self) -> str:
        status = self._process.returncode
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"


# In the process that may end ------------------------------------------------------------------------------------------


def main() -> None:
    """Answer the calls on standard input."""
    answers = os.fdopen(os.dup(1), "wb")
    # What functions print must not come between.
    os.dup2(2, 1)
    calls: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, calls), daemon=True).start()
    program, policy = calls.get()
    placement = DriverPlacement(program, policy)
    while True:
        method, arguments = calls.get()
        pickle.dump(_answer(placement, method, arguments), answers, protocol=5)
        answers.flush()


def _receive(calls: BinaryIO, received: SimpleQueue[Any]) -> None:
    """Receive calls, and end the process with the one that makes them, even within a step."""
    with suppress(EOFError):
        while True:
            received.put(pickle.load(calls))
    os._exit(0)


def _answer(placement: DriverPlacement, method: str, arguments: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    try:
        result = getattr(placement, method)(*arguments)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return None, JobError(f"{type(error).__name__}: {error}")
        return None, error
    if isinstance(result, Outcome):
        # The keyed side has absorbed the partial results.
        result = replace(result, results=[replace(one, partials=[]) for one in result.results])
    return result, None


if __name__ == "__main__":
    main()
