"""Checks whether the log of a resumed job is the one it read, and still complete.

The log may have been replaced, retention may have removed events, or a partition may have been added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import InputLog
from tidegate.engine import Program
from tidegate.job.run.journal import Commit
from tidegate.job.runtime.timelines import LOG_REPLACED, Timeline, first_to_read
from tidegate.ordering import END_OF_TIME, NO_TIME, Policy, format_time, read_from

Value = TypeVar("Value")


def replaced_logs(
    logs: Mapping[str, InputLog], commit: Commit, program: Program, policy: Policy, *, accept: bool
) -> dict[Timeline, str]:
    """Return by timeline what is lost because its log is not the one that a commit has read.

    A log has been replaced if its identity is another one. Without an identity it has been if it ends before what was
    read of it.

    Raises:
        InputError: one was replaced, and that is not accepted; or a log cannot be read.
    """
    found: dict[Timeline, str] = {}
    for name, log in logs.items():
        read, known = commit.positions.get(name, {}), commit.logs.get(name, {})
        ends = log.ends() if read or known else {}
        for partition in sorted({*read, *known}):
            end, position = ends.get(partition), read.get(partition, 0)
            place, lost = f"input {name}, partition {partition}", f"events of the former log from {position:,} on"
            if end is None:
                found[name, partition] = f"{place} no longer exists; results will lack its {lost}"
                continue
            former = known.get(partition)
            if former is not None and end.log_id is not None and former != end.log_id:
                why = LOG_REPLACED
            elif position > end.end:
                why = (
                    f"the log ends with event {end.end - 1:,}, but this job has read up to event {position - 1:,}: it "
                    "was replaced, or restored from an older backup"
                )
            else:
                continue
            first = first_to_read(log, partition, end, commit.released, program, policy)
            skipped = first - end.begin
            early = f"; {skipped:,} events of the present log arrived too early for results to come" if skipped else ""
            found[name, partition] = f"{place}: {why}. Results will lack {lost}, if there were any{early}"
    if found and not accept:
        since = "" if commit.released == NO_TIME else f" after {format_time(commit.released)}"
        raise InputError(
            f"the job cannot resume where it stopped: {'; '.join(found.values())}. Restore the log or correct the "
            f"input; or give a new output start time (--start); --accept-missing resumes with results{since} from the "
            "log as it is now; to compute everything anew, move the state folder and the outputs away"
        )
    return found


def without_logs(commit: Commit, replaced: Collection[Timeline]) -> Commit:
    """Return a commit that has read nothing of the logs that were replaced."""

    def kept(by_input: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, Value]]:
        return {
            name: {partition: value for partition, value in values.items() if (name, partition) not in replaced}
            for name, values in by_input.items()
        }

    return replace(commit, positions=kept(commit.positions), logs=kept(commit.logs))


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
                    f"{place}: events {read[partition]:,} to {end.begin - 1:,} were removed before this job read them "
                    f"({end.begin - read[partition]:,} are lost)"
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
