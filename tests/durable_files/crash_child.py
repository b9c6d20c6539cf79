"""A process that replaces a checked document as fast as it can and says which are durable, until it is killed."""

import os
import sys
from pathlib import Path

from tidegate.durable_files import read_checked, write_checked


def main(path: Path) -> None:
    document = read_checked(path)
    number = int(document["number"]) if document else 0
    while True:
        number += 1
        write_checked(path, {"version": 1, "number": number, "filling": "x" * (number * 37 % 5000)})
        os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
