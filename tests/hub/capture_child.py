"""A process to be killed: publishes to a log and captures it, in a time that runs six hundred times as fast.

    python -m tests.hub.capture_child FOLDER DESTINATION publish|drain

Each event's body is the sequence number it is to have. `drain` publishes nothing and ends when all is captured.
"""

import sys
import threading
import time
from pathlib import Path

from tests.hub.archives import NAMES, description
from tidegate.amqp.messages import Message, encode_message
from tidegate.hub.capture.partition_capture import CaptureWriter
from tidegate.hub.capture.store import open_store
from tidegate.log import Appended, Committer, LogError, PartitionLog

SPEED = 600
BEGIN_S = 1_700_000_000
SIZE_LIMIT = 300_000


class FastClock:
    """Monotonic over restarts, as the machine's clock is that it comes from."""

    def now_ms(self) -> int:
        return int((time.time() - BEGIN_S) * 1000 * SPEED)

    def arrival_lower_bound_ms(self) -> int:
        return self.now_ms()


def publish(log: PartitionLog) -> None:
    """Appends of growing size, one after the other, for ever."""
    durable = threading.Event()

    def on_durable(result: Appended | LogError) -> None:
        assert isinstance(result, Appended)
        durable.set()

    while True:
        first = log.next_sequence_number
        numbers = range(first, first + 1 + first % 97)
        durable.clear()
        bodies = [b"%d %b" % (number, bytes(number % 300)) for number in numbers]
        log.append([encode_message(Message(body_kind="data", body=[body])) for body in bodies], on_durable)
        durable.wait()


def main(folder: Path, destination: str, draining: bool) -> None:
    clock = FastClock()
    log = PartitionLog.open(folder / "log", clock=clock, committer=Committer(threads=1))
    settings = description(size_limit_in_bytes=SIZE_LIMIT, skip_empty_archives=True)
    writer = CaptureWriter(log, NAMES, settings, open_store(destination))
    print("ready", flush=True)
    if not draining:
        threading.Thread(target=publish, args=(log,), daemon=True).start()
    while not draining or writer.keep_from < log.next_sequence_number:
        if not writer.step(clock.now_ms()):
            time.sleep(0.001)
    print(log.next_sequence_number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], draining=sys.argv[3] == "drain")
