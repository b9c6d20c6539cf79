"""Jobs as the API shows them, and what requests say about them. Names are in camel case; secrets are null."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tidegate.service import JobResource, StartMode

_START_MODES = {
    "now": StartMode.NOW,
    "last": StartMode.LAST,
    "custom": StartMode.CUSTOM,
    **{mode.value.lower(): mode for mode in StartMode},
}


class _Body(BaseModel):
    """A request's body: an unknown member is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class JobCreation(_Body):
    """A new job."""

    definition: dict[str, Any] = Field(description="the content of a job file; paths are absolute")
    streaming_units: int = Field(default=1, description="what the job may use: 1 GiB of memory for each")


class JobChanges(_Body):
    """What to change of a job; a secret that is null in the new definition stays."""

    definition: dict[str, Any] | None = Field(default=None, description="the new content of its job file")
    streaming_units: int | None = Field(default=None, description="what the job may use")


class JobStart(_Body):
    """How a job is started."""

    output_start_mode: str | None = Field(
        default=None, description="JobStartTime (now), CustomTime, or LastOutputEventTime (last), the default"
    )
    output_start_time: datetime | None = Field(default=None, description="for CustomTime")

    @property
    def mode(self) -> StartMode | None:
        """The mode by any of its names; None: the default.

        Raises:
            ValueError: there is no such mode.
        """
        if self.output_start_mode is None:
            return None if self.output_start_time is None else StartMode.CUSTOM
        mode = _START_MODES.get(self.output_start_mode.lower())
        if mode is None:
            names = ", ".join(mode.value for mode in StartMode)
            raise ValueError(f"outputStartMode is one of {names}, got {self.output_start_mode[:100]!r}")
        return mode


def shown(job: JobResource) -> dict[str, Any]:
    """Return a job as the API shows it."""
    return {
        "name": job.name,
        "id": job.job_id,
        "etag": job.etag,
        "state": job.state.value,
        "reason": job.reason,
        "stateSince": _time(job.state_since),
        "created": _time(job.created),
        "changed": _time(job.changed),
        "started": _time(job.started),
        "outputStartMode": None if job.start_mode is None else job.start_mode.value,
        "outputStartTime": _time(job.output_start),
        "lastOutputEventTime": _time(job.last_output),
        "streamingUnits": job.scale.streaming_units,
        "restarts": job.restarts,
        "process": job.process,
        "placement": None if job.placement is None else dict(job.placement),
        "definition": job.definition,
        "versions": [
            {
                "query": version.query,
                "since": version.since,
                "resultsFrom": version.results_from,
                "resultsBefore": version.results_before,
                "firstRows": dict(version.first_rows),
            }
            for version in job.versions
        ],
    }


def summed_up(job: JobResource) -> dict[str, Any]:
    """Return a job as a list of jobs shows it."""
    keys = ("name", "state", "reason", "lastOutputEventTime", "streamingUnits", "restarts")
    return {key: value for key, value in shown(job).items() if key in keys}


def with_kept_secrets(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition in which what is null, as readers see secrets, is what it was."""
    kept: dict[str, Any] = {}
    for name, value in new.items():
        before = old.get(name)
        if value is None:
            kept[name] = before
        elif isinstance(value, Mapping) and isinstance(before, Mapping):
            kept[name] = with_kept_secrets(value, before)
        else:
            kept[name] = value
    return kept


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat().replace("+00:00", "Z")
