"""Runs a random job on the engine and on the oracle, and says how they differ."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from tests.job.logs import TravellingTasks
from tests.oracle.generation import Job, job_of
from tests.oracle.semantics import Event, Rows, Time, evaluate
from tidegate.connectors.inputs.recorded import RecordedLine
from tidegate.job.testing.case import Case, CaseInput, CasePolicy, CaseResult, case_result
from tidegate.ordering import Policy, format_time


def difference(seed: int) -> str | None:
    """Return what differs for the job of a seed, or None; the text has everything needed to look at it."""
    job = job_of(seed)
    case = case_of(job)
    early, late, out_of_order, action = job.policy
    policy = Policy.seconds(early=early, late=late, out_of_order=out_of_order, action=action)
    results = [case_result(case, TravellingTasks, max_events_per_step=most) for most in job.max_events_per_step]
    found = [line for line in results[0].differences if "cannot run" in line or "reads" in line]
    if not found:
        outputs, metrics = evaluate(job.query, job.events, job.names, policy)
        found = compared(outputs, results[0])
        if _by_output(results[0]) != _by_output(results[1]):
            found.append(f"the order of rows depends on the cut: {job.max_events_per_step} events a step")
        found += _metric_differences(job, metrics, results[0])
    if not found:
        return None
    events = "\n".join(
        f"  {name}: partition {event.partition}, arrival {format_time(event.arrival)}, {json.dumps(event.body)[:200]}"
        for name, of_input in job.events.items()
        if f" {name} " in f"{job.query.sql()} ".replace("\n", " ")
        for event in of_input
    )
    return "\n".join(
        [
            f"seed {seed}: {', '.join(job.features)}",
            job.query.sql(),
            f"policy {job.policy}, steps {job.max_events_per_step}, names {job.names}",
            events,
            *found[:12],
        ]
    )


def case_of(job: Job) -> Case:
    """Return the job as a case file would hold it; events of both inputs in the order of their arrival."""
    early, late, out_of_order, action = job.policy
    lines = sorted(
        ((event.arrival, event.partition, name, event) for name, events in job.events.items() for event in events),
        key=lambda line: line[0],
    )
    return Case(
        name=f"seed {job.seed}",
        query=job.query.sql(),
        inputs=[_line(name, event) for _, _, name, event in lines] or [],
        policy=CasePolicy(early=early, late=late, ooo=out_of_order, action=action),
        reference_data={"names": job.names},
    )


def _line(name: str, event: Event) -> CaseInput:
    line = {
        "input": name,
        "partition": event.partition,
        "arrival": format_time(event.arrival),
        "body": event.body,
    }
    assert issubclass(CaseInput, RecordedLine)
    return msgspec.json.decode(json.dumps(line), type=CaseInput)


def compared(outputs: dict[str, Rows], result: CaseResult) -> list[str]:
    """Return how the engine's rows differ from the oracle's, as multisets of time and row, a line each."""
    expected = Counter(
        _shown(name, format_time(row.time), dict(row.values)) for name, rows in outputs.items() for row in rows
    )
    got = Counter(_shown(row["output"], row["timestamp"], row["row"]) for row in result.rows)
    missing = [f"expected {one}" for one in sorted((expected - got).elements())]
    return missing + [f"got      {one}" for one in sorted((got - expected).elements())]


def _by_output(result: CaseResult) -> dict[str, list[Any]]:
    outputs: dict[str, list[Any]] = {}
    for row in result.rows:
        outputs.setdefault(row["output"], []).append((row["timestamp"], row["row"]))
    return outputs


def _shown(output: str, time: str, row: dict[str, Any]) -> str:
    return f"{output} {time} {json.dumps(_plain(row), sort_keys=True)}"


def _plain(value: Any) -> Any:
    """Return a value as JSON shows it: times as text, floats to twelve digits, −0.0 as 0.0."""
    if isinstance(value, Time):
        return format_time(value.ticks)
    if isinstance(value, float):
        return float(f"{value:.12g}") + 0.0
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value


def _metric_differences(job: Job, metrics: Counter[str], result: CaseResult) -> list[str]:
    """Return the policy's counters that differ; an input that is read in several ways is counted in each."""
    names = {"early": "Early Input Events", "late": "Late Input Events", "out_of_order": "Out-of-Order Events"}
    return [
        f"metric {name}: expected {metrics[reason]}, got {result.metrics.get(name, 0)}"
        for reason, name in names.items()
        if metrics[reason] != result.metrics.get(name, 0)
    ]
