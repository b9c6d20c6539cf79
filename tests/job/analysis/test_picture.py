import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ordering.logs import Event, codes_of, columns, logs, policies
from tidegate import ordering
from tidegate.job.analysis.picture import watermark_svg
from tidegate.ordering import Carry, Policy, Stamps, SubstreamCarry

SVG = "{http://www.w3.org/2000/svg}"
TOLLS = json.loads((Path(__file__).parents[2] / "cases" / "tp01-seed12-early.json").read_text())
TOLL_TIMES = np.array([ordering.parse_time(event["body"]["EventTime"]) for event in TOLLS["inputs"]])
TOLL_ARRIVALS = np.array([ordering.parse_time(event["arrival"]) for event in TOLLS["inputs"]])
TOLL_POLICY = Policy.seconds(late=300, out_of_order=120)
BLUE, ORANGE, PURPLE, VERMILLION = "#0072b2", "#e69f00", "#cc79a7", "#d55e00"


def tolls(policy: Policy = TOLL_POLICY, **options: object) -> ElementTree.Element:
    stamps, _ = ordering.scan(TOLL_TIMES, TOLL_ARRIVALS, Carry(), policy)
    return ElementTree.fromstring(
        watermark_svg(TOLL_TIMES, TOLL_ARRIVALS, stamps, title="Tolls", policy=policy, **options)
    )


def plot(svg: ElementTree.Element) -> ElementTree.Element:
    return next(group for group in svg.iter(f"{SVG}g") if group.get("clip-path"))


def dots(svg: ElementTree.Element, colour: str) -> list[ElementTree.Element]:
    return [dot for group in plot(svg).findall(f"{SVG}g") if group.get("fill") == colour for dot in group]


def texts(svg: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in svg.iter(f"{SVG}text")]


def test_each_event_is_a_dot_of_its_fate() -> None:
    svg = tolls()
    assert [len(dots(svg, colour)) for colour in (BLUE, ORANGE, PURPLE, VERMILLION)] == [8, 2, 1, 1]
    assert {"in time 8", "out of order, adjusted 2", "late, adjusted 1", "early, dropped 1"} <= set(texts(svg))
    # A cross for what is lost, one filled dot for what is kept, a hollow and a filled one for what was moved.
    assert not list(dots(svg, VERMILLION)[0].iter(f"{SVG}circle"))
    assert [len(list(dot.iter(f"{SVG}circle"))) for dot in dots(svg, BLUE)] == [1] * 8
    assert [len(list(dot.iter(f"{SVG}circle"))) for dot in dots(svg, ORANGE)] == [2, 2]
    assert [dot.find(f"{SVG}title").text for dot in dots(svg, PURPLE)] == [
        "event 12: 2019-01-01T12:21:00.0000000Z, late, adjusted to 2019-01-01T12:22:00.0000000Z"
    ]
    assert {str(number) for number in range(1, 13)} <= set(texts(svg))


def test_moved_events_stand_on_the_watermark_and_time_goes_up() -> None:
    svg = tolls()
    (late,) = dots(svg, PURPLE)
    hollow, filled = late.iter(f"{SVG}circle")
    assert float(filled.get("cy")) < float(hollow.get("cy"))
    line = next(path for path in svg.findall(f"{SVG}path") if path.get("clip-path"))
    steps = re.findall(r"[MHV][\d. ]+", line.get("d"))
    levels = [float(step[1:]) for step in steps if step[0] == "V"]
    # The documents' watermarks: 12:05, 12:06, 12:08, 12:17, 12:18, 12:21, 12:22; six steps up, to scale.
    start = float(steps[0][1:].split()[1])
    minute = (start - levels[-1]) / 17
    assert levels == pytest.approx([start - minutes * minute for minutes in (1, 3, 12, 13, 16, 17)], abs=0.11)
    assert float(filled.get("cy")) == pytest.approx(levels[-1], abs=0.11)
    six = dots(svg, ORANGE)[0]
    assert float(list(six.iter(f"{SVG}circle"))[1].get("cy")) == pytest.approx(levels[2], abs=0.11)


def test_dropping_draws_crosses() -> None:
    svg = tolls(Policy.seconds(late=300, out_of_order=120, action="drop"))
    assert {"in time 8", "out of order, dropped 2", "late, dropped 1", "early, dropped 1"} <= set(texts(svg))
    assert any("2 min dropped" in text for text in texts(svg))


def test_each_timeline_has_its_line_and_name() -> None:
    devices = [event["body"]["DeviceId"] for event in TOLLS["inputs"]]
    carry = SubstreamCarry()
    stamps, _ = ordering.scan_substreams(TOLL_TIMES, TOLL_ARRIVALS, codes_of(carry, devices), carry, TOLL_POLICY)
    svg = ElementTree.fromstring(
        watermark_svg(TOLL_TIMES, TOLL_ARRIVALS, stamps, title="Devices", policy=TOLL_POLICY, timelines=devices)
    )
    assert {"device1", "device2", "device3"} <= set(texts(svg))
    assert len({p.get("stroke-dasharray") for p in svg.findall(f"{SVG}path") if p.get("stroke-width") == "1.5"}) == 3


def many(count: int) -> tuple[np.ndarray, np.ndarray, Stamps]:
    rng = np.random.default_rng(3)
    arrivals = np.cumsum(rng.integers(0, 600_000, count)) + ordering.parse_time("2024-03-01T23:59:00Z")
    times = arrivals - rng.exponential(1.5e7, count).astype(np.int64)
    stamps, _ = ordering.scan(times, arrivals, Carry(), Policy.seconds(out_of_order=2))
    return times, arrivals, stamps


def test_twenty_thousand_events_are_thinned_and_it_says_so() -> None:
    times, arrivals, stamps = many(20_000)
    text = watermark_svg(times, arrivals, stamps, title="Many")
    svg = ElementTree.fromstring(text)
    drawn = sum(1 for circle in plot(svg).iter(f"{SVG}circle") if circle.get("stroke") == "none")
    assert 500 < drawn <= 4_000
    assert len(text) < 700_000
    assert any(f"20,000 events; {drawn:,} dots drawn" in text for text in texts(svg))
    # Counts are of events, not of dots.
    counted = sum(
        int(text.split()[-1].replace(",", "")) for text in texts(svg) if re.match(r"in time|out of|late,", text)
    )
    assert counted == 20_000


def test_one_wild_time_does_not_flatten_the_rest() -> None:
    times, arrivals, _ = many(100)
    times[50] = ordering.parse_time("9999-12-31")
    times[51] = ordering.parse_time("0001-01-01")
    stamps, _ = ordering.scan(times, arrivals, Carry(), Policy.seconds())
    svg = ElementTree.fromstring(watermark_svg(times, arrivals, stamps, title="Wild", policy=Policy.seconds()))
    assert any("2 own times lie beyond the edge" in text for text in texts(svg))
    assert any("2024-03-01" in text for text in texts(svg))


def test_titles_and_names_are_text_not_markup() -> None:
    svg = tolls(timelines=["<b>&\"'"] * 12)
    assert "<b>&\"'" in texts(svg)
    stamps, _ = ordering.scan(TOLL_TIMES, TOLL_ARRIVALS, Carry(), TOLL_POLICY)
    markup = watermark_svg(TOLL_TIMES, TOLL_ARRIVALS, stamps, title='<script>"')
    assert "<script>" not in markup
    assert '<script>"' in texts(ElementTree.fromstring(markup))


@given(logs(), policies, st.booleans())
def test_any_log_is_a_well_formed_picture(events: list[Event], policy: Policy, named: bool) -> None:
    times, arrivals, valid = columns(events)
    times[~valid] = 0
    stamps, _ = ordering.scan(times, arrivals, Carry(), policy, valid)
    names = [str(i % 9) for i in range(len(events))] if named else None
    markup = watermark_svg(times, arrivals, stamps, title="Any", policy=policy, timelines=names)
    svg = ElementTree.fromstring(markup)
    assert "nan" not in markup
    assert "inf" not in markup
    drawn = sum(1 for group in plot(svg).findall(f"{SVG}g") for _ in group)
    assert drawn == int(valid.sum())
    assert any(text.startswith("without a readable time") for text in texts(svg)) == (not valid.all())


def test_columns_of_different_events_are_refused() -> None:
    with pytest.raises(ValueError, match="columns of the same events"):
        watermark_svg(np.array([1]), np.array([1, 2]), Stamps.empty(2), title="")
