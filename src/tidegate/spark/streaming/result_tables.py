"""The table that an output's rows become: with the columns that a caller declares, or else those of the first rows.

Columns are fixed once they are known, and kept beside the steps, so that a restart does not derive others. While they
are not known, rows come to the driver; from then on executors encode them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidegate.connectors.model.state_file import read_state, write_state
from tidegate.engine import ResultRows
from tidegate.job import Job
from tidegate.spark.queries.result_schema import ResultSchema, declared_schema, derived_schema, needs_samples

SCHEMA_FILE = "schema.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class AsTable:
    """Turns rows into tables; executors get a copy."""

    schema: ResultSchema

    def __call__(self, rows: ResultRows) -> pa.Table:
        """Return rows as a table.

        Raises:
            OutputError: a value does not fit into its column.
        """
        return pa.Table.from_batches([self.schema.batch(rows)])


class OutputTable:
    """The columns of one output.

    Attributes:
        as_table: None while the columns are not known.
    """

    def __init__(self, spark: SparkSession, job: Job, output: str, given: str | StructType | None, caller: str) -> None:
        """
        Args:
            given: the columns that the caller declares.
            caller: for messages.

        Raises:
            JobError: the columns do not fit the query, or their file is damaged.
        """
        self._job = job
        self._output = output
        self._caller = caller
        self._path = (job.definition.state_dir or Path()) / "steps" / output.lower() / SCHEMA_FILE
        self.on_known: Callable[[AsTable], None] = lambda as_table: None
        relation = next(one.relation for one in job.program.query.outputs if one.name == output)
        schema: ResultSchema | None
        if given is not None:
            _, schema = declared_schema(spark, given, relation, output, caller)
        elif needs_samples(relation):
            schema = self._kept()
        else:
            _, schema = derived_schema(job.program, output, (), caller)
        self.as_table = None if schema is None else AsTable(schema)

    @property
    def columns(self) -> str | None:
        """The names and types of the columns, as Spark writes them; None while they are not known."""
        if self.as_table is None:
            return None
        schema = self.as_table.schema
        return ", ".join(f"{name} {type_}" for name, type_ in zip(schema.names, schema.shown, strict=True))

    def of(self, rows: ResultRows) -> pa.Table:
        """Return rows as a table; the first ones settle the columns.

        Raises:
            JobError: a value does not fit into its column, or the columns cannot be written.
        """
        if self.as_table is None:
            struct, schema = derived_schema(self._job.program, self._output, [rows], self._caller)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            content = {"version": _VERSION, "query": self._job.fingerprint, "schema": struct.jsonValue()}
            write_state(self._path, content)
            self.as_table = AsTable(schema)
            self.on_known(self.as_table)
        return self.as_table(rows)

    def _kept(self) -> ResultSchema | None:
        """Return the columns that the first rows of the same query had; None if there were none yet."""
        content: dict[str, Any] | None = read_state(self._path, _VERSION)
        if content is None or content["query"] != self._job.fingerprint:
            return None
        return ResultSchema.of(self._output, StructType.fromJson(content["schema"]), declared=False)
