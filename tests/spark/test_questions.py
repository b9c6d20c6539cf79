"""Questions about time whose tasks run on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli import main

pytestmark = pytest.mark.usefixtures("no_spark")

ILLUSTRATION = Path(__file__).parents[1] / "cases" / "tp03-seed12-substreams.json"


def test_verifying_on_spark_comes_to_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["job", "verify", str(ILLUSTRATION), "--master", "local[2]"])
    said = capsys.readouterr()
    assert left.value.code in (0, None), said.err
    assert said.out.startswith("identical: 11 results")
