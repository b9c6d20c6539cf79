"""A consumer that ends without a word in the middle of an event, if told at which.

    python -m tests.checkpoints.consumer_child CONNECTION STORE MODE SEEN CRASH_AT|-1

Each handled event's number is added to the file SEEN: before the crash, so that its work is done.
"""

import os
import sys
from pathlib import Path
from typing import Any

from tidegate.checkpoints.consumer import Consumer, Delivery
from tidegate.checkpoints.store import open_store


def main(connection: str, location: str, mode: str, seen: Path, crash_at: int) -> None:
    with seen.open("ab", buffering=0) as file:

        def handle(context: Any, event: Any) -> None:
            number = event.sequence_number
            file.write(b"%d\n" % number)
            if number == crash_at:
                os._exit(9)
            if number == 99:
                consumer.stop()

        consumer = Consumer(
            connection,
            handle,
            eventhub_name="dead",
            store=open_store(location),
            delivery=Delivery(mode),
            batch_size=10,
            load_balancing_interval=0.3,
            partition_ownership_expiration_interval=0.5,
        )
        consumer.run_forever()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]))
