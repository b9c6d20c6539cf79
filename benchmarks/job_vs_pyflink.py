"""A tumbling count and average: a job compared with the same query in PyFlink's SQL, over the same events.

    python -m benchmarks.job_vs_pyflink [EVENTS] [RUNS]

The backlog of job_backlog. The job reads it from the hub; Flink reads the same bodies as JSON lines from files, which
costs it no network and no broker, in streaming mode on its local mini cluster with parallelism 2. Its query is SQL
alone, so that no event passes through Python. The mini cluster is up before anything is measured, the sides take turns,
and the ratio is of medians. The processor time of all processes of a side is printed next to its time.

PyFlink needs other versions of Tidegate's dependencies, so it is installed once into its own environment.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks._backlog import PARTITIONS, ProcessorTime, fill, job_session, ours
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer

BUILD = Path(__file__).parent.parent / "build"
OURS, FLINK = "Tidegate job", "PyFlink"
VERSION = "2.3.0"
SQL = """SELECT System.Timestamp() AS window_end, device, COUNT(*) AS n, AVG(speed) AS mean INTO results
FROM i TIMESTAMP BY entry_time GROUP BY device, TumblingWindow(second, 10)"""


def flink_python() -> Path:
    """The interpreter of PyFlink's environment, which is made where there is none."""
    folder = BUILD / "pyflink"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"], check=True)
    return python


class Flink:
    """A mini cluster that runs the query whenever it is asked to."""

    def __init__(self, files: Path) -> None:
        command = [str(flink_python()), str(Path(__file__).parent / "_flink_tumbling.py"), str(files)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while self._line() != "ready":
            pass

    def run(self) -> tuple[float, int]:
        """Seconds and result rows."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        seconds, rows = self._line().split()
        return float(seconds), int(rows)

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"PyFlink ended with {self._process.wait()}")
        return line.strip()


def main(events: int = 5_000_000, runs: int = 5) -> None:
    """Fill a hub, run both in turn, and print the table."""
    figures: dict[str, list[tuple[float, float]]] = {OURS: [], FLINK: []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = NamespaceConfig(name="bench", event_hubs=(EventHubConfig(name="backlog", partition_count=PARTITIONS),))
        with BackgroundServer(config, folder / "data") as server, job_session() as spark:
            mean = fill(server, events, folder / "texts")
            print(
                f"{events:,} events of {mean} bytes in {PARTITIONS} partitions, 2 cores, {runs} runs each", flush=True
            )
            flink = Flink(folder / "texts")
            processor = ProcessorTime()
            # The first run of each warms up the JVMs and is not counted.
            for run in range(runs + 1):
                for name in figures:
                    used = processor.seconds()
                    if name == FLINK:
                        took, rows = flink.run()
                    else:
                        took, rows, _ = ours(folder / "job", server.connection_string, spark, SQL)
                    used = processor.seconds() - used
                    print(f"  run {run}, {name}: {took:.1f} s, {used:.1f} s CPU, {rows:,} rows", flush=True)
                    if run:
                        figures[name].append((took, used))
            flink.close()
    medians = {
        name: [statistics.median(column) for column in zip(*taken, strict=True)] for name, taken in figures.items()
    }
    print(f"\n{'':16}{'median s':>10}{'events/s':>12}{'times':>8}{'CPU s':>10}{'times':>8}")
    for name, (took, used) in medians.items():
        ours_s, ours_cpu = medians[OURS]
        print(f"{name:16}{took:>10.1f}{events / took:>12,.0f}{took / ours_s:>8.2f}{used:>10.1f}{used / ours_cpu:>8.2f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
