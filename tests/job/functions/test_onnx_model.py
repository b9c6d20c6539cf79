"""Models in ONNX files: columns become tensors, and rows that do not fit fail by themselves."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.job.prepare.test_functions import rows_of
from tidegate.job import JobError, JobQueryError, load_job
from tidegate.job.functions.onnx_model import OnnxFunction
from tidegate.job.functions.row_model import ModelError

FLOAT, INT64 = 1, 7
JOB = """
name = "score"
query = "SELECT device, udf.score(a, b) AS score INTO out FROM i"
[inputs.i]
type = "recorded"
path = "log.jsonl"
[functions.score]
type = "onnx"
path = "model.onnx"
"""


def part(number: int, *contents: bytes | str | int) -> bytes:
    """A field of a Protocol Buffers message, once for each content."""
    found = b""
    for content in contents:
        if isinstance(content, int):
            found += bytes([number << 3, content])
            continue
        data = content.encode() if isinstance(content, str) else content
        assert len(data) < 1 << 14
        length = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])
        found += bytes([number << 3 | 2]) + length + data
    return found


def value(name: str, type_: int, *dimensions: int | str) -> bytes:
    shape = b"".join(part(1, part(1, one) if isinstance(one, int) else part(2, one)) for one in dimensions)
    return part(1, name) + part(2, part(1, part(1, type_) + part(2, shape)))


def node(operation: str, output: str, *inputs: str) -> bytes:
    return part(1, *inputs) + part(2, output) + part(4, operation)


def model(nodes: list[bytes], inputs: list[bytes], outputs: list[bytes], weights: bytes = b"") -> bytes:
    graph = part(1, *nodes) + part(2, "g") + (part(5, weights) if weights else b"")
    graph += part(11, *inputs) + part(12, *outputs)
    return part(1, 8) + part(7, graph) + part(8, part(1, "") + part(2, 13))


WEIGHTS = part(1, 2, 1) + part(2, FLOAT) + part(8, "w") + part(9, struct.pack("<2f", 10.0, 0.5))
LINEAR = model([node("MatMul", "y", "x", "w")], [value("x", FLOAT, "N", 2)], [value("y", FLOAT, "N", 1)], WEIGHTS)
BOTH = [value("a", INT64, "N"), value("b", INT64, "N")]
SUMS = model([node("Add", "s", "a", "b")], BOTH, [value("s", INT64, "N")])
SUMS_AND_PRODUCTS = model(
    [node("Add", "s", "a", "b"), node("Mul", "p", "a", "b")], BOTH, [value("s", INT64, "N"), value("p", INT64, "N")]
)
ONE_BY_ONE = model([node("MatMul", "y", "x", "w")], [value("x", FLOAT, 1, 2)], [value("y", FLOAT, 1, 1)], WEIGHTS)


def job_at(folder: Path, content: bytes, *events: Any) -> Path:
    (folder / "model.onnx").write_bytes(content)
    (folder / "job.toml").write_text(JOB)
    (folder / "log.jsonl").write_text("".join(json.dumps({"body": event}) + "\n" for event in events))
    return folder / "job.toml"


def test_a_job_computes_a_model_over_its_columns(tmp_path: Path) -> None:
    events = [{"device": n, "a": n, "b": 2.0} for n in range(4)]
    rows, _ = rows_of(load_job(job_at(tmp_path, LINEAR, *events)))
    assert rows == [{"device": n, "score": 10.0 * n + 1} for n in range(4)]


def test_rows_that_do_not_fit_fail_and_no_others(tmp_path: Path) -> None:
    values = [1, None, 3, "x", 2.5, 6]
    events = [{"device": n, "a": value, "b": 1} for n, value in enumerate(values)]
    rows, counters = rows_of(load_job(job_at(tmp_path, SUMS, *events)))
    assert rows == [{"device": 0, "score": 2}, {"device": 2, "score": 4}, {"device": 5, "score": 7}]
    assert counters["Runtime Errors"] == 3


def test_several_outputs_are_a_record_or_one_of_them() -> None:
    columns = [[1, 2], [3, 4]]
    assert OnnxFunction(SUMS_AND_PRODUCTS).call_rows(columns) == [{"s": 4, "p": 3}, {"s": 6, "p": 8}]
    assert OnnxFunction(SUMS_AND_PRODUCTS, "p").call_rows(columns) == [3, 8]


def test_an_array_is_a_row_of_features_and_null_is_no_number() -> None:
    assert OnnxFunction(LINEAR).call_rows([[[1, 2], [3.0, 4]]]) == [11.0, 32.0]
    missing, wrong = OnnxFunction(LINEAR).call_rows([[None, 1], [2, "x"]])
    assert "is not a value of a query" in str(missing)
    assert "the input x is a tensor(float), got 'x'" in str(wrong)
    (short,) = OnnxFunction(LINEAR).call_rows([[[1.0, 2.0, 3.0]]])
    assert "the model failed" in str(short)


def test_a_model_for_one_row_at_a_time_gets_one() -> None:
    assert OnnxFunction(ONE_BY_ONE).call_rows([[1, 2, 3], [0, 0, 2]]) == [10.0, 20.0, 31.0]


def test_it_travels_as_its_content_which_is_not_shown() -> None:
    function = pickle.loads(pickle.dumps(OnnxFunction(SUMS)))
    assert function(2, 3) == 5
    assert repr(function) == "OnnxFunction(output=None)"
    with pytest.raises(ModelError, match="got 'x'"):
        function(2, "x")


def test_a_changed_model_is_another_job(tmp_path: Path) -> None:
    before = load_job(job_at(tmp_path, SUMS)).fingerprint
    assert load_job(job_at(tmp_path, SUMS)).fingerprint == before
    assert load_job(job_at(tmp_path, LINEAR)).fingerprint != before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("model.onnx", "none.onnx", "[functions.score]: cannot read"),
        ("model.onnx", "log.jsonl", "[functions.score]: cannot use log.jsonl: it is not a model"),
        ('"onnx"', '"onnx"\noutput = "q"', "[functions.score]: cannot use model.onnx: it has no output q; it has s"),
        ('"onnx"', '"onxx"', 'functions.score: expected type = "azureml" or "onnx"'),
    ],
)
def test_a_wrong_section_says_what_to_write(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = job_at(tmp_path, SUMS, {"a": 1})
    path.write_text(JOB.replace(old, new))
    with pytest.raises(JobError) as caught:
        load_job(path)
    assert said in str(caught.value)


def test_a_call_with_other_arguments_is_refused(tmp_path: Path) -> None:
    path = job_at(tmp_path, SUMS)
    path.write_text(JOB.replace("(a, b)", "(a)"))
    with pytest.raises(JobQueryError, match=r"the function takes \(input1, input2\), not 1 argument"):
        load_job(path)
