"""The provider Microsoft.StreamAnalytics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegate.azure.management.access.requests import GROUP, SUBSCRIPTION, ArmAnswer, ArmRequest, Operation
from tidegate.azure.management.manager.places import Places
from tidegate.azure.management.manager.resource_manager import ResourceKind
from tidegate.azure.management.stream_analytics.insight import JobInsight
from tidegate.azure.management.stream_analytics.jobs import StreamingJobs
from tidegate.azure.management.stream_analytics.local_hubs import LocalHubs
from tidegate.azure.management.stream_analytics.parts import JobParts
from tidegate.azure.management.stream_analytics.queries import query_operations
from tidegate.azure.management.stream_analytics.store import JOBS, PROVIDER, JobStore
from tidegate.azure.management.stream_analytics.trials import Trials
from tidegate.service import Jobs

API_VERSIONS = ("2020-03-01", "2021-10-01-preview", "2016-03-01", "2015-10-01")
MOST_UNITS = 500
"""Of a subscription, in the service; nothing is limited by it here."""


class StreamAnalyticsProvider:
    """Serves the jobs of the service under the paths of Microsoft.StreamAnalytics."""

    namespace = PROVIDER
    kinds: Sequence[ResourceKind] = tuple(
        ResourceKind(name, API_VERSIONS)
        for name in (
            JOBS,
            f"{JOBS}/inputs",
            f"{JOBS}/outputs",
            f"{JOBS}/functions",
            f"{JOBS}/transformations",
            "locations/quotas",
            "locations/compileQuery",
            "locations/testQuery",
            "locations/sampleInput",
            "locations/testInput",
            "locations/testOutput",
            "locations/operationResults",
        )
    )

    def __init__(self, jobs: Jobs, places: Places, hubs: LocalHubs, output_folder: Path) -> None:
        self._store = JobStore(jobs, places, hubs, output_folder)
        self._jobs = StreamingJobs(self._store)
        self._parts = JobParts(self._store)
        self._insight = JobInsight(self._store)
        self._trials = Trials(hubs)

    def operations(self) -> Sequence[Operation]:
        provider = f"providers/{PROVIDER}"
        return [
            *self._jobs.operations(),
            *self._parts.operations(),
            *self._insight.operations(),
            *query_operations(),
            *self._trials.operations(),
            Operation("GET", f"{SUBSCRIPTION}/{provider}/locations/{{location}}/quotas", self._quotas),
            Operation("GET", f"{SUBSCRIPTION}/{provider}/clusters", _nothing),
            Operation("GET", f"{GROUP}/{provider}/clusters", _nothing),
        ]

    def top_level(self, subscription: str, group: str) -> Sequence[dict[str, Any]]:
        request = ArmRequest("GET", "", {"subscription": subscription, "group": group})
        return self._jobs.listed(request, group)

    def delete_group(self, group: str) -> None:
        for job in self._store.listed(group):
            self._store.delete(job)

    def _quotas(self, request: ArmRequest) -> ArmAnswer:
        used = sum(job.scale.streaming_units for job in self._store.jobs.list())
        quota = {
            "id": f"{request.path}/StreamingUnits",
            "name": "StreamingUnits",
            "type": f"{PROVIDER}/quotas",
            "properties": {"maxCount": MOST_UNITS, "currentCount": used},
        }
        return ArmAnswer(body={"value": [quota]})


def _nothing(_request: ArmRequest) -> ArmAnswer:
    return ArmAnswer(body={"value": []})
