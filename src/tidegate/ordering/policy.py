"""The event-ordering policy of a job: how far an event may be early, late and out of order, and what happens then.

Source: the "Understand time handling" and "Configuring event ordering policy considerations" articles of Azure Stream
Analytics; ranges and defaults from the job resource (ARM, JobConfig.json). Early arrival is fixed at 5 minutes there;
another value, or none, is an extension, which `Policy.describe` says.

Where a job must begin to read so that its output begins at a given time.

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

from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum

from tidegate.ordering.ticks import END_OF_TIME, NO_TIME, TICKS_PER_MINUTE, TICKS_PER_SECOND, format_duration

EARLY_TICKS = 5 * TICKS_PER_MINUTE
LONGEST_LATE_TICKS = 1_814_399 * TICKS_PER_SECOND
DEFAULT_LATE_TICKS = 5 * TICKS_PER_SECOND


class PolicyError(ValueError):
    """A tolerance or an action that no policy may have; the text says what was given and what is allowed."""


class Action(Enum):
    """What happens to an event that is late or out of order (``eventsOutOfOrderPolicy``; one switch for both)."""

    ADJUST = "adjust"
    DROP = "drop"


@dataclass(frozen=True)
class Policy:
    """Tolerances in ticks of 100 ns. The default is the portal's: 5 min early, 5 s late, 0 s out of order, adjust.

    ``early_ticks``: an event whose time is further than this after its arrival is dropped. None: rule off (extension).
    ``late_ticks``: an event whose time is further than this before its arrival is late. None: never late, wait
    indefinitely (-1 in the service's settings).
    ``merged``: all partitions of an input are one timeline, in the order in which their events were enqueued, as the
    articles of 2017 have it; else each is one.
    ``out_of_order_ticks``: an event further than this behind the largest time seen is out of order. None: never (only
    :meth:`none` has it; such a timeline has no watermark before its input ends).

    Raises PolicyError for a tolerance that is negative or longer than the service allows.
    """

    early_ticks: int | None = EARLY_TICKS
    late_ticks: int | None = DEFAULT_LATE_TICKS
    out_of_order_ticks: int | None = 0
    action: Action = Action.ADJUST
    merged: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        _check("early arrival window", self.early_ticks, END_OF_TIME, "None turns the rule off")
        _check("late arrival tolerance", self.late_ticks, LONGEST_LATE_TICKS, "-1 s waits indefinitely")
        _check("out-of-order tolerance", self.out_of_order_ticks, END_OF_TIME, "0 s reorders nothing")

    @classmethod
    def seconds(
        cls,
        *,
        early: float | Decimal | None = 300,
        late: float | Decimal = 5,
        out_of_order: float | Decimal = 0,
        action: str | Action = Action.ADJUST,
        merged: bool = False,
    ) -> Policy:
        """Return the policy that settings files state in seconds: ``late`` -1 waits forever, ``early`` None is no rule.

        ``action`` is read without regard to case. Raises PolicyError for a value that is out of range, is no whole
        number of ticks, or an action that is neither adjust nor drop.
        """
        if isinstance(action, str):
            try:
                action = Action(action.lower())
            except ValueError:
                raise PolicyError(
                    f"the action for late and out-of-order events is adjust or drop, not {action!r}"
                ) from None
        return cls(
            early_ticks=None if early is None else _ticks("early arrival window", early),
            late_ticks=None if late == -1 else _ticks("late arrival tolerance", late),
            out_of_order_ticks=_ticks("out-of-order tolerance", out_of_order),
            action=action,
            merged=merged,
        )

    @classmethod
    def none(cls) -> Policy:
        """Return the policy of local runs, as the service's tools run a query over a file: no rule, sorted input."""
        return cls(early_ticks=None, late_ticks=None, out_of_order_ticks=None)

    @classmethod
    def arrival_time(cls) -> Policy:
        """Return the policy of a job without TIMESTAMP BY: tolerances are ignored, arrivals are the times.

        With event time = arrival time no event can be early or late, and the watermark is the arrival time itself.
        An event is touched only if the broker's clock, or an estimate of it, went back: it is then moved up to the
        time already reached.
        """
        return cls(early_ticks=0, late_ticks=0, out_of_order_ticks=0)

    @property
    def adjusts(self) -> bool:
        """Whether late and out-of-order events are kept and moved (else they are dropped)."""
        return self.action is Action.ADJUST

    @property
    def is_none(self) -> bool:
        """Whether this is local-run mode (:meth:`none`)."""
        return self.early_ticks is None and self.late_ticks is None and self.out_of_order_ticks is None

    def describe(self) -> str:
        """Return one line about the effective policy, for the start of a job."""
        if self.is_none:
            return "event ordering: none (local run: input sorted by time, nothing adjusted or dropped)"
        if self.early_ticks is None:
            early = "early rule off (extension)"
        else:
            early = f"early more than {format_duration(self.early_ticks)} dropped"
            if self.early_ticks != EARLY_TICKS:
                early += " (extension)"
        verb = "adjusted" if self.adjusts else "dropped"
        if self.late_ticks is None:
            late = "never late (-1: an idle input holds results back for ever)"
        else:
            late = f"late more than {format_duration(self.late_ticks)} {verb}"
        if self.out_of_order_ticks is None:
            order = "never out of order"
        else:
            order = f"out of order more than {format_duration(self.out_of_order_ticks)} {verb}"
        merged = "; partitions merged by enqueued time (as in 2017)" if self.merged else ""
        return f"event ordering: {early}; {late}; {order}{merged}"


def _ticks(name: str, seconds: float | Decimal) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float | Decimal):
        raise PolicyError(f"{name}: a number of seconds is needed, not {seconds!r}")
    # By way of its shortest text, so that 0.1 means a tenth of a second and not its binary neighbour.
    exact = Decimal(str(seconds))
    if not exact.is_finite() or abs(exact) >= Decimal(END_OF_TIME) / TICKS_PER_SECOND:
        raise PolicyError(f"{name}: {seconds} s is no length of time that can be counted")
    ticks = exact * TICKS_PER_SECOND
    if ticks != ticks.to_integral_value():
        raise PolicyError(f"{name}: {seconds} s is finer than 100 ns")
    return int(ticks)


def _check(name: str, ticks: int | None, longest: int, hint: str) -> None:
    if ticks is None or 0 <= ticks <= longest:
        return
    allowed = "at least 0 s" if longest == END_OF_TIME else f"0 to {longest // TICKS_PER_SECOND} s"
    raise PolicyError(f"{name}: {Decimal(ticks) / TICKS_PER_SECOND} s is out of range; allowed is {allowed} ({hint})")


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
