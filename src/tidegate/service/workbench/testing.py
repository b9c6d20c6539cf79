"""Testing a query on samples: the job's own steps, over logs that end, with the rows kept in place of outputs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from tidegate.connectors.model.events import InputLog
from tidegate.connectors.model.metrics import COUNTERS, OUTPUT_EVENTS, add
from tidegate.job.prepare.loading import Job
from tidegate.job.runtime.data_error_tally import DataErrorTally
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.job.runtime.task import local_runner
from tidegate.ordering import Policy, format_ticks
from tidegate.service.workbench.samples import DEFAULT_EVENTS, MAX_EVENTS, job_of, log_ends, uploaded_log

MAX_ROWS = 500
NOT_TIMED = (
    "The uploaded events do not say when they arrived, so the event-ordering policy was not applied. "
    'Lines of {"arrival": …, "partition": …, "body": …} say it.'
)


def tested(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows that a query gives for samples.

    The question has the `definition` with the query to test, how many `events` to sample of each input, and by input
    the text of a file `uploaded` in its place. It may say how many `rows` of each output to return, and that the
    events are taken in the order of their arrival, whatever the policy says (`unordered`).

    Raises:
        JobError: the query cannot run, or an input cannot be read.
    """
    began = time.monotonic()
    job = job_of(question["definition"])
    events = min(int(question.get("events") or DEFAULT_EVENTS), MAX_EVENTS)
    uploaded = {name.lower(): text for name, text in (question.get("uploaded") or {}).items() if text}
    read = {name: job.program.source_of(name).lower() for name in job.program.input_names}
    given = {name: uploaded_log(name, uploaded[source]) for name, source in read.items() if source in uploaded}
    policy, notes = Policy.none() if question.get("unordered") else job.policy, []
    if any(not is_timed for _, is_timed in given.values()):
        policy = Policy.none()
        notes.append(NOT_TIMED)
    most_rows = int(question.get("rows") or MAX_ROWS)
    logs: dict[str, InputLog] = {name: log for name, (log, _) in given.items()}
    if len(given) == len(read):
        return {**_run(job, policy, logs, most_rows, began), "notes": notes}
    with log_ends(job, events) as ends:
        return {**_run(job, policy, {**ends, **logs}, most_rows, began), "notes": notes}


def _run(job: Job, policy: Policy, logs: Mapping[str, InputLog], most_rows: int, began: float) -> dict[str, Any]:
    runner = local_runner(job.program, policy)
    stepper = Stepper(job.program, policy, logs, runner, settings=StepSettings(MAX_EVENTS))
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in job.program.output_names}
    counts = dict.fromkeys(rows, 0)
    metrics: dict[str, int] = {}
    errors = DataErrorTally()
    complete = False
    while not complete:
        step = stepper.step()
        complete = step.complete
        errors.take(step)
        add(metrics, {name: count for name, count in step.counters.items() if name in COUNTERS})
        for left in step.rows:
            counts[left.output] = counts.get(left.output, 0) + len(left.timestamps)
            kept = rows.setdefault(left.output, [])
            room = most_rows - len(kept)
            times = format_ticks(left.timestamps[:room]) if room > 0 else []
            kept += [
                {"time": at, "row": row}
                for at, row in itertools.islice(zip(times, left.to_dicts(), strict=False), room)
            ]
    metrics.pop(OUTPUT_EVENTS, None)
    read = {
        name: {partition: end.end - end.begin for partition, end in log.ends().items()} for name, log in logs.items()
    }
    return {
        "outputs": [{"name": name, "rows": kept, "count": counts[name]} for name, kept in rows.items()],
        "events": {name: sum(events.values()) for name, events in read.items()},
        "partitions": read,
        "metrics": metrics,
        "policy": policy.describe(),
        "errors": [str(one) for one in errors.counts()],
        "dataErrors": [one.as_json() for one in errors.counts()],
        "milliseconds": round((time.monotonic() - began) * 1000),
    }
