"""The outputs that a job writes in addition to its query's, and whether the settings for them fit the query.

`declared_side_outputs` is the only list of them: everything that needs to know a job's outputs (`job check`, the run,
the sinks) calls it. `tidegate.job.side_outputs` decides what each of them contains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.engine import Program
from tidegate.engine.expressions.relations import is_local
from tidegate.engine.windows.kind import kind_of
from tidegate.job.config.definition import JobDefinition
from tidegate.ordering import Policy
from tidegate.sql.plan import nodes as plan

_KINDS: dict[type, str] = {
    plan.Join: "a join",
    plan.Temporal: "a function over earlier rows",
    plan.Union: "a union",
    plan.Apply: "an APPLY",
    plan.Match: "MATCH_RECOGNIZE",
}


@dataclass(frozen=True, slots=True)
class DeclaredSideOutput:
    """An output that a section of the job file adds to those of the query.

    Attributes:
        output: its name.
        location: the setting that names it, as keys from the top of the job file.
        of: the query's output that it follows; None if it follows none.
    """

    output: str
    location: tuple[str, ...]
    of: str | None = None

    @property
    def setting(self) -> str:
        """Return the setting's name for messages."""
        return ".".join(self.location[:2])


def declared_side_outputs(definition: JobDefinition) -> list[DeclaredSideOutput]:
    """Return every output that the job has beside those of its query."""
    found = []
    if definition.early_results is not None:
        found += [
            DeclaredSideOutput(output, ("early_results", "outputs", of), of)
            for of, output in definition.early_results.outputs.items()
        ]
    if definition.explanations is not None:
        found.append(DeclaredSideOutput(definition.explanations.output, ("explanations", "output")))
    return found


def side_output_problems(
    definition: JobDefinition, program: Program, policy: Policy
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what keeps the side outputs of a job from being written: the setting's location, and a message."""
    outputs = {output.name.lower(): output for output in program.query.outputs}
    seen: dict[str, DeclaredSideOutput] = {}
    for declared in declared_side_outputs(definition):
        name, at = declared.output.lower(), declared.location
        if name in outputs:
            yield at, f"{declared.setting}: the query itself writes '{declared.output}'; name another output"
        if name in seen:
            yield at, f"{declared.setting}: {seen[name].setting} writes '{declared.output}' too; name another output"
        seen.setdefault(name, declared)
        if declared.of is None:
            continue
        output = outputs.get(declared.of.lower())
        if output is None:
            written = ", ".join(program.output_names)
            yield at, f"{declared.setting}: the query has no output '{declared.of}'; it writes {written}"
            continue
        obstacle = "with OVER, each substream has its own watermark" if program.by_substream else None
        obstacle = obstacle or _obstacle_to_early_results(output.relation)
        if obstacle is not None:
            yield (
                at,
                f"{declared.setting}: '{declared.of}' has no early results: {obstacle}; they need a tumbling or "
                "hopping window directly over an input",
            )
    if policy.merged and definition.explanations is not None:
        yield (
            ("explanations",),
            "explanations: they follow the timeline of each partition; remove event_ordering.timelines or "
            "[explanations]",
        )


def _obstacle_to_early_results(relation: plan.Relation) -> str | None:
    """Return why the rows of a relation have no early results, or None if they do."""
    while isinstance(relation, plan.Project | plan.Filter | plan.StepReference):
        relation = relation.relation if isinstance(relation, plan.StepReference) else relation.source
    if not isinstance(relation, plan.Aggregate):
        return f"its rows come from {_KINDS.get(type(relation), 'an input')}, not from a window"
    if not is_local(relation.source):
        return "its window is over the results of another window, a join or a function over earlier rows"
    for named in relation.windows:
        if not kind_of(named.window).ends_are_known:
            return f"the end of a {named.window.word} window is not known in advance"
    return None
