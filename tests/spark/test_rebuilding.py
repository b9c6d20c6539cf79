"""A shard whose state is gone is computed again on Spark, and the others keep theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.job.run.test_run import run_here, write_job
from tests.spark.test_placement import CHAIN, OUTPUTS
from tidegate.job import StepReport, load_job
from tidegate.job.config.spark_settings import SparkSettings, WhereRun
from tidegate.job.runtime import carries
from tidegate.spark import placement, run_job_on_spark
from tidegate.spark.placement import SparkPlacement
from tidegate.spark.rebuilding import RebuildingShards

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_spark")]

QUERY = CHAIN.replace("udf.once(v)", "v")
BY_SUBSTREAM = """
SELECT System.Timestamp() AS ts, k, COUNT(*) AS n INTO counted FROM i TIMESTAMP BY t OVER k
GROUP BY k, TumblingWindow(second, 60)
SELECT System.Timestamp() AS ts, k, v INTO chained FROM i TIMESTAMP BY t OVER k WHERE v > 3
"""


@pytest.mark.parametrize(
    ("lost", "small_events", "query"),
    [
        pytest.param("0-1", 0, QUERY, marks=pytest.mark.soak),
        pytest.param("0-1", 20_000, QUERY, marks=pytest.mark.soak),
        pytest.param("0-1", 0, BY_SUBSTREAM, marks=pytest.mark.soak),
        ("1-2", 0, QUERY),
    ],
)
def test_only_the_shard_that_is_gone_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, small_events: int, query: str
) -> None:
    """In stages, and in one task; the carries of substreams are kept by workers."""
    monkeypatch.setattr(placement, "SMALL_EVENTS", small_events)
    monkeypatch.setattr(carries, "WHOLE_BELOW", 1)
    outputs = OUTPUTS.split("[outputs.early]")[0]
    expected = write_job(tmp_path / "here", 400, query, outputs=outputs)
    run_here(expected, 50)
    path = write_job(tmp_path / "spark", 400, query, outputs=outputs)
    disk = tmp_path / "disk"
    placed: list[SparkPlacement] = []
    rebuilt: list[RebuildingShards] = []
    begin, rebuild = SparkPlacement.__init__, SparkPlacement.rebuilding

    def begun(self: SparkPlacement, *given: object) -> None:
        begin(self, *given)
        self._job = placement.replace(self._job, folder=str(disk))
        placed.append(self)

    def rebuilding(self: SparkPlacement, of: object) -> RebuildingShards | None:
        part = rebuild(self, of)
        assert part is not None
        rebuilt.append(part)
        return part

    monkeypatch.setattr(SparkPlacement, "__init__", begun)
    monkeypatch.setattr(SparkPlacement, "rebuilding", rebuilding)

    def lose(report: StepReport) -> None:
        if report.number == 5:
            for file in disk.glob(f"*/{lost}.*"):
                file.unlink()

    notices: list[str] = []
    settings = SparkSettings(master="local[3]", placement=WhereRun.SPARK, shards=3)
    job = load_job(path)
    run_job_on_spark(
        job, spark=settings, until_caught_up=True, max_events_per_step=50, on_step=lose, notice=notices.append
    )
    for name in ("counted", "chained"):
        assert (path.parent / f"{name}.jsonl").read_bytes() == (expected.parent / f"{name}.jsonl").read_bytes() != b""
    (part,) = rebuilt
    level, shard = map(int, lost.split("-"))
    assert set(part._job.only or ()) == ({(0, 1)} if not level else {(0, 0), (0, 1), (0, 2), (1, 2)})
    assert len(placed) == 1
    assert f"the state of shard {shard} (level {level}) is gone; it is computed again from the log" in notices
    assert any("were read again" in notice for notice in notices)
