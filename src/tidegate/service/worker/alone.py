"""`python -m tidegate.service.worker.alone`: the process of a job where a fork server is not to be had.

Its channel is its standard input and output.
"""

from __future__ import annotations

import os

from tidegate.service.worker import process


def main() -> None:
    """Carry out the order on standard input."""
    outgoing = os.dup(1)

    def send(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(outgoing, view) :]

    process.live(lambda size: os.read(0, size), send)


if __name__ == "__main__":
    main()
