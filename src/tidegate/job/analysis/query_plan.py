"""A query's plan for people and programs: what each step reads, where it is computed, and what state it keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.engine.expressions.needs import Need, needs_of
from tidegate.engine.expressions.relations import is_local
from tidegate.engine.program.memory import Memory, memories, of_output
from tidegate.engine.program.operators import operator_relations
from tidegate.engine.sharding.keys import spread_of
from tidegate.sql import Diagnostic
from tidegate.sql.lint import lint
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan import units
from tidegate.sql.plan.explain import duration, expression, line
from tidegate.sql.plan.walking import sources_of

# Quoted text is skipped; anything else refers to a key or aggregate of the GROUP BY below, or to an OVER.
_REFERENCE = re.compile(r"'(?:[^']|'')*'|\b(key|aggregate) (\d+)\b|([^\s(,]+)\.over (\d+)\b")


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One relation of a plan.

    Attributes:
        text: what it does.
        keyed: computed from what all tasks sent; otherwise in the task that read the events.
        spread: how far a keyed one is spread over the shards of a job on Spark.
        reads: for an input, the fields that are read.
        keeps: the state kept between steps.
        sources: the relations it reads.
        repeated: it appears earlier in the plan, and is computed only once.
        operator: its number, if it is an operator with state (`tidegate.engine.Program.operators`).
    """

    text: str
    keyed: bool
    reads: tuple[str, ...] = ()
    keeps: tuple[Memory, ...] = ()
    sources: tuple[PlanNode, ...] = ()
    repeated: bool = False
    spread: str | None = None
    operator: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the node as a JSON object."""
        shown: dict[str, Any] = {
            "step": self.text,
            "where": "shard" if self.keyed else "task",
            "keeps": [_memory(memory) for memory in self.keeps],
        }
        if self.reads:
            shown["reads"] = list(self.reads)
        if self.repeated:
            shown["repeated"] = True
        if self.spread is not None:
            shown["runs"] = self.spread
        if self.operator is not None:
            shown["operator"] = self.operator
        return {**shown, "sources": [source.as_json() for source in self.sources]}


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A plan: its outputs by name, how far back a result may depend on its inputs, and warnings about the query."""

    outputs: tuple[tuple[str, PlanNode], ...]
    lookback_ticks: int
    compatibility_level: str
    warnings: tuple[Diagnostic, ...] = ()

    def text(self) -> str:
        """Return the plan as a tree of text; what is read first comes last."""
        lines = [
            f"compatibility level {self.compatibility_level}",
            f"looks back {spoken(self.lookback_ticks)}: a result depends on no event older than that, and a restart "
            "reads from there",
        ]
        for name, node in self.outputs:
            lines += ["", f"output {name}", *_tree(node, "", last=True)]
        if self.warnings:
            lines += [
                "",
                "doubtful:",
                *(f"  line {one.line}, column {one.column}: {one.message}" for one in self.warnings),
            ]
        return "\n".join(lines)

    def kept(self) -> list[str]:
        """Return a sentence for each piece of state that a job keeps; `job run` logs them when it starts."""
        found: dict[str, None] = {}
        for name, node in self.outputs:
            for part in _all(node):
                for memory in () if part.repeated else part.keeps:
                    found[f"{name}: {memory.sentence()}"] = None
        return list(found)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        return {
            "compatibilityLevel": self.compatibility_level,
            "lookbackSeconds": self.lookback_ticks / 10_000_000,
            "outputs": [{"output": name, **node.as_json()} for name, node in self.outputs],
            "doubts": [
                {"line": one.line, "column": one.column, "message": one.message, "hint": one.hint}
                for one in self.warnings
            ],
        }


def spoken(ticks: int) -> str:
    """Return a duration in all its units, such as 5 h 10 min."""
    parts = []
    for size in (units.DAY, units.HOUR, units.MINUTE, units.SECOND, units.MILLISECOND):
        whole, ticks = divmod(ticks, size)
        if whole:
            parts.append(duration(whole * size))
    return " ".join([*parts, *([duration(ticks)] if ticks else [])]) or "0 s"


def plan_of(query: plan.Query, functions: Mapping[str, Callable[..., Any]] | None = None) -> QueryPlan:
    """Return the plan of a query; `functions` are the registered ones."""
    numbers = {id(relation): number for number, relation in enumerate(operator_relations(query))}
    making = _Making(needs_of(query), functions or {}, spread_of(query), numbers)
    outputs = []
    for output in query.outputs:
        node = making.node(output.relation)
        outputs.append((output.name, replace(node, keeps=(*node.keeps, *of_output(output.relation)))))
    return QueryPlan(tuple(outputs), query.lookback_ticks, query.compatibility_level, tuple(lint(query)))


class _Making:
    def __init__(
        self,
        needs: Mapping[str, Need],
        functions: Mapping[str, Any],
        spread: Mapping[int, str],
        numbers: Mapping[int, int],
    ) -> None:
        self._needs = needs
        self._numbers = numbers
        self._spread = spread
        self._functions = functions
        self._seen: set[int] = set()

    def node(self, relation: plan.Relation) -> PlanNode:
        if isinstance(relation, plan.StepReference) and id(relation.relation) in self._seen:
            return PlanNode(line(relation), not is_local(relation), repeated=True)
        if isinstance(relation, plan.StepReference):
            self._seen.add(id(relation.relation))
        return PlanNode(
            _resolved(relation),
            not is_local(relation),
            self._reads(relation),
            tuple(dict.fromkeys(memories(relation, self._functions))),
            tuple(map(self.node, sources_of(relation))),
            spread=self._spread.get(id(relation)),
            operator=self._numbers.get(id(relation)),
        )

    def _reads(self, relation: plan.Relation) -> tuple[str, ...]:
        if not isinstance(relation, plan.Input):
            return ()
        need = self._needs.get(relation.name.lower(), Need())
        fields = ["the whole event"] if need.record else [".".join(path) for path in need.paths.values()]
        return (*fields, *need.metadata) or ("nothing: events are counted",)


def _resolved(relation: plan.Relation) -> str:
    """Return the text of a relation with its references to the GROUP BY and the OVER below written out."""
    names: dict[str, list[str]] = {}
    below = relation
    while isinstance(below, plan.Project | plan.Filter | plan.Temporal):
        below = below.source
        if isinstance(below, plan.Temporal):
            names[below.alias.lower()] = [_temporal(call) for call in below.calls]
    if isinstance(below, plan.Aggregate):
        names |= {"key": [expression(key) for key in below.keys], "aggregate": _aggregates(below)}

    def written(found: re.Match[str]) -> str:
        kind, number = found[1] or found[3], found[2] or found[4]
        known = names.get((kind or "").lower())
        return found[0] if known is None else known[int(number)]

    return _REFERENCE.sub(written, line(relation))


def _temporal(call: plan.TemporalCall) -> str:
    return f"{call.function}({', '.join(map(expression, call.args))})"


def _aggregates(relation: plan.Aggregate) -> list[str]:
    names = []
    for call in relation.aggregates:
        distinct = "distinct " if call.distinct else ""
        arguments = ", ".join([*map(str, call.parameters), *map(expression, call.args)]) or "*"
        names.append(f"{call.function}({distinct}{arguments})")
    return names


def _tree(node: PlanNode, margin: str, *, last: bool) -> Iterator[str]:
    yield f"{margin}{'└─ ' if last else '├─ '}{node.text}{' (above)' if node.repeated else ''}"
    inner = margin + ("   " if last else "│  ")
    below = inner + ("│  " if node.sources else "   ")
    if node.reads:
        yield f"{below}reads {', '.join(node.reads)}"
    if node.spread is not None:
        yield f"{below}runs {node.spread}"
    for memory in node.keeps:
        yield f"{below}keeps {memory.sentence()}"
    for place, source in enumerate(node.sources, start=1):
        yield from _tree(source, inner, last=place == len(node.sources))


def _all(node: PlanNode) -> Iterator[PlanNode]:
    yield node
    for source in node.sources:
        yield from _all(source)


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        "what": memory.what,
        "forEach": list(memory.keys),
        "seconds": memory.ticks / 10_000_000,
        "panesAWindow": memory.panes,
        "growsWith": memory.growth.value,
        "sentence": memory.sentence(),
    }
