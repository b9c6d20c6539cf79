"""Where a job must begin to read so that its output begins at a given time.

The output start time S is the first *output* time (article "Understand time handling", and "How to start a job"). The
query looks back at most L before it. Claim: reading from the first event whose arrival is at least X = S - L - early
gives every stamp of S - L or later exactly as reading from the log's beginning would, reasons and all.

Proof. Let an event have been read before X, so that it and all before it arrived before X.
  * If it was not dropped as early, its own time is at most its arrival + early < S - L.
  * The late rule moves it to at most its arrival, the out-of-order rule to at most the largest stamp before it; by
    induction every stamp before X, hence the largest time seen M there, is below S - L.
So the two runs stand, at X, with the same A from the next event on (its arrival is at least X, more than any before
it) and with two values of M that are both below S - L. This stays so until they are equal: let an event be stamped s
in the full run, with watermark W there and W' in the run that began at X. W and W' are equal or both below S - L.
If equal, so are the stamps. If not, an event that is at or above S - L after the late rule is above both, is touched
by neither and makes M the same in both from there on; an event that is below stays below in both runs, whatever is
done to it. So the stamps of S - L and later are the same, dropping or adjusting. QED

With the early rule off an event of any age may carry a time far ahead, there is no such X, and the log's beginning is
the only safe place. Where ticks have moved A beyond what the broker said, they are part of the log: "first event" is
the first place, events and journalled ticks counted, at which the latest arrival known is at least X.
"""

from __future__ import annotations

from tidegate.ordering.policy import Policy
from tidegate.ordering.ticks import NO_TIME


def read_from(start_ticks: int, lookback_ticks: int, policy: Policy) -> int | None:
    """Return the arrival, in ticks, from which (inclusive) events must be read for output from ``start_ticks`` on.

    ``lookback_ticks``: how far before its own time a result may look back. None: from the log's beginning.
    Raises ValueError for a negative lookback.
    """
    if lookback_ticks < 0:
        raise ValueError("a query cannot look back a negative time")
    if policy.early_ticks is None:
        return None
    return max(NO_TIME, start_ticks - lookback_ticks - policy.early_ticks)
