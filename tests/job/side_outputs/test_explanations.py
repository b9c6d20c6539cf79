"""Explanations as an output: the same records as `explain` gives, each once, however the job is cut or restarted."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.job.run.test_run import FILES, QUERY, run_here, write_job
from tidegate.connectors.model.errors import JobError
from tidegate.job.analysis.event_explanation import explain_events
from tidegate.job.analysis.replay_source import open_replay_source

OUTPUTS = f"""{FILES}
[outputs.told]
type = "file"
path = "told.jsonl"
[explanations]
output = "told"
"""


def write_explained_job(folder: Path, events: int, more: str = "", query: str = QUERY) -> Path:
    return write_job(folder, events, query, outputs=OUTPUTS + more)


def told_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "told.jsonl").read_text(encoding="utf-8").splitlines()]


def place(record: dict[str, Any]) -> tuple[str, str, int]:
    return record["arrival"], record["partition"], record["sequenceNumber"]


def test_every_event_is_told_as_explain_tells_it_in_order_of_arrival(tmp_path: Path) -> None:
    path = write_explained_job(tmp_path, 80, 'events = "all"\n')
    run_here(path, 17)
    told = told_in(tmp_path)
    assert len(told) == 80
    assert [place(record) for record in told] == sorted(place(record) for record in told)
    with open_replay_source(path) as source:
        expected = [
            explained.as_json()
            for timeline, end in source.ends().items()
            for explained in explain_events(source, timeline, range(end.end))
        ]
    for one in expected:
        del one["notes"]
    assert told == sorted(expected, key=place)


def test_touched_events_are_those_that_a_rule_touched_or_that_were_lost(tmp_path: Path) -> None:
    query = (
        "SELECT k, 1 / (CAST(v AS bigint) % 5) AS x INTO counted FROM i TIMESTAMP BY t "
        "SELECT k INTO large FROM i TIMESTAMP BY t"
    )
    run_here(write_explained_job(tmp_path / "all", 120, 'events = "all"\n', query), 100)
    run_here(write_explained_job(tmp_path / "touched", 120, "", query), 100)
    touched = [
        record
        for record in told_in(tmp_path / "all")
        if record["lost"] or any(row["reasons"] or row["failures"] for row in record["rows"])
    ]
    assert told_in(tmp_path / "touched") == touched
    assert any(record["lost"] for record in touched)
    assert any(row["failures"] for record in touched for row in record["rows"])
    assert 20 < len(touched) < 120


def test_a_share_is_chosen_by_place_alone(tmp_path: Path) -> None:
    run_here(write_explained_job(tmp_path / "whole", 150, 'events = "all"\n'))
    run_here(write_explained_job(tmp_path / "some", 150, 'events = "all"\nshare = 0.2\n'), 31)
    whole, some = told_in(tmp_path / "whole"), told_in(tmp_path / "some")
    assert 15 < len(some) < 60
    assert [record for record in whole if record in some] == some


def test_no_cut_and_no_restart_changes_what_is_told(tmp_path: Path) -> None:
    summary = run_here(write_explained_job(tmp_path / "whole", 120))
    expected = (tmp_path / "whole" / "told.jsonl").read_bytes()
    dice = random.Random(3)
    path = write_explained_job(tmp_path / "cut", 120)
    while True:
        left = dice.randrange(3, 20)

        def stop_sometime(report: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt

        try:
            again = run_here(path, dice.choice([9, 40]), stop_sometime)
            break
        except KeyboardInterrupt:
            continue
    assert (tmp_path / "cut" / "told.jsonl").read_bytes() == expected
    assert again.totals == summary.totals


def test_an_output_of_the_query_is_not_mixed_with_explanations(tmp_path: Path) -> None:
    sections = FILES + '[explanations]\noutput = "Large"\n'
    path = write_job(tmp_path, 5, outputs=sections)
    with pytest.raises(JobError, match="the query itself writes 'Large'; name another output"):
        run_here(path)
