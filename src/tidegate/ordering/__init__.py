"""Event ordering: the policy, the scan that gives every event its System.Timestamp, watermarks, start-time arithmetic.

Times are int64 ticks of 100 ns since 1970-01-01T00:00:00Z, in numpy columns. Nothing here reads a clock or waits: an
event's stamp follows from its own times and from the events before it on the same timeline.
"""

from tidegate.ordering.emission import Advances, Emission
from tidegate.ordering.explanation import Explanation, explain
from tidegate.ordering.key_index import KeyIndex, Keys, hashes_of
from tidegate.ordering.policy import Action, Policy, PolicyError, read_from
from tidegate.ordering.scan_summary import ScanSummary
from tidegate.ordering.substreams import SubstreamCarry, SubstreamKeys, scan_substreams, substream_watermarks
from tidegate.ordering.ticks import (
    END_OF_TIME,
    NO_TIME,
    TICKS_PER_DAY,
    TICKS_PER_HOUR,
    TICKS_PER_MICROSECOND,
    TICKS_PER_MILLISECOND,
    TICKS_PER_MINUTE,
    TICKS_PER_SECOND,
    format_duration,
    format_ticks,
    format_time,
    parse_time,
    short_time,
    text_of_ticks,
)
from tidegate.ordering.timeline import (
    ADJUSTED,
    DATA_ERRORS,
    DROPPED,
    EARLY,
    INVALID_KEY,
    INVALID_TIMESTAMP,
    LATE,
    OK,
    OUT_OF_ORDER,
    Carry,
    Stamps,
    arrival_floor,
    counts,
    merge,
    running_arrival,
    scan,
    scan_arrival,
    watermark,
)
from tidegate.ordering.tuning import Disorder, TuningOutcome, measure, tune

__all__ = [
    "ADJUSTED",
    "DATA_ERRORS",
    "DROPPED",
    "EARLY",
    "END_OF_TIME",
    "INVALID_KEY",
    "INVALID_TIMESTAMP",
    "LATE",
    "NO_TIME",
    "OK",
    "OUT_OF_ORDER",
    "TICKS_PER_DAY",
    "TICKS_PER_HOUR",
    "TICKS_PER_MICROSECOND",
    "TICKS_PER_MILLISECOND",
    "TICKS_PER_MINUTE",
    "TICKS_PER_SECOND",
    "Action",
    "Advances",
    "Carry",
    "Disorder",
    "Emission",
    "Explanation",
    "KeyIndex",
    "Keys",
    "Policy",
    "PolicyError",
    "ScanSummary",
    "Stamps",
    "SubstreamCarry",
    "SubstreamKeys",
    "TuningOutcome",
    "arrival_floor",
    "counts",
    "explain",
    "format_duration",
    "format_ticks",
    "format_time",
    "hashes_of",
    "measure",
    "merge",
    "parse_time",
    "read_from",
    "running_arrival",
    "scan",
    "scan_arrival",
    "scan_substreams",
    "short_time",
    "substream_watermarks",
    "text_of_ticks",
    "tune",
    "watermark",
]
