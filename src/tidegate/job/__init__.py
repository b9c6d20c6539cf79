"""A job: its definition file, the logs it reads, the step that turns one into the other, and what makes each result
leave once.

Nothing here knows Spark: a step hands tasks to a runner and gets their results, wherever they ran.
"""

from typing import TYPE_CHECKING

from tidegate.lazy import lazy_names

if TYPE_CHECKING:
    from tidegate.connectors.model.errors import (
        FunctionError,
        InputError,
        InputUnavailableError,
        JobError,
        JobQueryError,
        OutputError,
        ProjectError,
        UnavailableError,
    )
    from tidegate.job.config.definition import JobDefinition, read_definition
    from tidegate.job.prepare.loading import Job, load_job
    from tidegate.job.run.run import RunSummary, StepReport, run_job
    from tidegate.job.runtime.step import Step, Stepper
    from tidegate.job.testing.case import Case, CaseResult, case_result, read_case
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "Case",
    "CaseResult",
    "FunctionError",
    "InputError",
    "InputUnavailableError",
    "Job",
    "JobDefinition",
    "JobError",
    "JobQueryError",
    "OutputError",
    "ProjectError",
    "RunSummary",
    "Step",
    "StepReport",
    "Stepper",
    "UnavailableError",
    "case_result",
    "load_job",
    "read_case",
    "read_definition",
    "run_job",
]
