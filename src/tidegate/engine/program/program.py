"""A program: a compiled query, ready to run.

A program holds what follows from the query alone: what each input has to provide, the operators in the order in which
rows flow through them, and how far each output lags behind the watermark of the inputs. It has no state. The
`TaskSide` computes partial results from batches of events, and the `KeyedSide` holds the state and turns partial
results into finished rows.

Readings of inputs: an input with one TIMESTAMP BY and OVER.

An input that a query reads in two ways has two timelines, so it is two inputs to the engine, each with its own
watermark and its own events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.engine.decoding.decoded import Wanted
from tidegate.engine.expressions import registered
from tidegate.engine.expressions.checks import check
from tidegate.engine.expressions.needs import Need, need_of, needs_of
from tidegate.engine.expressions.relations import is_local, streams_of
from tidegate.engine.program.operators import lower_first, operator_of, operator_relations
from tidegate.engine.stateful.join_operator import JoinOperator
from tidegate.engine.stateful.match_operator import MatchOperator
from tidegate.engine.stateful.reference import ReferenceTables, TableVersion
from tidegate.engine.stateful.temporal_operator import TemporalOperator
from tidegate.engine.substreams.separation import components, joins_streams, keyed_by_substreams
from tidegate.engine.windows.panes_operator import PanesOperator
from tidegate.ordering import END_OF_TIME, NO_TIME, Carry, SubstreamCarry
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.walking import fold

Way = tuple[plan.Expr | None, tuple[plan.Expr, ...]]


@dataclass(frozen=True, slots=True)
class Reading:
    """An input, read in one way.

    Attributes:
        name: its name in the program: the input's name, with TIMESTAMP BY and OVER appended for a second reading.
        mention: one of the places where the query reads it this way.
    """

    name: str
    mention: plan.Input

    def has(self, mention: plan.Input) -> bool:
        """Return whether a place in the query reads the input this way."""
        return mention.name.lower() == self.mention.name.lower() and _way(mention) == _way(self.mention)


def readings_of(query: plan.Query) -> dict[str, Reading]:
    """Return the readings of a query by name in lower case, reference data too, in the order of the text."""
    found: dict[str, Reading] = {}
    for mention in query.inputs:
        if any(reading.has(mention) for reading in found.values()):
            continue
        first = next((one for one in found.values() if one.mention.name.lower() == mention.name.lower()), None)
        name = mention.name if first is None else f"{first.mention.name} {_said(mention)}"
        found[name.lower()] = Reading(name, mention)
    return found


def _way(mention: plan.Input) -> Way:
    timestamp_by = None if mention.timestamp_by is None else fold(mention.timestamp_by)
    return timestamp_by, tuple(map(fold, mention.over))


def _said(mention: plan.Input) -> str:
    if mention.timestamp_by is None:
        return "without TIMESTAMP BY"
    over = f" OVER {', '.join(map(expression, mention.over))}" if mention.over else ""
    return f"TIMESTAMP BY {expression(mention.timestamp_by)}{over}"


class Program:
    """A compiled query. Immutable and picklable: it is sent to the tasks.

    Attributes:
        query: its plan.
        functions: registered functions by name, in lower case.
        input_names, output_names: as the query first spells them; reference data is not an input here. See `source_of`.
        lookback_ticks: a result at T depends on no event stamped before T − lookback_ticks.
        leaves: every place where the query mentions an input that comes with time.
        operators: from the inputs up.
        delays: by output, how far its results lag behind the watermark of the inputs, in ticks.
        components: which inputs may meet, if the query keeps its substreams apart; else None.
        local_sides: each operator with its number and those of its sources that tasks compute.
        sides_of_tasks: the numbers of the same operators and sources.
        sides_below_joins: of operators whose rows follow from a join of streams, the other sources whose own do not.
        key_columns: for each operator, the columns whose values decide which rows it takes together, or counts as one.
        joined: for each operator, whether its rows follow from a join of streams.
        joined_outputs: the same for each output.
        tables: the reference data.
    """

    def __init__(
        self,
        query: plan.Query,
        reference: Mapping[str, Sequence[TableVersion]],
        functions: registered.Functions,
        *,
        for_shards: bool = False,
    ) -> None:
        """``for_shards``: rows keep what orders them among the rows of other shards."""
        self.for_shards = for_shards
        self.functions = {name.lower(): function for name, function in functions.items()}
        check(query, self.functions, {name.lower() for name in reference})
        self.query = query
        self.lookback_ticks = query.lookback_ticks
        self.output_names = tuple(output.name for output in query.outputs)
        self._readings = readings_of(query)
        self.input_names = tuple(one.name for one in self._readings.values() if not one.mention.reference)
        self._needs = needs_of(query)
        self._reference = {name.lower(): snapshots for name, snapshots in reference.items()}
        tables = [mention for mention in query.inputs if mention.reference]
        self.tables = ReferenceTables(self._reference, tables, self.wanted)
        self.leaves = [relation for relation in lower_first(query) if isinstance(relation, plan.Input)]
        with registered.available(self.functions):
            self.operators = [operator_of(relation) for relation in operator_relations(query)]
        self._delays: dict[int, int] = {}
        self.delays = [self.delay(output.relation) for output in query.outputs]
        self._delay_ticks = max(self.delays, default=0)
        self.key_columns = [_columns_of_keys(operator.relation) for operator in self.operators]
        self.local_sides = tuple(
            (index, side, operator)
            for index, operator in enumerate(self.operators)
            for side, source in enumerate(operator.sources)
            if is_local(source)
        )
        self._mentions = {
            name: tuple((number, leaf) for number, leaf in enumerate(self.leaves) if reading.has(leaf))
            for name, reading in self._readings.items()
        }
        self.joined = [joins_streams(operator.relation) for operator in self.operators]
        self.sides_of_tasks = frozenset((index, side) for index, side, _ in self.local_sides)
        self.sides_below_joins = frozenset(
            (index, side)
            for index, operator in enumerate(self.operators)
            for side, source in enumerate(operator.sources)
            if self.joined[index] and (index, side) not in self.sides_of_tasks and not joins_streams(source)
        )
        self.joined_outputs = [joins_streams(output.relation) for output in query.outputs]
        apart = not any(isinstance(one, MatchOperator) for one in self.operators)
        once = len({one.mention.name.lower() for one in self._readings.values()}) == len(self._readings)
        self.components = components(query) if apart and once else None
        keyed = keyed_by_substreams(query) if self.components is not None else ()
        for operator in self.operators:
            if isinstance(operator, PanesOperator | TemporalOperator):
                operator.keyed = id(operator.relation) in keyed
            if isinstance(operator, JoinOperator | MatchOperator):
                operator.tied = for_shards

    @classmethod
    def prepare(
        cls,
        query: plan.Query,
        reference: Mapping[str, Sequence[TableVersion]] | None = None,
        functions: registered.Functions | None = None,
    ) -> Program:
        """Compile a query, with the snapshots of its reference data and registered functions by name.

        Raises:
            UnsupportedQuery: this engine cannot run the plan.
        """
        return cls(query, reference or {}, functions or {})

    def with_reference(self, reference: Mapping[str, Sequence[TableVersion]]) -> Program:
        """Return the same query with other snapshots; both programs understand each other's state."""
        return Program(self.query, reference, self.functions, for_shards=self.for_shards)

    def sharded(self) -> Program:
        """Return the same query for a keyed side that is divided into shards."""
        return self if self.for_shards else Program(self.query, self._reference, self.functions, for_shards=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.query, self._reference, self.functions, self.for_shards)

    # Inputs -----------------------------------------------------------------------------------------------------------

    def reading(self, input_name: str) -> Reading:
        """Return how the query reads an input."""
        return self._readings[input_name.lower()]

    def mentions_of(self, input_name: str) -> Sequence[tuple[int, plan.Input]]:
        """Return the places where the query reads an input in this way, with their numbers among all `leaves`."""
        return self._mentions[input_name.lower()]

    def source_of(self, input_name: str) -> str:
        """Return the job's input to read; an input that the query reads with two TIMESTAMP BY is two inputs here."""
        return self.reading(input_name).mention.name

    def has_substreams(self, input_name: str) -> bool:
        """Return whether the input is read with OVER."""
        return bool(self.reading(input_name).mention.over)

    @property
    def by_substream(self) -> bool:
        """Whether results are emitted at their own substream's watermark: OVER is used and keys are kept apart."""
        return self.components is not None

    def has_event_time(self, input_name: str) -> bool:
        """Return whether the input is read with TIMESTAMP BY; else arrivals are the times, without tolerances."""
        return self.reading(input_name).mention.timestamp_by is not None

    def new_carry(self, input_name: str) -> Carry | SubstreamCarry:
        """Return the carry with which the scan of one of the input's partitions begins."""
        return SubstreamCarry() if self.has_substreams(input_name) else Carry()

    def need(self, input_name: str) -> Need:
        """Return the fields and properties of an input that the query uses."""
        return self._needs.get(self.source_of(input_name).lower(), Need())

    def need_of_time(self, input_name: str) -> Need:
        """Return the fields of an input that TIMESTAMP BY uses."""
        by = self.reading(input_name).mention.timestamp_by
        return Need() if by is None else need_of(by)

    def wanted(self, input_name: str) -> Wanted:
        """Return what to decode of a body: `Decoder(program.wanted(name)).decode(bodies)`."""
        need = self.need(input_name)
        declared = self.reading(input_name).mention.declared
        level = self.query.compatibility_level
        return Wanted(
            tuple(need.paths.values()),
            need.record,
            None if declared is None else tuple((column.name, column.type) for column in declared),
            bits=level not in ("1.0", "1.1"),
            lower_case=level == "1.0",
            datetimes=level == "1.0",
        )

    # Operators --------------------------------------------------------------------------------------------------------

    def delay(self, relation: plan.Relation) -> int:
        """Return how far the rows of a relation lag behind the watermark of the inputs, in ticks."""
        if id(relation) not in self._delays:
            own = [operator.delay_ticks for operator in self.operators if operator.relation is relation]
            below = map(self.delay, streams_of(relation))
            self._delays[id(relation)] = 0 if is_local(relation) else sum(own) + max(below, default=0)
        return self._delays[id(relation)]

    def complete_before(self, watermark_ticks: int) -> int:
        """Return up to which time the results of all outputs are complete, given the watermark of the inputs."""
        if watermark_ticks in (NO_TIME, END_OF_TIME):
            return watermark_ticks
        return max(watermark_ticks - self._delay_ticks, NO_TIME)

    def watermark_for(self, complete_ticks: int) -> int:
        """Return the watermark of the inputs at which all outputs are complete up to a time."""
        return complete_ticks if complete_ticks == END_OF_TIME else complete_ticks + self._delay_ticks

    def outputs_ahead(self, complete_ticks: int, until_ticks: int = END_OF_TIME) -> dict[str, int]:
        """Return up to which time outputs with a shorter delay are complete, given the time for all outputs."""
        if complete_ticks in (NO_TIME, END_OF_TIME):
            return {}
        return {
            output.name: min(complete_ticks + self._delay_ticks - delay, until_ticks)
            for output, delay in zip(self.query.outputs, self.delays, strict=True)
            if delay < self._delay_ticks
        }


def _columns_of_keys(relation: plan.Relation) -> tuple[plan.Column, ...]:
    """Return the columns whose values decide which rows an operator takes together."""
    keys: list[plan.Expr] = []
    match relation:
        case plan.Aggregate():
            keys += [*relation.keys, *(key for named in relation.windows for key in named.window.partition_by)]
            keys += [call.args[0] for call in relation.aggregates if call.distinct and call.function == "count"]
        case plan.Temporal():
            keys += [key for call in relation.calls for key in call.partition_by]
        case plan.Match():
            keys += relation.partition_by
    return tuple({fold(key): key for key in keys if isinstance(key, plan.Column)}.values())


def _unpickled(
    query: plan.Query,
    reference: Mapping[str, Sequence[TableVersion]],
    functions: registered.Functions,
    for_shards: bool,
) -> Program:
    return Program(query, reference, functions, for_shards=for_shards)
