"""What a checkpoint belongs to, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.job import JobError
from tidegate.job.run.journal import Commit, Journal
from tidegate.ordering import NO_TIME, parse_time
from tidegate.spark.queries.arguments import QueryArguments, job_of
from tidegate.spark.streaming.checkpoint import Checkpoint, CheckpointMismatch, CheckpointOwner

QUERY = "SELECT a INTO o FROM i"
KEY = "SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0"


def owner(query: str = QUERY, *, host: str = "h", hub: str = "e", port: int = 5672, **more: object) -> CheckpointOwner:
    string = f"Endpoint=sb://{host}:{port};{KEY};UseDevelopmentEmulator=true"
    inputs = {"i": {"connectionString": string, "eventHub": hub, **more}}
    return CheckpointOwner.of(job_of(QueryArguments(query, inputs), "test"), {"o": None})


@pytest.fixture
def used(tmp_path: Path) -> Checkpoint:
    """A checkpoint whose query has emitted results."""
    checkpoint = Checkpoint(tmp_path)
    checkpoint.claim(owner())
    Journal(Checkpoint(tmp_path).state).write_commit(Commit("journal", "query", parse_time("2026-01-31T12:00:00Z")))
    return checkpoint


def test_the_same_query_may_be_laid_out_otherwise_and_its_hub_be_at_another_port(used: Checkpoint) -> None:
    used.check(owner("SELECT a\n  INTO o FROM i", port=6000, consumerGroup="mine"))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (owner("SELECT b INTO o FROM i"), "its query was 'SELECT a INTO o FROM i', and is 'SELECT b INTO o FROM i'"),
        (owner(host="g"), "input 'i' was h/e, and is g/e"),
        (owner(hub="f"), "input 'i' was h/e, and is h/f"),
    ],
)
def test_another_query_is_refused(used: Checkpoint, other: CheckpointOwner, said: str) -> None:
    with pytest.raises(CheckpointMismatch) as raised:
        used.check(other)
    assert said in str(raised.value)
    assert "up to 2026-01-31T12:00:00.0000000Z, and this query would begin there" in str(raised.value)
    assert raised.value.code == "CHECKPOINT_MISMATCH"


def test_a_checkpoint_without_results_is_anybodys(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.check(owner())
    checkpoint.claim(owner())
    Journal(Checkpoint(tmp_path).state).write_commit(Commit("journal", "query", NO_TIME))
    checkpoint.check(owner(hub="f"))


def test_columns_that_are_not_known_yet_are_those_of_before(used: Checkpoint) -> None:
    known = CheckpointOwner(**{**vars_of(owner()), "columns": {"o": "a bigint"}})
    used.claim(known)
    used.check(owner())
    used.claim(owner())
    with pytest.raises(CheckpointMismatch, match="the columns of 'o' were a bigint, and are a string"):
        used.check(CheckpointOwner(**{**vars_of(owner()), "columns": {"o": "a string"}}))


def vars_of(one: CheckpointOwner) -> dict[str, object]:
    return {name: getattr(one, name) for name in ("query", "event_ordering", "inputs", "columns")}


def test_no_secret_is_kept(used: Checkpoint) -> None:
    assert "c2VjcmV0" not in "".join(path.read_text() for path in used.state.iterdir())


def test_an_identity_is_kept_and_a_damaged_one_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint.at(f"file://{tmp_path}/new")
    assert checkpoint.identity() == checkpoint.identity()
    (checkpoint.folder / "metadata").write_text(json.dumps({"id": "x"}))
    with pytest.raises(JobError, match="metadata is damaged: expected the identity of a query"):
        checkpoint.identity()
