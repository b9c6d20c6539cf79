"""Decodes hostile bodies in a process of its own with little memory; a line of JSON for each."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tidegate.engine import DecodingLimits, Format, Wanted, decoder_of
from tidegate.engine.decoding.content import rows_of

MEMORY_BYTES = 384 << 20
LIMITS = DecodingLimits(event_bytes=16 << 20, file_bytes=16 << 20)


def limit_memory() -> None:
    """Leave this process little more memory than it has; only Linux keeps such a limit."""
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    decoder_of(Wanted((("a",),)), Format("avro")).decode([])  # imports what decoding takes
    limit_memory()
    for line in sys.stdin:
        case = json.loads(line)
        body = Path(case["path"]).read_bytes()
        format_ = Format(case["kind"], compression=case["compression"], limits=LIMITS)
        rejected = []
        began_s = time.monotonic()
        for wanted in (Wanted((("a",),)), Wanted(record=True)):
            decoded = decoder_of(wanted, format_).decode([body, body])
            rejected.append((len(decoded), sorted(set(decoded.rejected_events.tolist()))))
            rows = rows_of(body, format_)
            if len(rows) < 100:
                decoder_of(wanted, format_).decode(rows)
        print(json.dumps([case["name"], rejected, round(time.monotonic() - began_s, 3)]), flush=True)


if __name__ == "__main__":
    main()
