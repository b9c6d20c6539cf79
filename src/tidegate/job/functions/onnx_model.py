"""Models in ONNX files, computed where a job's tasks run, for all rows of a batch at once.

A model has named inputs and outputs, whose first dimension is the rows. The columns of a query become its tensors: one
for each input, or all of them together in the only input, if that has several features. The runtime uses one thread,
because a job's tasks already use the cores.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tidegate.engine.values.json_lines import plain
from tidegate.engine.values.vectors import is_value
from tidegate.job.functions.row_model import ModelError, RowModel

_NUMBERS = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}
_TEXTS = "tensor(string)"


@dataclass(frozen=True)
class OnnxFunction(RowModel):
    """A model as a function.

    Attributes:
        content: the model's file.
        output: the output that is the value; None for the only one, or a record of all.
    """

    content: bytes = field(repr=False)
    output: str | None = None
    by_rows: ClassVar[bool] = True

    def check(self) -> None:
        """Load the model.

        Raises:
            ModelError: it cannot be used.
        """
        session = _session(self.content)
        for given in session.get_inputs():
            if given.type not in _NUMBERS and given.type != _TEXTS:
                raise ModelError(
                    f"its input {given.name} is a {given.type}; columns become tensors of numbers or texts"
                )
        names = [one.name for one in session.get_outputs()]
        if self.output is not None and self.output not in names:
            raise ModelError(f"it has no output {self.output}; it has {', '.join(names)}")

    @property
    def __signature__(self) -> inspect.Signature:
        """Return what arguments it takes, for checks."""
        count = len(_session(self.content).get_inputs())
        if count == 1:
            return inspect.Signature([inspect.Parameter("features", inspect.Parameter.VAR_POSITIONAL)])
        kind = inspect.Parameter.POSITIONAL_ONLY
        return inspect.Signature([inspect.Parameter(f"input{number}", kind) for number in range(1, count + 1)])

    def call_rows(self, columns: Sequence[Sequence[Any]], count: int | None = None) -> list[Any]:
        """Return its value for each row, or the exception that the row failed with."""
        rows = len(columns[0]) if count is None else count
        return self._computed([[plain(value) for value in column] for column in columns], rows)

    def identity(self) -> tuple[Any, ...]:
        """Return what results depend on."""
        return ("onnx", self.content, self.output)

    def _computed(self, columns: list[list[Any]], rows: int) -> list[Any]:
        """Compute rows together; if that fails, each half by itself, so that only the rows at fault fail."""
        session = _session(self.content)
        fixed = session.get_inputs()[0].shape[:1]
        most = fixed[0] if fixed and isinstance(fixed[0], int) and fixed[0] > 0 else rows
        if rows > most:
            pieces = [[column[first : first + most] for column in columns] for first in range(0, rows, most)]
            return [value for piece in pieces for value in self._computed(piece, len(piece[0]))]
        try:
            return self._run(columns, rows)
        except ModelError as error:
            if rows == 1:
                return [error]
        middle = rows // 2
        halves = ([column[:middle] for column in columns], [column[middle:] for column in columns])
        return self._computed(halves[0], middle) + self._computed(halves[1], rows - middle)

    def _run(self, columns: list[list[Any]], rows: int) -> list[Any]:
        session = _session(self.content)
        inputs = session.get_inputs()
        feeds: dict[str, Any] = {}
        if len(inputs) == 1 and len(columns) != 1:
            together = [list(row) for row in zip(*columns, strict=True)]
            feeds[inputs[0].name] = _tensor(inputs[0], together)
        else:
            for given, column in zip(inputs, columns, strict=True):
                feeds[given.name] = _tensor(given, column)
        wanted = [one.name for one in session.get_outputs()] if self.output is None else [self.output]
        try:
            results = session.run(wanted, feeds)
        except Exception as error:  # The runtime's errors have no common class but this one.
            raise ModelError(f"the model failed: {' '.join(str(error).split())[:160]}") from None
        parts = [_values(name, result, rows) for name, result in zip(wanted, results, strict=True)]
        if len(parts) == 1:
            return parts[0]
        found = []
        for row in zip(*parts, strict=True):
            failed = next((value for value in row if isinstance(value, ModelError)), None)
            found.append(failed or dict(zip(wanted, row, strict=True)))
        return found


def _tensor(given: Any, column: list[Any]) -> Any:
    """Return values as the tensor of an input. Raises ModelError if they are not."""
    is_text = given.type == _TEXTS
    flat = [inner for value in column for inner in (value if isinstance(value, list) else [value])]
    for value in flat:
        if (value is None and given.type.startswith("tensor(float")) or (
            value is None and given.type == "tensor(double)"
        ):
            continue
        if isinstance(value, str) != is_text or not isinstance(value, str | int | float):
            raise ModelError(f"the input {given.name} is a {given.type}, got {value!r:.60}")
        if "int" in given.type and isinstance(value, float) and not value.is_integer():
            raise ModelError(f"the input {given.name} is a {given.type}, got {value!r:.60}")
    try:
        # NULL of a column of floats is NaN.
        array: Any = np.array(column, dtype=np.object_ if is_text else _NUMBERS[given.type])
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"the input {given.name} is a {given.type}: {error}") from None
    return array.reshape(-1, 1) if array.ndim == 1 and len(given.shape) == 2 else array


def _values(name: str, result: Any, rows: int) -> list[Any]:
    """Return an output as a value for each row. Raises ModelError if it has no row for each."""
    values = result.tolist() if isinstance(result, np.ndarray) and result.ndim else result
    if not isinstance(values, list) or len(values) != rows:
        got = len(values) if isinstance(values, list) else "one"
        raise ModelError(f"expected a value of the output {name} for each of {rows} rows, got {got}")
    return [_value(name, value) for value in values]


def _value(name: str, value: Any) -> Any:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, dict):
        # Probabilities by class, whose names may be numbers.
        value = {str(key): inner for key, inner in value.items()}
    return value if is_value(value) else ModelError(f"the output {name} is not a value of a query: {value!r:.60}")


@functools.lru_cache(maxsize=8)
def _session(content: bytes) -> Any:
    """Return a model, loaded once per process. Raises ModelError if it cannot be."""
    try:
        import onnxruntime
    except ImportError:
        raise ModelError('models in ONNX need a runtime: pip install "tidegate[onnx]"') from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # As above.
        raise ModelError(f"it is not a model that the runtime can load: {' '.join(str(error).split())[:160]}") from None
