"""Calls of small functions in JavaScript and in Python, per second of processor time, through the same evaluation.

Each function is called for a column of different values, so nothing is saved by calling it once for equal ones.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.frames import Frame, NamedColumns
from tidegate.engine.expressions.registered import available
from tidegate.engine.values.vectors import Vector
from tidegate.job.functions.javascript import JavaScriptFunction
from tidegate.sql.plan import nodes as plan

ROWS = 200_000
RUNS = 5


def hexadecimal(text: str) -> int:
    """Return the number that a text stands for."""
    return int(text, 16)


def fahrenheit(celsius: float, offset: float) -> float:
    """Return another unit of a temperature."""
    return celsius * 1.8 + offset


def label(device: str, level: float) -> str:
    """Return a text of two values."""
    return f"{device.upper()}:{'high' if level > 50 else 'low'}"


SCRIPTS = {
    "hexadecimal": (hexadecimal, "function main(text) { return parseInt(text, 16); }", ("hex",)),
    "fahrenheit": (fahrenheit, "function main(c, offset) { return c * 1.8 + offset; }", ("level", "offset")),
    "label": (
        label,
        "function main(device, level) { return device.toUpperCase() + ':' + (level > 50 ? 'high' : 'low'); }",
        ("device", "level"),
    ),
}


def columns() -> dict[str, Vector]:
    """Return the columns that the functions take."""
    numbers = np.arange(ROWS)
    return {
        "hex": Vector.of([format(number * 7, "x") for number in range(ROWS)]),
        "level": Vector.of_floats(numbers * 0.37 % 100),
        "offset": Vector.of_floats(numbers + 0.5),
        "device": Vector.of([f"device-{number}" for number in range(ROWS)]),
    }


def calls_per_second(function: Callable[..., Any], names: tuple[str, ...]) -> float:
    """Return the median of several runs."""
    given = columns()
    frame = Frame(np.zeros(ROWS, dtype=np.int64), {"": NamedColumns(tuple(given), tuple(given.values()))})
    call = plan.Call("udf.f", tuple(plan.Column(None, (name,)) for name in names))
    taken = []
    for _ in range(RUNS):
        began = time.process_time()
        with available({"udf.f": function}):
            evaluate(call, frame)
        taken.append(time.process_time() - began)
    return ROWS / statistics.median(taken)


def main() -> None:
    """Print a row for each function."""
    print(f"{'function':12} {'JavaScript':>12} {'Python':>12} {'ratio':>6}   calls per second of processor time")
    for name, (in_python, script, names) in SCRIPTS.items():
        javascript = calls_per_second(JavaScriptFunction(script), names)
        python = calls_per_second(in_python, names)
        print(f"{name:12} {javascript:12,.0f} {python:12,.0f} {javascript / python:6.2f}")


if __name__ == "__main__":
    main()
