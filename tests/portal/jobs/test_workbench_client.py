"""The workbench's process: asked in turn, replaced after a timeout, ended when it is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.patience import PATIENCE_S
from tidegate.hub.errors import ArgumentError, ServerBusy
from tidegate.portal.jobs import workbench_client
from tidegate.portal.jobs.workbench_client import EngineMissing, WorkbenchClient
from tidegate.service import questions

ECHO = """
import json, sys, time
for line in sys.stdin:
    question = json.loads(line)
    if question["ask"] == "sleep": time.sleep(60)
    if question["ask"] == "die": sys.exit(1)
    answer = {"problem": "no", "kind": "input"} if question["ask"] == "refuse" else {"answer": question}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let the module that is started repeat each question."""
    folder = tmp_path_factory.mktemp("echo")
    (folder / "tidegate_echo.py").write_text(ECHO, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(questions, "_MODULE", "tidegate_echo")


def run(story: Callable[[WorkbenchClient], Awaitable[None]], **settings: float) -> None:
    async def told() -> None:
        client = WorkbenchClient(**settings)
        try:
            await story(client)
        finally:
            await client.close()

    asyncio.run(told())


def test_questions_are_answered_in_their_order() -> None:
    async def story(client: WorkbenchClient) -> None:
        answers = await asyncio.gather(*(client.ask("echo", number=number) for number in range(10)))
        assert [answer["number"] for answer in answers] == list(range(10))

    run(story)


def test_a_problem_is_an_error_of_the_question() -> None:
    async def story(client: WorkbenchClient) -> None:
        with pytest.raises(ArgumentError, match="no"):
            await client.ask("refuse")
        assert await client.ask("echo")

    run(story)


@pytest.mark.slow
@pytest.mark.parametrize("ask", ["sleep", "die"])
def test_a_process_that_does_not_answer_is_replaced(ask: str) -> None:
    async def story(client: WorkbenchClient) -> None:
        with pytest.raises(ServerBusy):
            await client.ask(ask)
        # A process may take longer than that to start.
        client._workbench._timeout_s = PATIENCE_S
        assert (await client.ask("echo", number=2))["number"] == 2

    run(story, timeout_s=1.0)


def test_a_visitor_who_leaves_does_not_get_the_next_one_s_answer() -> None:
    async def story(client: WorkbenchClient) -> None:
        await client.ask("echo")
        leaving = asyncio.create_task(client.ask("sleep"))
        await asyncio.sleep(0.1)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert (await client.ask("echo", number=7))["number"] == 7

    run(story)


def test_a_visitor_who_leaves_as_the_answer_comes_costs_the_next_one_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(client: WorkbenchClient) -> None:
        await client.ask("echo")
        process = client._workbench._process
        assert process is not None
        client._workbench.interrupt()
        process.wait()
        # It has been killed, and the next question does not know yet.
        monkeypatch.setattr(process, "poll", lambda: None)
        assert (await client.ask("echo", number=7))["number"] == 7

    run(story)


def test_an_idle_process_ends() -> None:
    async def story(client: WorkbenchClient) -> None:
        await client.ask("echo")
        async with asyncio.timeout(PATIENCE_S):
            while client.is_running:
                await asyncio.sleep(0.01)

    run(story, idle_s=0.1)


def test_closing_waits_until_the_process_has_ended() -> None:
    async def story(client: WorkbenchClient) -> None:
        await client.ask("echo")
        process = client._workbench._process
        assert process is not None
        await client.close()
        assert process.returncode is not None
        assert not client.is_running
        await client.close()

    run(story)


def test_without_the_engine_the_answer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench_client, "engine_is_installed", lambda: False)

    async def story(client: WorkbenchClient) -> None:
        with pytest.raises(EngineMissing, match=r'pip install "tidegate\[spark\]"'):
            await client.ask("echo")

    run(story)


def test_too_many_questions_are_refused() -> None:
    async def story(client: WorkbenchClient) -> None:
        asked = [asyncio.create_task(client.ask("echo")) for _ in range(workbench_client.MAX_WAITING + 5)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(one, ServerBusy) for one in results) == 5

    run(story)
