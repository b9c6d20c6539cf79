"""Jobs as resources: they are created, started, stopped, changed and watched, and each has a supervised process.

`Jobs` is the whole API within a process; the management API, the portal and the command line are layers over it. The
service itself is light: it loads neither the engine nor Spark. Jobs run in processes of their own (`worker`), which
cannot harm the hub or each other, and share what they have in common.
"""

from tidegate.service.error_groups import ErrorGroup
from tidegate.service.errors import (
    Changed,
    InvalidJob,
    JobExists,
    JobNotFound,
    JobsUnavailable,
    SecretsUnreadable,
    ServiceError,
    WrongState,
)
from tidegate.service.job_files import LogPage
from tidegate.service.jobs import Jobs
from tidegate.service.metric_history import EVENTS_READ, Resolution, Sample, Thinning
from tidegate.service.prometheus import JobsCollector
from tidegate.service.resource import JobDocument, JobResource, JobSummary, QueryPeriod, Scale, StartMode
from tidegate.service.shared_spark import SharedSparkSettings
from tidegate.service.states import JobState
from tidegate.service.supervised_job import ResourceLimits, ServiceSettings

__all__ = [
    "EVENTS_READ",
    "Changed",
    "ErrorGroup",
    "InvalidJob",
    "JobDocument",
    "JobExists",
    "JobNotFound",
    "JobResource",
    "JobState",
    "JobSummary",
    "Jobs",
    "JobsCollector",
    "JobsUnavailable",
    "LogPage",
    "QueryPeriod",
    "Resolution",
    "ResourceLimits",
    "Sample",
    "Scale",
    "SecretsUnreadable",
    "ServiceError",
    "ServiceSettings",
    "SharedSparkSettings",
    "StartMode",
    "Thinning",
    "WrongState",
]
