"""A process that appends as fast as it can and says what was acknowledged, until it is killed."""

import os
import sys
from functools import partial
from pathlib import Path

from tidegate.log import Appended, Committer, LogClock, LogError, PartitionLog


def main(directory: Path, generation: int) -> None:
    clock = LogClock(directory / "clock")
    committer = Committer(2)
    logs = [
        PartitionLog.open(directory / str(number), clock=clock, committer=committer, segment_bytes=200_000)
        for number in range(2)
    ]

    def acknowledge(partition: int, name: bytes, answer: Appended | LogError) -> None:
        if isinstance(answer, Appended):
            line = f"{partition} {answer.first_sequence_number} {answer.first_offset} {answer.enqueued_time_ms} "
            os.write(1, line.encode() + name + b" %d\n" % answer.count)

    number = 0
    lower_bound_ms = clock.arrival_lower_bound_ms()
    os.write(1, b"ready %d\n" % lower_bound_ms)
    while True:
        number += 1
        for partition, log in enumerate(logs):
            name = b"%d.%d.%d" % (generation, partition, number)
            events = [name + b"/%d" % i + b"." * (number * 7 % 300) for i in range(1 + number % 20)]
            log.append(events, partial(acknowledge, partition, name))
        if number % 50 == 0:
            os.write(1, b"bound %d\n" % clock.arrival_lower_bound_ms())
            while logs[0].arrival_lower_bound().next_sequence_number < number * 5:
                pass  # stay a bounded way ahead of the disk


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
