"""Files as an input of a job, in each format, compared with the usual library that reads the same files.

    python -m benchmarks.blob_inputs [--rows N] [--runs N]

The input takes a file in, reads its rows as events and decodes three of five columns, as a task of a job does. The
library reads the file into its own columns: pyarrow for JSON lines, CSV and Parquet (of that the same three columns),
and fastavro, into dicts, for Avro. Rows are per second of processor time, as pyarrow uses several threads. "ratio"
is the median of the ratios of neighbouring runs. The files are in a folder.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from benchmarks._output_rows import AVRO_SCHEMA
from tidegate.connectors.inputs import files
from tidegate.connectors.inputs.files import FilesInput
from tidegate.connectors.inputs.kinds import LogOpening
from tidegate.engine import Wanted, decoder_of

COLUMNS = ["n", "device", "average"]
WANTED = Wanted(tuple((name,) for name in COLUMNS))
BATCH_EVENTS = 50_000


def write_files(folder: Path, count: int) -> dict[str, Callable[[], object]]:
    """Write a file of each format, and return how its library reads it, by the file's name."""
    time_text = "2026-01-01T00:00:00.0000000Z"
    rows = [
        {"n": n, "device": f"device-{n % 997}", "average": n * 0.37, "window_end": time_text, "p": n % 4}
        for n in range(count)
    ]
    table = pa.Table.from_pylist(rows)
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    (folder / "rows.json").write_bytes(lines)
    (folder / "rows.json.gz").write_bytes(gzip.compress(lines, 6))
    pyarrow.csv.write_csv(table, folder / "rows.csv")
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes(), 6))
    pyarrow.parquet.write_table(table, folder / "rows.parquet")
    with (folder / "rows.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(AVRO_SCHEMA), rows, codec="deflate")
    return {
        "rows.json": lambda: pyarrow.json.read_json(folder / "rows.json"),
        "rows.json.gz": lambda: pyarrow.json.read_json(folder / "rows.json.gz"),
        "rows.csv": lambda: pyarrow.csv.read_csv(folder / "rows.csv"),
        "rows.csv.gz": lambda: pyarrow.csv.read_csv(folder / "rows.csv.gz"),
        "rows.avro": lambda: _read_avro(folder / "rows.avro"),
        "rows.parquet": lambda: pyarrow.parquet.read_table(folder / "rows.parquet", columns=COLUMNS),
    }


def _read_avro(path: Path) -> list[object]:
    with path.open("rb") as file:
        return list(fastavro.reader(file))


def read_as_input(path: Path, count: int) -> None:
    """Read a file as a job does."""
    files.file_rows.cache_clear()
    settings = FilesInput(type="files", path=str(path), format=path.name.split(".")[1], watch=False)
    log = settings.open_log(LogOpening())
    ((partition, end),) = log.ends().items()
    runs = log.range(partition, end.begin, end.end).read_events(BATCH_EVENTS)
    found = sum(len(decoder_of(WANTED, events.format).decode(events.bodies).events) for events in runs)
    assert found == count
    log.close()


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Print a row for each format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(f"{'file':14} {'input':>12} {'library':>12} {'ratio':>6}   rows per second of processor time")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        for file, by_library in write_files(Path(name), options.rows).items():
            by_input = partial(read_as_input, Path(name) / file, options.rows)
            pairs = [(_seconds(by_input), _seconds(by_library)) for _ in range(options.runs)]
            ours, theirs = (options.rows / statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(library / own for own, library in pairs)
            print(f"{file:14} {ours:12,.0f} {theirs:12,.0f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
