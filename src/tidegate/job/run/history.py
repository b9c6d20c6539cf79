"""Checks whether the log of a resumed job is still complete: retention may have removed events, or a partition may
have been added."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.engine import Program
from tidegate.job.model.errors import InputError
from tidegate.job.model.events import InputLog
from tidegate.job.run.journal import Commit
from tidegate.ordering import END_OF_TIME, NO_TIME, Policy, format_time, read_from


def check_history(
    logs: Mapping[str, InputLog], commit: Commit, program: Program, policy: Policy, *, accept_missing: bool
) -> list[str]:
    """Return what is missing, may be missing, or is new for a job that resumes from a commit; a sentence per partition.

    Events that are gone and were never read are an error: results would silently lack them. Events that have to be
    read again for windows that were open may be gone as well. What is left of the log does not show whether there were
    any, so that is a warning.

    Raises:
        InputError: events are gone that were never read, and that is not accepted; or a log cannot be read.
    """
    gone: list[str] = []
    doubtful: list[str] = []
    for name, log in logs.items():
        read = commit.positions.get(name, {})
        for partition, end in log.ends().items():
            place = f"input {name}, partition {partition}"
            if partition in read and read[partition] < end.begin:
                gone.append(
                    f"{place}: events {read[partition]:,} to {end.begin - 1:,} were removed before this job read them"
                )
            elif read and partition not in read and commit.released not in (NO_TIME, END_OF_TIME):
                doubtful.append(
                    f"{place} did not exist when the job last ran: results before {format_time(commit.released)} have "
                    "been emitted without its events, and with OVER some may be emitted again"
                )
            elif 0 < end.begin < end.end and commit.released != NO_TIME:
                arrival = read_from(commit.released, program.lookback_ticks, policy)
                if arrival is None or log.first_at(partition, arrival) <= end.begin:
                    since = "its beginning" if arrival is None else format_time(arrival)
                    doubtful.append(
                        f"{place}: the log begins with event {end.begin:,}, but results from "
                        f"{format_time(commit.released)} on may depend on events from {since} on; if there were any, "
                        "the first results may lack them"
                    )
    if gone and not accept_missing:
        raise InputError(
            "the job cannot resume where it stopped: " + "; ".join(gone) + ". Give the hub a longer retention; "
            "--accept-missing resumes without them"
        )
    return [*gone, *doubtful]
