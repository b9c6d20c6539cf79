"""What Tidegate adds to a streaming job: its job file, and how it is beyond what Azure's API tells.

A job is described either in Azure's terms or by a job file, whole, as `properties.jobFile`. It may name files and code
of this machine, so writing it takes an owner. Its secrets are write-only: readers see null, and null keeps the secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tidegate.azure.management.access.requests import ArmError, ArmRequest, bad_request
from tidegate.azure.management.manager.places import time_text
from tidegate.service import JobResource, Scale
from tidegate.service.secrets import says_where

_FILE = "jobfile"
_UNITS = "streamingunits"
_CONTRADICTING = ("inputs", "outputs", "functions", "transformation")


def job_file_of(request: ArmRequest, properties: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the job file in the properties that a client sends, None if there is none.

    Raises:
        ArmError: The caller is no owner, the file is no object, or the job is described in Azure's terms as well.
    """
    given = {key.lower(): value for key, value in properties.items() if value is not None}
    if _FILE not in given:
        return None
    if not request.role.may("Microsoft.Authorization/write"):
        raise ArmError(
            403,
            "AuthorizationFailed",
            f"The client '{request.who}' with the role {request.role.value} cannot use a job file: it may name files "
            "and code of this machine, so it needs the role of an owner.",
        )
    file = given[_FILE]
    if not isinstance(file, dict):
        raise bad_request("properties.jobFile: expected an object, the content of a job file", target=_FILE)
    if described := [name for name in _CONTRADICTING if name in given]:
        raise bad_request(f"properties.jobFile and properties.{described[0]} contradict each other", target=_FILE)
    return file


def is_about_units(properties: Mapping[str, Any]) -> bool:
    """Return whether a change of properties is about nothing but the streaming units."""
    return {key.lower() for key, value in properties.items() if value is not None} <= {_UNITS}


def units_of(properties: Mapping[str, Any]) -> Scale | None:
    """Return the streaming units beside a job file, None without any. Raises ArmError."""
    units = next((value for key, value in properties.items() if key.lower() == _UNITS), None)
    if units is not None and (isinstance(units, bool) or not isinstance(units, int)):
        raise bad_request("properties.streamingUnits is a whole number", target="streamingUnits")
    return None if units is None else Scale(streaming_units=units)


def with_kept_secrets(
    new: Mapping[str, Any], old: Mapping[str, Any], place: str = "", moved: str = ""
) -> dict[str, Any]:
    """Return a job file in which null, which readers see in place of secrets, is what it was.

    Args:
        new: The file, or a section of it.
        old: What it was.
        place: Where the section is in the file, for messages.
        moved: The setting that has changed where the section's secrets would be shown; empty for none.

    Raises:
        ArmError: A secret would be shown to another place than it was given for.
    """
    moved = moved or next((f"{place}{name}" for name in sorted({*new, *old}) if _has_moved(name, new, old)), "")
    kept: dict[str, Any] = {}
    for name, value in new.items():
        before = old.get(name)
        if value is None and before is not None and moved:
            raise bad_request(f"enter {place}{name} again: it was given for another place, and {moved} has changed")
        if value is None:
            kept[name] = before
        elif isinstance(value, Mapping) and isinstance(before, Mapping):
            kept[name] = with_kept_secrets(value, before, f"{place}{name}.", moved)
        else:
            kept[name] = value
    return kept


def more_of(job: JobResource) -> dict[str, Any]:
    """Return the properties of a job that Azure's API does not have."""
    properties = {
        "jobStateReason": job.reason,
        "jobStateSince": time_text(job.state_since),
        "changedDate": time_text(job.changed),
        "startedDate": _time(job.started),
        "streamingUnits": job.scale.streaming_units,
        "restarts": job.restarts,
        "process": job.process,
        "placement": None if job.placement is None else dict(job.placement),
    }
    return {name: value for name, value in properties.items() if value is not None}


def query_versions(job: JobResource) -> list[dict[str, Any]]:
    """Return the queries that a job has run, the oldest first, and which results are whose."""
    return [
        {
            "query": version.query,
            "since": version.since,
            "resultsFrom": version.results_from,
            "resultsBefore": version.results_before,
            "firstRows": dict(version.first_rows),
        }
        for version in job.versions
    ]


def _has_moved(name: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    value, before = new.get(name), old.get(name)
    if not (name == "type" or says_where(name)) or isinstance(value, Mapping) or isinstance(before, Mapping):
        return False
    return value != before and not (name in new and value is None)


def _time(time: datetime | None) -> str | None:
    return None if time is None else time_text(time)
