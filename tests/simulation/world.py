"""A world: one machine with a hub and a job, publishers, and what a seed lets happen to them."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest import mock

from tests.job.logs import travelling
from tests.log.support import HeldCommitter
from tests.simulation.machine import SimulatedOs
from tests.simulation.publishers import HUB, SimulatedPublisher, number_of
from tidegate.amqp.messages import parse_message
from tidegate.client import ConnectionString
from tidegate.connectors.inputs.hub_log import HubLog, HubRange, Segments
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import PartitionEnd
from tidegate.hub import EventHubConfig, Namespace, NamespaceConfig
from tidegate.job import JobError, StepReport, load_job, run_job
from tidegate.log import LogClock, SegmentReader
from tidegate.ordering import END_OF_TIME, TICKS_PER_MILLISECOND, format_time, parse_time

PARTITIONS = 2
_CONFIG = NamespaceConfig(name="ns", event_hubs=(EventHubConfig(name=HUB, partition_count=PARTITIONS),))
_CONNECTION = "Endpoint=sb://localhost;SharedAccessKeyName=r;SharedAccessKey=bm9uZQ==;EntityPath=sim"
_START_MS = parse_time("2026-01-01T00:00:00Z") // TICKS_PER_MILLISECOND
_QUERY = """
SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, SUM(n) AS total INTO counted FROM i TIMESTAMP BY t
GROUP BY k, HoppingWindow(second, 10, 5)
SELECT System.Timestamp() AS ts, k, n, LAG(n) OVER (PARTITION BY k LIMIT DURATION(second, 30)) AS before
INTO lagged FROM i TIMESTAMP BY t
SELECT l.n AS n, r.n AS m INTO joined FROM i l TIMESTAMP BY t JOIN i r TIMESTAMP BY t
ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 1 AND 3
"""
OUTPUTS = ("counted", "lagged", "joined")


class InlineLogClock(LogClock):
    """The hub's clock, with a lease that is renewed where it is asked for and not by a thread."""

    def arrival_lower_bound_ms(self) -> int:
        bound = super().arrival_lower_bound_ms()
        if self._renewal.is_set():
            self._renewal.clear()
            try:
                self.renew()
            except OSError:
                return bound
            bound = super().arrival_lower_bound_ms()
        return bound

    def _renew_on_demand(self) -> None:
        """End the thread: nothing may happen by itself."""


@dataclass(frozen=True)
class Seen:
    """An acknowledged event where it was first seen."""

    partition: str
    sequence_number: int
    enqueued_time_ms: int
    event: bytes


class World:
    """Everything a seed decides about. `history` says what happened, a line each."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = random.Random(seed)
        self.history: list[str] = []
        self._folder = folder
        self._os = SimulatedOs(folder / "machine", self.dice)
        (folder / "machine").mkdir(parents=True)
        self._wall_ms = _START_MS
        self._namespace: Namespace | None = None
        self._clock: InlineLogClock | None = None
        self._committer = HeldCommitter()
        self._hub_is_reachable = True
        self._final = False
        self._events = 0
        self._seen: dict[int, Seen] = {}
        self._bounds: list[tuple[str, int, int]] = []
        self._publishers = [
            SimulatedPublisher(str(self.dice.randrange(PARTITIONS)), idempotent=idempotent)
            for idempotent in (True, False, True)
        ]
        self._loss = self.dice.choice([0.0, 0.1, 0.4])

    # The run -----------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Let a number of things happen, bring everything to rest, and check the invariants.

        Raises:
            AssertionError: Something does not hold.
        """
        with self._patched():
            self._start_hub()
            actions = self._actions()
            names = [name for name, weight in actions.items() for _ in range(weight[0])]
            for _ in range(steps):
                name = self.dice.choice(names)
                self._note(f"{name}: {actions[name][1]()}")
                self._check_acknowledged()
            self._come_to_rest()
            self._check_all()
            self._stop_hub()

    def _actions(self) -> dict[str, tuple[int, Callable[[], str]]]:
        """Return how often each thing happens, and what it is."""
        return {
            "event": (10, self._offer),
            "network, publish": (14, self._publish),
            "commit": (8, self._commit),
            "clock, advance": (8, lambda: self._advance(self.dice.choice([1, 50, 700, 3_000]))),
            "clock, jump": (1, lambda: self._advance(60_000)),
            "job": (4, self._run_job),
            "process, job dies": (3, lambda: self._run_job(dies_in=self.dice.randint(0, 40))),
            "network, job cut off": (1, self._cut_off),
            "disk, fails": (1, self._fail_disk),
            "disk, heals": (2, self._heal_disk),
            "process, hub dies": (1, self._kill_hub),
            "disk, power fails": (1, self._lose_power),
            "hub restarts": (1, self._restart_hub),
        }

    def _note(self, line: str) -> None:
        self.history.append(f"{len(self.history):4}  {self._wall_ms - _START_MS:8} ms  {line}")

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Give the modules that write files the simulated `os`, and the job the simulated hub."""
        layers = ("tidegate.log", "tidegate.hub", "tidegate.durable_files", "tidegate.job")
        modules = [
            module
            for name, module in sys.modules.items()
            if isinstance(module, ModuleType) and name.startswith(layers) and getattr(module, "os", None) is os
        ]
        with mock.patch.object(HubLog, "connect", return_value=SimulatedHubLog(self)):
            for module in modules:
                module.__dict__["os"] = self._os
            try:
                yield
            finally:
                for module in modules:
                    module.__dict__["os"] = os

    # Publishing --------------------------------------------------------------------------------------------------

    def _offer(self) -> str:
        bodies = []
        for _ in range(self.dice.choice([1, 1, 2, 5])):
            self._events += 1
            time_ms = self._wall_ms - self.dice.choice([0, 100, 1_000, 4_000, 9_000, -500])
            body = {
                "n": self._events,
                "k": self.dice.choice("ab"),
                "t": format_time(time_ms * TICKS_PER_MILLISECOND),
            }
            bodies.append(json.dumps(body).encode())
        self.dice.choice(self._publishers).offer(bodies)
        return f"{len(bodies)}, up to {self._events}"

    def _publish(self) -> str:
        if self._namespace is None:
            return "no hub"
        publisher = self.dice.choice(self._publishers)
        return publisher.send(self._namespace, self.dice, self._loss)

    def _commit(self) -> str:
        return self._in_hub(self._committer.run)

    # The hub -----------------------------------------------------------------------------------------------------

    @property
    def namespace(self) -> Namespace:
        """The hub, where it is running and reachable. Raises InputError."""
        if self._namespace is None or not self._hub_is_reachable:
            raise InputError("the hub cannot be reached")
        return self._namespace

    def _start_hub(self) -> None:
        self._clock = InlineLogClock(self._folder / "machine" / "clock", wall_ms=lambda: self._wall_ms)
        self._committer = HeldCommitter()
        self._namespace = Namespace.open(
            self._folder / "machine" / "hub", _CONFIG, clock=self._clock, committer=self._committer
        )
        for partition in self._namespace.event_hub(HUB).partitions:
            (partition.log.directory / "log-id").write_text("simulated", encoding="ascii")

    def _stop_hub(self) -> None:
        """Stop in order: what waits is written and answered."""
        if self._namespace is not None:
            self._committer.run()
            for publisher in self._publishers:
                publisher.lose_connection()
            self._namespace.close()
        if self._clock is not None:
            self._clock.close()
        self._namespace = self._clock = None

    def _restart_hub(self) -> str:
        self._os.failing.clear()
        self._stop_hub()
        self._start_hub()
        return "in order"

    def _in_hub(self, work: Callable[[], None]) -> str:
        with self._os.process(None):
            work()
        return "done"

    def _kill_hub(self) -> str:
        """Let the hub die at any file operation of a commit or of its own end."""
        died = True
        with self._os.process(self.dice.randint(0, 12)):
            self._committer.run()
            if self.dice.random() < 0.5:
                self._stop_hub()
            died = False
        self._abandon_hub()
        return ("died" if died else "killed at rest") + self._start_again()

    def _lose_power(self) -> str:
        if self.dice.random() < 0.5:
            with self._os.process(self.dice.randint(0, 12)):
                self._committer.run()
        self._abandon_hub()
        self._os.lose_power()
        return "what was not synced is lost" + self._start_again()

    def _abandon_hub(self) -> None:
        """Release what a dead process held: its locks and descriptors, with nothing written."""
        for publisher in self._publishers:
            publisher.lose_connection()
        with self._os.ghost():
            for thing in (self._namespace, self._clock):
                if thing is not None:
                    thing.close()
        self._namespace = self._clock = None

    def _start_again(self) -> str:
        self._os.failing.clear()
        self._wall_ms += self.dice.choice([0, 500, -20_000])
        self._start_hub()
        return f", up again at {self._wall_ms - _START_MS} ms"

    # Clock, disk, network ----------------------------------------------------------------------------------------

    def _advance(self, milliseconds: int) -> str:
        self._wall_ms += milliseconds
        return f"{milliseconds} ms"

    def _fail_disk(self) -> str:
        self._os.failing = {self.dice.choice(["write", "sync", "replace", "truncate"])}
        return ", ".join(self._os.failing)

    def _heal_disk(self) -> str:
        self._os.failing.clear()
        return "works"

    def _cut_off(self) -> str:
        self._hub_is_reachable = not self._hub_is_reachable
        return "cut off" if not self._hub_is_reachable else "reachable"

    # The job -----------------------------------------------------------------------------------------------------

    def _run_job(self, dies_in: int | None = None) -> str:
        steps = self.dice.randint(1, 4)
        most = self.dice.choice([1, 3, 10, 1_000_000])
        return self._job("job", steps, most, dies_in)

    def _job(self, name: str, steps: int | None, max_events_per_step: int, dies_in: int | None = None) -> str:
        """Run the job for some steps, to the end of the log, or until it dies or cannot continue."""
        taken = 0

        def count(_: StepReport) -> None:
            nonlocal taken
            taken += 1

        looks = 0

        def should_stop() -> bool:
            nonlocal looks
            looks += 1
            return steps is not None and looks > steps

        job = load_job(self._job_file(name))
        outcome = "died"
        with self._os.process(dies_in, is_whole=True), _no_pauses():
            try:
                run_job(
                    job,
                    travelling(job),
                    max_events_per_step=max_events_per_step,
                    on_step=count,
                    should_stop=should_stop,
                )
                outcome = "stopped" if steps is not None else "complete"
            except JobError as error:
                outcome = f"cannot go on: {error}"
        return f"{outcome} after {taken} steps of at most {max_events_per_step}"

    def _job_file(self, name: str) -> Path:
        folder = self._folder / "machine" / name
        path = folder / "job.toml"
        if not path.exists():
            folder.mkdir()
            outputs = "".join(f'[outputs.{output}]\ntype = "file"\npath = "{output}.jsonl"\n' for output in OUTPUTS)
            path.write_text(
                f'name = "sim"\noutput_retry_s = 0\nquery = """{_QUERY}"""\n'
                "[event_ordering]\nlate_arrival_tolerance_s = 5\n"
                f'[inputs.i]\ntype = "eventhub"\nconnection_string = "{_CONNECTION}"\n{outputs}',
                encoding="utf-8",
            )
        return path

    # What must hold ----------------------------------------------------------------------------------------------

    def partition_end(self, partition: str) -> PartitionEnd:
        """Return what the hub says of a partition, and remember its bound. Raises InputError."""
        log = self.namespace.event_hub(HUB).partition(partition).log
        bound = log.arrival_lower_bound()
        self._bounds.append((partition, bound.next_sequence_number, bound.lower_bound_ms))
        return PartitionEnd(
            log.begin_sequence_number,
            bound.next_sequence_number,
            END_OF_TIME if self._final else bound.lower_bound_ms * TICKS_PER_MILLISECOND,
            complete=self._final,
        )

    def directory(self, partition: str) -> Path:
        """Return a partition's folder of segments. Raises InputError."""
        directory = self.namespace.event_hub(HUB).partition(partition).log.directory
        assert directory is not None
        return directory

    def _stored(self) -> dict[int, list[Seen]]:
        """Return all places of each event in the log, by the number in its body."""
        found: dict[int, list[Seen]] = {}
        assert self._namespace is not None
        for partition in self._namespace.event_hub(HUB).partitions:
            number = partition.log.begin_sequence_number
            while batches := partition.log.read_batches(number):
                for stored in batches:
                    for event in stored.events:
                        body = parse_message(event).body
                        seen = Seen(partition.partition_id, number, stored.enqueued_time_ms, event)
                        found.setdefault(number_of(bytes(body[0])), []).append(seen)
                        number += 1
        return found

    def _check_acknowledged(self) -> None:
        """Rule 1: what was acknowledged is where it was first seen."""
        stored = self._stored()
        acknowledged = [
            number_of(body) for publisher in self._publishers for done in publisher.done for body in done.bodies
        ]
        for number in acknowledged:
            places = stored.get(number, [])
            assert places, f"event {number} was acknowledged, and is not in the log"
            first = self._seen.setdefault(number, places[0])
            assert first in places, f"event {number} was {first}, and is {places}"

    def _come_to_rest(self) -> None:
        """Heal everything, publish what waits, and let the job read to the end."""
        self._note("everything heals")
        self._hub_is_reachable, self._loss = True, 0.0
        self._restart_hub()
        for publisher in self._publishers:
            while publisher.waiting:
                self._note(f"network, publish: {publisher.send(self.namespace, self.dice, 0.0)}")
                self._committer.run()
        self._final = True
        self._note(f"job: {self._job('job', None, self.dice.choice([1, 7, 1_000_000]))}")
        self._note(f"undisturbed job: {self._job('undisturbed', None, 1_000_000)}")

    def _check_all(self) -> None:
        self._check_acknowledged()
        stored = self._stored()
        assert len(stored) == self._events
        for publisher in self._publishers:
            if publisher.idempotent:  # rule 2
                numbers = [number_of(body) for done in publisher.done for body in done.bodies]
                places = [stored[number] for number in numbers]
                assert all(len(one) == 1 for one in places), "an idempotent producer's event is stored twice"
                order = [one[0].sequence_number for one in places]
                assert order == sorted(order), "an idempotent producer's events changed places"
        for partition, next_number, bound_ms in self._bounds:  # rule 3
            for seen in (one for places in stored.values() for one in places):
                if seen.partition == partition and seen.sequence_number >= next_number:
                    assert seen.enqueued_time_ms >= bound_ms, f"{seen} arrived before the bound {bound_ms}"
        for output in OUTPUTS:  # rule 4
            disturbed, undisturbed = (
                (self._folder / "machine" / name / f"{output}.jsonl").read_bytes() for name in ("job", "undisturbed")
            )
            assert disturbed == undisturbed, f"{output} differs from that of an undisturbed run"


@contextmanager
def _no_pauses() -> Iterator[None]:
    """Let `time.sleep` return at once in this thread.

    Other threads of the process, which are none of this test's, would otherwise spin.
    """
    sleep, simulated = time.sleep, threading.get_ident()

    def pause(seconds: float) -> None:
        if threading.get_ident() != simulated:
            sleep(seconds)

    with mock.patch("time.sleep", pause):
        yield


class SimulatedHubLog:
    """The hub as a job's input: its answers come from the namespace itself, its events from the segments."""

    def __init__(self, world: World) -> None:
        self._world = world

    def ends(self) -> dict[str, PartitionEnd]:
        return {str(number): self._world.partition_end(str(number)) for number in range(PARTITIONS)}

    def first_at(self, partition: str, arrival: int) -> int:
        end = self._world.partition_end(partition)
        found = SegmentReader(self._world.directory(partition)).sequence_at_time(-(-arrival // TICKS_PER_MILLISECOND))
        return min(found, end.end)

    def range(self, partition: str, start: int, end: int) -> HubRange:
        segments = Segments(str(self._world.directory(partition)), "simulated")
        return HubRange(start, end, partition, "$Default", ConnectionString.parse(_CONNECTION, None), segments)

    def close(self) -> None:
        """Nothing is open."""


def run_world(seed: int, folder: Path, steps: int = 120) -> World:
    """Run the world of a seed.

    Raises:
        AssertionError: Something does not hold; the message has the seed and the last things that happened.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    world = World(seed, folder)
    try:
        world.run(steps)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        told = "\n".join(world.history[-30:])
        raise AssertionError(f"python -m tests.simulation --seed {seed} shows it again\n{told}\n{error!r}") from error
    return world
