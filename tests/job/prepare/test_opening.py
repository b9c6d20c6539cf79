"""Inputs as a job opens them: what is wrong with one is said with its name."""

from pathlib import Path

import pytest

from tidegate.connectors.model.errors import InputError
from tidegate.job import load_job
from tidegate.job.prepare.opening import open_logs

JOB = """
name = "tolls"
query = "SELECT * INTO o FROM cars"
[inputs.cars]
type = "eventhub"
connection_string = "SharedAccessKeyName=a;SharedAccessKey=b;EntityPath=eh1"
"""


def test_a_connection_string_without_an_endpoint_is_refused_with_the_name_of_its_input(tmp_path: Path) -> None:
    path = tmp_path / "tolls.toml"
    path.write_text(JOB)
    job = load_job(path)
    with pytest.raises(InputError, match=r"^input 'cars': connection string: Endpoint=sb://HOST/ is missing"):
        open_logs(job.definition, job.program, job.policy)
