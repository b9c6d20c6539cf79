"""Models behind an endpoint: what they are sent, what becomes of the answers, and what of those that fail."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http_receiver import Answer, Receiver, Request, receiver
from tests.job.prepare.test_functions import rows_of
from tests.patience import PATIENCE_S
from tidegate.engine.values.vectors import Datetime
from tidegate.job import JobError, JobQueryError, load_job
from tidegate.job.functions import azure_ml
from tidegate.job.functions.azure_ml import AzureMLFunction, ModelEndpoint, ModelSignature, to_declared
from tidegate.job.functions.row_model import ModelError

KEY = "kEy-that-nobody-sees"
JOB = """
name = "score"
query = "SELECT device, udf.score(age, income) AS score INTO out FROM i"
[inputs.i]
type = "recorded"
path = "log.jsonl"
[functions.score]
type = "azureml"
endpoint = "{url}/score?api-version=2.0"
api_key = "${{SCORE_KEY}}"
inputs = ["age", "income"]
output = "Scored Labels"
output_type = "float"
"""


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What calls wait for before they try again."""
    seconds: list[float] = []
    monkeypatch.setattr(azure_ml, "sleep", seconds.append)
    return seconds


def job_at(folder: Path, there: Receiver, monkeypatch: pytest.MonkeyPatch, *events: Any) -> Path:
    monkeypatch.setenv("SCORE_KEY", KEY)
    (folder / "job.toml").write_text(JOB.format(url=there.url))
    (folder / "log.jsonl").write_text("".join(json.dumps({"body": event}) + "\n" for event in events))
    return folder / "job.toml"


def designer(score: Callable[[Any], Any]) -> Callable[[Request], Answer]:
    """A service of the designer: a row of results for each row of its input."""

    def answer(request: Request) -> Answer:
        rows = request.json["Inputs"]["WebServiceInput0"]
        results = [{**row, "Scored Labels": score(row)} for row in rows]
        return Answer(body=json.dumps({"Results": {"WebServiceOutput0": results}}).encode())

    return answer


def function_at(there: Receiver, form: Any = "records", **settings: Any) -> AzureMLFunction:
    of_endpoint = {name: settings.pop(name) for name in list(settings) if name in ModelEndpoint.__slots__}
    signature = ModelSignature(form, settings.pop("input_name", "data"), **settings)
    return AzureMLFunction(ModelEndpoint(f"{there.url}/score", KEY, **of_endpoint), signature)


def echo(request: Request) -> Answer:
    return Answer(body=json.dumps({"result": request.json["data"]}).encode())


def test_a_job_asks_the_model_once_for_the_arguments_of_a_batch(
    tmp_path: Path, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [{"device": n, "age": 30 + n % 2, "income": 1.5} for n in range(6)]
    there.behaviour = designer(lambda row: str(row["age"] * row["income"]))
    rows, _ = rows_of(load_job(job_at(tmp_path, there, monkeypatch, *events)))
    assert rows == [{"device": n, "score": (30 + n % 2) * 1.5} for n in range(6)]
    (request,) = there.requests
    assert request.path == "/score?api-version=2.0"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    expected = [{"age": 30, "income": 1.5}, {"age": 31, "income": 1.5}]
    assert request.json == {"Inputs": {"WebServiceInput0": expected}, "GlobalParameters": {}}


def test_rows_that_the_model_refuses_fail_and_no_others(
    tmp_path: Path, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Request) -> Answer:
        if any(row["age"] is None for row in request.json["Inputs"]["WebServiceInput0"]):
            return Answer(400, body=f"age is missing {KEY}".encode())
        return designer(lambda row: row["age"])(request)

    there.behaviour = answer
    events = [{"device": n, "age": None if n == 3 else n, "income": 0} for n in range(6)]
    job = load_job(job_at(tmp_path, there, monkeypatch, *events))
    rows, counters = rows_of(job)
    assert [row["device"] for row in rows] == [0, 1, 2, 4, 5]
    assert counters["Runtime Errors"] == 1
    assert KEY not in repr(job)


def test_requests_have_the_form_and_the_size_asked_for(there: Receiver) -> None:
    columns = [[1, 2, 3], ["a", "b", "c"]]
    there.behaviour = echo
    assert function_at(there, "arrays", batch_size=2).call_rows(columns) == [[1, "a"], [2, "b"], [3, "c"]]
    assert [request.json for request in there.requests] == [{"data": [[1, "a"], [2, "b"]]}, {"data": [[3, "c"]]}]
    named = function_at(there, "records", inputs=("n", "t"), output="t")
    assert named.call_rows(columns) == ["a", "b", "c"]
    assert function_at(there, "records").call_rows([[{"n": 1}, {"n": 2}]]) == [{"n": 1}, {"n": 2}]
    there.behaviour = lambda request: Answer(body=json.dumps(json.dumps([len(request.json)] * 3)).encode())
    assert function_at(there, "arrays", input_name="").call_rows(columns) == [3, 3, 3]


def test_a_classic_service_takes_and_gives_tables(there: Receiver) -> None:
    def answer(request: Request) -> Answer:
        table = request.json["Inputs"]["input1"]
        assert table["ColumnNames"] == ["n", "t"]
        values = [[str(row[0] * 2), "x"] for row in table["Values"]]
        value = {"ColumnNames": ["Scored Labels", "more"], "ColumnTypes": ["Int32", "String"], "Values": values}
        return Answer(body=json.dumps({"Results": {"output1": {"type": "table", "value": value}}}).encode())

    there.behaviour = answer
    settings = {"input_name": "input1", "inputs": ("n", "t"), "output": "Scored Labels", "output_type": "bigint"}
    assert function_at(there, "table", **settings).call_rows([[1, 2], ["a", "b"]]) == [2, 4]


def test_requests_run_beside_each_other_and_results_keep_their_order(
    there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3, timeout=PATIENCE_S)
    monkeypatch.setattr(there, "lock", threading.Semaphore(3))

    def answer(request: Request) -> Answer:
        together.wait()
        time.sleep(0.02 * (3 - request.json["data"][0]))
        return echo(request)

    there.behaviour = answer
    function = function_at(there, batch_size=1, parallel_requests=3)
    assert function.call_rows([[0, 1, 2]]) == [0, 1, 2]


def test_what_fails_for_a_moment_is_tried_again(there: Receiver, waits: list[float]) -> None:
    answers = iter([Answer(429, {"Retry-After": "7"}), Answer(503), Answer(0), Answer(500)])
    there.behaviour = lambda request: next(answers, None) or echo(request)
    assert function_at(there).call_rows([[1, 2]]) == [1, 2]
    assert waits == [7.0, 0.4, 0.8]  # a connection that the server closes is opened again at once


def test_what_fails_for_longer_fails_its_rows(there: Receiver, waits: list[float]) -> None:
    there.behaviour = lambda request: Answer(429, body=b"too many")
    failed = function_at(there, attempts=3).call_rows([[1, 2]])
    assert [str(error) for error in failed] == [f"{there.url}/score answered 429: too many; tried 3 times"] * 2
    assert len(there.requests) == 3
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(401, body=f"no {KEY}".encode()), "answered 401: no (hidden); check api_key"),
        (Answer(404), "answered 404; check endpoint"),
        (Answer(302), "answered 302"),
        (Answer(body=b"<html>"), "expected an answer in JSON, got <html>"),
        (Answer(body=b"[1]"), "expected a result for each of 2 rows, got 1"),
        (Answer(body=b'{"a": [1, 2], "b": [1]}'), "expected one list of results in the answer, got the members a, b"),
        (Answer(body=b'{"error": "no"}'), "got the members error; check output_name"),
        (Answer(body=b'[{"m": 1}, {"m": 2}]'), "expected the output n, got m; check output"),
        (Answer(body=b'[{"n": "x"}, {"n": 1.5}]'), "output: "),
    ],
)
def test_a_wrong_answer_is_one_clear_line_without_the_key(there: Receiver, answer: Answer, said: str) -> None:
    there.behaviour = lambda request: answer
    failed = function_at(there, output="n", output_type="bigint").call_rows([[1, 2]])
    assert len(failed) == 2
    for error in failed:
        assert isinstance(error, ModelError)
        assert said in str(error)
        assert KEY not in str(error)
        assert "\n" not in str(error)


def test_arguments_are_converted_to_the_types_of_the_model(there: Receiver) -> None:
    there.behaviour = echo
    settings = {"inputs": ("a", "b"), "input_types": ("float", "nvarchar(max)")}
    function = function_at(there, **settings)
    values = function.call_rows([["1.5", 2, "x", None], [Datetime(0), 7, 1, True]])
    assert values[0] == {"a": 1.5, "b": "1970-01-01T00:00:00.0000000Z"}
    assert values[1] == {"a": 2.0, "b": "7"}
    assert "could not convert" in str(values[2]) or "expected float" in str(values[2])
    assert values[3] == {"a": None, "b": "true"}


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ("7", "bigint", 7),
        ("9223372036854775807", "bigint", 2**63 - 1),
        ("7.0", "bigint", 7),
        (True, "bigint", 1),
        ("1e3", "float", 1000.0),
        ("True", "bit", True),
        (0, "bit", False),
        ({"a": 1}, "record", {"a": 1}),
        ([1], "array", [1]),
        ("1970-01-01T00:00:01Z", "datetime", Datetime(10_000_000)),
        (None, "bigint", None),
    ],
)
def test_a_value_becomes_one_of_its_declared_type(value: Any, type_: Any, expected: Any) -> None:
    assert to_declared(value, type_) == expected
    assert type(to_declared(value, type_)) is type(expected)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (2**63, "bigint"),
        ("1.5", "bigint"),
        ("inf", "bigint"),
        ("nan", "float"),
        ([], "float"),
        ({}, "bigint"),
        (2, "bit"),
        ("soon", "datetime"),
        ([], "record"),
        ({}, "array"),
    ],
)
def test_a_value_of_another_type_is_refused(value: Any, type_: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        to_declared(value, type_)


def test_it_travels_and_the_key_is_not_in_what_is_shown(there: Receiver) -> None:
    there.behaviour = echo
    function = pickle.loads(pickle.dumps(function_at(there)))
    assert function(5) == 5
    assert KEY not in repr(function)
    assert KEY not in repr(function.identity())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{url}/score", "ftp://x", "[functions.score]: endpoint: expected a URL such as https://host/path"),
        ('type = "azureml"', 'type = "azure"', 'functions.score: expected type = "azureml"'),
        ("endpoint =", "endpont =", "functions.score.endpont: no such setting; did you mean 'endpoint'?"),
        ('inputs = ["age", "income"]', 'input_types = ["bigint"]', "expected 0, got 1"),
        ('inputs = ["age", "income"]', 'request = "table"', "needs 'inputs', the names of the columns"),
        ('inputs = ["age", "income"]', "batch_size = 20000", "functions.score.batch_size: input should be less than"),
        ('api_key = "${{SCORE_KEY}}"', f'api_key = ["{KEY}"]', "functions.score.api_key: input should be a valid"),
    ],
)
def test_a_wrong_section_says_what_to_write(
    tmp_path: Path, there: Receiver, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    path = job_at(tmp_path, there, monkeypatch)
    path.write_text(JOB.replace(old, new).format(url=there.url))
    with pytest.raises(JobError) as caught:
        load_job(path)
    assert said in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_call_with_other_arguments_is_refused(
    tmp_path: Path, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = job_at(tmp_path, there, monkeypatch)
    path.write_text(JOB.replace("(age, income)", "(age)").format(url=there.url))
    with pytest.raises(JobQueryError, match=r"the function takes \(age, income\), not 1 argument"):
        load_job(path)
