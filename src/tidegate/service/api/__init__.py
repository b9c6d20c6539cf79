"""The HTTP side of the service: jobs below `/management/v1/jobs`, in the terms of the job file.

Azure's management API has jobs in its own terms, which not every setting of a job file has a place in.
"""

from tidegate.service.api.routes import PREFIX, job_routes

__all__ = ["PREFIX", "job_routes"]
