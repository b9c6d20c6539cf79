"""A table of any database with a JDBC driver, which gets each step once.

Spark's tasks commit one by one, so a step goes to a table of its own first. One transaction then copies it to the
target, and notes in ``tidegate_steps`` that the query's output is at this step. A step that is noted is not written
again. The table of an interrupted attempt is noted there as well, and is dropped by the next one.

A driver that dies within the transaction may leave it open, with its locks: its machine has vanished, or its Java
process lives on. The next attempt waits for them, and says so.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import OutputUnavailableError

STEPS = "tidegate_steps"
_MOST_NAME = 120
_LONGEST_LOCK_S = 30
_LONGEST_PAUSE_OF_TRANSACTION_S = 10
_CANCELLED = "57014"


class JdbcConnection(Protocol):
    """One connection to a database, without a transaction unless `transaction` is used."""

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""

    def execute(self, sql: str, *parameters: Any) -> int:
        """Execute a statement, and return how many rows it changed."""

    def transaction(self, work: Callable[[], None]) -> None:
        """Do all of the work, or nothing."""

    def quoted(self, name: str) -> str:
        """Return a column's name as SQL has it."""

    def close(self) -> None:
        """Close the connection."""


def write_step(
    database: JdbcConnection, table: str, owner: str, step: int, columns: Sequence[str], stage: Callable[[str], None]
) -> None:
    """Write a step, unless the database has it.

    Args:
        table: the target, which exists; in the same schema are ``tidegate_steps`` and the table of the step.
        owner: whose steps these are.
        stage: creates a table of the given name with the rows of the step.

    Raises:
        OutputError: the database has a later step, or another run writes.
    """
    schema, dot, _ = table.rpartition(".")
    steps = f"{schema}{dot}{STEPS}"
    reached, leftover = _noted(database, steps, owner)
    if reached > step:
        raise OutputError(
            f"{steps} has step {reached} of this query, and its checkpoint resumes with step {step}: the checkpoint is "
            "older than the table; restore both, or write to another table"
        )
    if leftover:
        database.execute(f"DROP TABLE IF EXISTS {leftover}")
    if reached == step:
        if leftover:
            database.execute(f"UPDATE {steps} SET staging = NULL WHERE query = ?", owner)
        return
    staging = f"{schema}{dot}tidegate_{uuid.uuid4().hex[:16]}"
    database.execute(f"UPDATE {steps} SET staging = ? WHERE query = ?", staging, owner)
    stage(staging)
    names = ", ".join(map(database.quoted, columns))

    def publish() -> None:
        changed = database.execute(
            f"UPDATE {steps} SET step = ? WHERE query = ? AND step < ? AND staging = ?", step, owner, step, staging
        )
        if changed != 1:
            raise OutputError(f"another run of this query writes to {table}: stop one of them")
        database.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {staging}")

    database.transaction(publish)
    # Outside of the transaction: in some databases DROP commits it.
    database.execute(f"DROP TABLE {staging}")
    database.execute(f"UPDATE {steps} SET staging = NULL WHERE query = ?", owner)


def create_steps_table(database: JdbcConnection, steps: str) -> None:
    """Create the table of steps."""
    database.execute(
        f"CREATE TABLE {steps} (query VARCHAR({_MOST_NAME}) NOT NULL PRIMARY KEY, step BIGINT NOT NULL, "
        "staging VARCHAR(200))"
    )


def _noted(database: JdbcConnection, steps: str, owner: str) -> tuple[int, str | None]:
    """Return the step that the database has, -1 if none, and the table of an interrupted attempt."""
    found = database.query(f"SELECT step, staging FROM {steps} WHERE query = ?", owner)
    if not found:
        database.execute(f"INSERT INTO {steps} (query, step, staging) VALUES (?, -1, NULL)", owner)
        return -1, None
    ((step, staging),) = found
    return int(step), staging


class JdbcSink:
    """A table; see the module."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], owner: str) -> None:
        """
        Raises:
            OutputError: an option is missing, or the session is one of Spark Connect.
        """
        self._spark = spark
        self._options = dict(options)
        named = {name.lower(): value for name, value in options.items()}
        missing = [name for name in ("url", "dbtable") if name not in named]
        if missing:
            raise OutputError(f"format('jdbc') needs option('{missing[0]}', …)")
        if getattr(spark, "_jsc", None) is None:
            raise OutputError("format('jdbc') does not work over Spark Connect; use foreachBatch")
        self._table = named["dbtable"]
        self._owner = owner[:_MOST_NAME]
        self._database: JavaDatabase | None = None

    @property
    def description(self) -> str:
        return f"JdbcSink[{self._table}]"

    def write(self, rows: DataFrame, step: int) -> None:
        schema, dot, _ = self._table.rpartition(".")
        try:
            database = JavaDatabase(self._spark, self._options)
            self._database = database
            try:
                if not database.has_table(f"{schema}{dot}{STEPS}"):
                    create_steps_table(database, f"{schema}{dot}{STEPS}")
                if not database.has_table(self._table):
                    # Like this it has the types, and the createTableColumnTypes, of Spark's own writer.
                    self._save(rows.limit(0), self._table)
                write_step(
                    database, self._table, self._owner, step, rows.columns, lambda staging: self._save(rows, staging)
                )
            finally:
                self._database = None
                database.close()
        except Py4JJavaError as error:
            said = str(error.java_exception.getMessage()).splitlines()
            reason = f"{self.description}: {said[0] if said else 'the database gave no reason'}"
            if _is_timeout(error):
                raise OutputUnavailableError(
                    f"{reason}: {STEPS} has been locked for {_LONGEST_LOCK_S} s; another run writes to it, or one has "
                    "died and the database has not noticed yet"
                ) from error
            raise OutputError(reason) from error

    def interrupt(self) -> None:
        database = self._database
        if database is not None:
            database.cancel()

    def _save(self, rows: DataFrame, table: str) -> None:
        options = {name: value for name, value in self._options.items() if name.lower() != "dbtable"}
        rows.write.format("jdbc").mode("append").options(**options, dbtable=table).save()


def _is_timeout(error: Py4JJavaError) -> bool:
    kind = str(error.java_exception.getClass().getName())
    if kind == "java.sql.SQLTimeoutException":
        return True
    return kind.endswith("SQLException") and error.java_exception.getSQLState() == _CANCELLED


class JavaDatabase:
    """A connection of Spark's Java process, by the driver and dialect that Spark itself uses."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        jdbc = jvm.org.apache.spark.sql.execution.datasources.jdbc
        self._options = jdbc.JdbcOptionsInWrite(jvm.PythonUtils.toScalaMap(dict(options)))
        self._dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._options.url())
        self._connection = self._dialect.createConnectionFactory(self._options).apply(-1)
        self._is_postgresql = str(self._options.url()).startswith("jdbc:postgresql:")
        self._longest_s = _LONGEST_LOCK_S
        self._statement: Any = None

    def has_table(self, table: str) -> bool:
        """Return whether a table exists."""
        statement = self._connection.createStatement()
        try:
            statement.executeQuery(f"SELECT 1 FROM {table} WHERE 1 = 0").close()
        except Py4JJavaError:
            return False
        finally:
            statement.close()
        return True

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        statement = self._prepared(sql, parameters)
        try:
            found = statement.executeQuery()
            count = found.getMetaData().getColumnCount()
            rows = []
            while found.next():
                rows.append(tuple(found.getObject(place + 1) for place in range(count)))
            return rows
        finally:
            statement.close()

    def execute(self, sql: str, *parameters: Any) -> int:
        statement = self._prepared(sql, parameters)
        try:
            return int(statement.executeUpdate())
        finally:
            statement.close()

    def transaction(self, work: Callable[[], None]) -> None:
        self._connection.setAutoCommit(False)
        # Copying the rows of a step takes as long as it takes.
        self._longest_s = 0
        try:
            if self._is_postgresql:
                pause_ms = 1000 * _LONGEST_PAUSE_OF_TRANSACTION_S
                self.execute(f"SET LOCAL idle_in_transaction_session_timeout = {pause_ms}")
            work()
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            self._longest_s = _LONGEST_LOCK_S
            self._connection.setAutoCommit(True)

    def quoted(self, name: str) -> str:
        return str(self._dialect.quoteIdentifier(name))

    def close(self) -> None:
        self._connection.close()

    def cancel(self) -> None:
        """Cancel the statement that another thread waits for."""
        statement = self._statement
        if statement is not None:
            # The statement may have ended meanwhile.
            with contextlib.suppress(Py4JError):
                statement.cancel()

    def _prepared(self, sql: str, parameters: Sequence[Any]) -> Any:
        statement = self._connection.prepareStatement(sql)
        statement.setQueryTimeout(self._longest_s)
        self._statement = statement
        for place, value in enumerate(parameters, start=1):
            if isinstance(value, int):
                statement.setLong(place, value)
            else:
                statement.setString(place, value)
        return statement
