"""A consumer that dies silently in the middle of a given event.

    python -m tests.checkpoints.consumer_child CONNECTION STORE MODE SEEN CRASH_AT|-1

Each event's number is appended to the file SEEN before the crash, so its work counts as done.
"""

import os
import sys
from pathlib import Path
from typing import Any

from tidegate.checkpoints.consumer import Consumer, ConsumerSettings, Delivery
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
            settings=ConsumerSettings(
                delivery=Delivery(mode),
                batch_size=10,
                client_options={"load_balancing_interval": 0.3, "partition_ownership_expiration_interval": 0.5},
            ),
        )
        consumer.run_forever()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]))
