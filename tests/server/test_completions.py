"""Reports of many threads: none lost, order kept, wake-ups shared."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.patience import PATIENCE_S
from tidegate.server.context.completions import Completions


def test_every_report_of_every_thread_is_handled_once_and_in_order() -> None:
    async def run() -> dict[int, list[int]]:
        completions = Completions(asyncio.get_running_loop())
        seen: dict[int, list[int]] = {number: [] for number in range(4)}
        finished = asyncio.Event()

        def handle(thread: int, number: int) -> None:
            seen[thread].append(number)
            if sum(map(len, seen.values())) == 4000:
                finished.set()

        def report(thread: int) -> None:
            for number in range(1000):
                completions.report(handle, thread, number)

        threads = [threading.Thread(target=report, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(finished.wait(), PATIENCE_S)
        for thread in threads:
            thread.join()
        return seen

    assert asyncio.run(run()) == {number: list(range(1000)) for number in range(4)}


def test_what_is_asked_for_afterwards_runs_once_after_the_burst() -> None:
    async def run() -> list[str]:
        completions = Completions(asyncio.get_running_loop())
        log: list[str] = []

        def flush() -> None:
            log.append("flush")

        def action(name: str) -> None:
            log.append(name)
            completions.afterwards(flush)

        for name in ("a", "b", "c"):
            completions.report(action, name)
        await asyncio.sleep(0.01)
        return log

    assert asyncio.run(run()) == ["a", "b", "c", "flush"]


def test_a_failing_action_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> list[int]:
        completions = Completions(asyncio.get_running_loop())
        log: list[int] = []
        completions.report(lambda: 1 // 0)
        completions.report(log.append, 1)
        await asyncio.sleep(0.01)
        return log

    assert asyncio.run(run()) == [1]
    assert "could not be handled" in caplog.text


def test_nothing_is_taken_after_the_close() -> None:
    loop = asyncio.new_event_loop()
    completions = Completions(loop)
    completions.close()
    loop.close()
    completions.report(print)
