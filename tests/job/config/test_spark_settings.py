"""The section `[spark]` of a job file, and properties written KEY=VALUE."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidegate.job import JobError
from tidegate.job.config.definition import JobDefinition, read_definition
from tidegate.job.config.spark_settings import PLACEMENT_VARIABLE, SparkSettings, WhereRun, parse_property

JOB = """\
name = "j"
query = "SELECT * INTO out FROM tolls"
[inputs.tolls]
type = "recorded"
path = "tolls.json"
"""


def read(folder: Path, section: str) -> JobDefinition:
    path = folder / "job.toml"
    path.write_text(JOB + section, encoding="utf-8")
    return read_definition(path)


def test_a_job_without_the_section_leaves_everything_to_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "").spark == SparkSettings(master=None, ui=False, conf={})


def test_a_job_runs_on_spark_unless_its_owner_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PLACEMENT_VARIABLE, raising=False)
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    assert SparkSettings().where is WhereRun.SPARK
    for place in WhereRun:
        assert SparkSettings(placement=place).where is place
    monkeypatch.setenv(PLACEMENT_VARIABLE, "auto")
    assert SparkSettings().where is WhereRun.AUTO
    assert SparkSettings().why == "TIDEGATE_PLACEMENT says so"
    assert SparkSettings(placement=WhereRun.PROCESS).where is WhereRun.PROCESS
    assert SparkSettings(master="local[1]").where is WhereRun.SPARK
    monkeypatch.setenv(PLACEMENT_VARIABLE, "cloud")
    with pytest.raises(JobError, match="TIDEGATE_PLACEMENT is 'cloud'; set it to one of spark, auto, process"):
        _ = SparkSettings().where


def test_without_java_a_job_runs_in_its_process_unless_it_asks_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PLACEMENT_VARIABLE, raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert SparkSettings().where is WhereRun.PROCESS
    assert SparkSettings().why.startswith("there is no Java on this machine")
    assert SparkSettings(placement=WhereRun.SPARK).where is WhereRun.SPARK
    assert SparkSettings(conf={"spark.executor.memory": "4g"}).where is WhereRun.SPARK


def test_properties_are_texts_however_toml_has_them(tmp_path: Path) -> None:
    """Without quotes a dotted name is a nested table; numbers and truth values are what Spark writes."""
    section = """\
[spark]
master = "spark://one:7077"
ui = true
[spark.conf]
"spark.executor.memory" = "4g"
spark.executor.cores = 2
spark.executor.extraJavaOptions = "-Da=b"
spark.sql.adaptive.enabled = false
spark.memory.fraction = 0.5
"""
    spark = read(tmp_path, section).spark
    assert (spark.master, spark.ui) == ("spark://one:7077", True)
    assert spark.conf == {
        "spark.executor.memory": "4g",
        "spark.executor.cores": "2",
        "spark.executor.extraJavaOptions": "-Da=b",
        "spark.sql.adaptive.enabled": "false",
        "spark.memory.fraction": "0.5",
    }


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("[spark]\nmster = 'local'", "spark.mster: no such setting; did you mean 'master'?"),
        ("[spark.conf]\n'executor.memory' = '4g'", "did you mean 'spark.executor.memory'?"),
        ("[spark.conf]\n'spark.master' = 'local'", "use the setting 'master' of [spark] (or --master)"),
        ("[spark.conf]\n'spark.jars' = ['a', 'b']", "'spark.jars' is a text, a number, true or false, got a list"),
        ("[spark]\nconf = 'spark.jars=a'", "a table is expected"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, section: str, told: str) -> None:
    with pytest.raises(JobError) as caught:
        read(tmp_path, section)
    assert told in str(caught.value)


def test_a_command_line_overrides_the_file_property_by_property() -> None:
    file = SparkSettings(master="local[4]", conf={"spark.a": "file", "spark.b": "file"})
    assert file.overridden(master=None, ui=False, conf={}) == file
    both = file.overridden(master="local[8]", ui=True, conf={"spark.b": "line", "spark.c": "line"})
    assert both == SparkSettings(
        master="local[8]", ui=True, conf={"spark.a": "file", "spark.b": "line", "spark.c": "line"}
    )


def test_a_value_may_have_equals_signs_and_be_empty() -> None:
    assert parse_property("spark.executor.extraJavaOptions=-Da=b") == ("spark.executor.extraJavaOptions", "-Da=b")
    assert parse_property("spark.jars.packages=") == ("spark.jars.packages", "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("spark.executor.memory", "expected KEY=VALUE, such as spark.executor.memory=4g, got 'spark.executor.memory'"),
        ("executor.memory=SECRET", "'executor.memory' is no Spark property"),
        ("=SECRET", "'' is no Spark property: their names start with 'spark.'"),
        ("spark.=SECRET", "'spark.' is no Spark property"),
        ("spark.remote=SECRET", "'spark.remote' cannot be set here"),
    ],
)
def test_text_that_is_no_property_is_an_error_without_its_value(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        parse_property(text)
    assert "SECRET" not in str(caught.value)
