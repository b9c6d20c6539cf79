"""The pictures of the documents are what the product draws, and say what the article's three illustrations say."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.job.runtime.test_watermark_blockers import at, event, seen
from tests.source import ROOT
from tidegate.job import JobError
from tidegate.job.analysis.replay_source import open_replay_source
from tidegate.job.analysis.stretch_picture import stretch_svg
from tidegate.ordering import Policy, format_time

CASES = Path(__file__).parents[2] / "cases"
IMAGES = ROOT / "docs" / "images"
SVG = "{http://www.w3.org/2000/svg}"
OVER = "SELECT System.Timestamp() AS ts INTO out FROM i TIMESTAMP BY t OVER k"

ILLUSTRATIONS = {
    "early-rule": ("tp01-seed12-early", "The early rule on: one event dropped, three adjusted"),
    "no-early-rule": ("tp02-seed12-no-early", "Without the early rule: one event from the future drags others along"),
    "substreams": ("tp03-seed12-substreams", "Substreams (OVER DeviceId): each device has its own watermark"),
}
TOLD = re.compile(r"event (\d+): \S+T(\d\d:\d\d):\S+, ([^0-9]+?)(?: to \S+T(\d\d:\d\d):\S+)?$")


def drawn(name: str) -> str:
    case, title = ILLUSTRATIONS[name]
    with open_replay_source(CASES / f"{case}.json") as source:
        return stretch_svg(source, title=title)


def told(svg: str) -> dict[int, tuple[str, str | None]]:
    """By event number: its fate, and the time it was moved to."""
    found = {}
    for title in ElementTree.fromstring(svg).iter(f"{SVG}title"):
        match = TOLD.match(title.text or "")
        assert match is not None, title.text
        found[int(match[1])] = (match[3], match[4])
    return found


@pytest.mark.parametrize("name", ILLUSTRATIONS)
def test_the_committed_picture_is_what_the_product_draws(name: str) -> None:
    committed = (IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    assert committed == drawn(name), "draw it again with `tidegate job picture`"


# Event numbers and times as the article's text and table say them.
@pytest.mark.parametrize(
    ("name", "touched"),
    [
        (
            "early-rule",
            {
                3: ("early, dropped", None),
                6: ("out of order, adjusted", "12:17"),
                9: ("out of order, adjusted", "12:18"),
                12: ("late, adjusted", "12:22"),
            },
        ),
        (
            "no-early-rule",
            {
                4: ("out of order, adjusted", "12:15"),
                6: ("out of order, adjusted", "12:17"),
                9: ("out of order, adjusted", "12:18"),
                12: ("late, adjusted", "12:22"),
            },
        ),
        ("substreams", {3: ("early, dropped", None), 12: ("late, adjusted", "12:22")}),
    ],
)
def test_the_picture_says_what_the_article_says(name: str, touched: dict[int, tuple[str, str | None]]) -> None:
    events = told(drawn(name))
    assert events.keys() == set(range(1, 13))
    assert {number: fate for number, fate in events.items() if fate != ("in time", None)} == touched


def test_a_stretch_is_stamped_as_if_all_before_it_had_been_drawn() -> None:
    policy = Policy.seconds(late=60, out_of_order=2)
    source = seen(OVER, policy, [event("0", at(n), at(n - 10 * (n % 3))) for n in range(60)], at(60))
    whole = stretch_svg(source)
    part = stretch_svg(source, from_ticks=at(30), to_ticks=at(50))
    assert len(told(part)) == 20
    assert sorted(told(part).values(), key=str) == sorted((told(whole)[n] for n in range(31, 51)), key=str)


def test_every_substream_has_a_line_with_its_key() -> None:
    events = [event("0", at(1), at(1), "x"), event("1", at(2), at(2), "y"), event("1", at(3), at(3), "x")]
    said = "".join(ElementTree.fromstring(stretch_svg(seen(OVER, Policy.seconds(), events, at(9)))).itertext())
    assert all(name in said for name in ("x (partition 0)", "y (partition 1)", "x (partition 1)"))


def test_nothing_to_draw_is_said() -> None:
    source = seen(OVER, Policy.seconds(), [event("0", at(1), at(1))], at(9))
    with pytest.raises(JobError, match="no event to draw in this stretch"):
        stretch_svg(source, from_ticks=at(5))
    assert format_time(at(1))[:10] in stretch_svg(source)
