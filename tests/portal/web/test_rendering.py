"""Times and names as pages show them."""

from __future__ import annotations

from tidegate.portal.web.rendering import ago, moment, natural, with_times


def test_a_time_is_shown_to_the_millisecond_and_keeps_its_whole_value() -> None:
    text = "2026-01-31T12:00:00.1234567Z"
    assert moment(text) == f'<time datetime="{text}" >2026-01-31 12:00:00.123</time>'
    assert ago("2026-01-31T12:00:00+00:00").endswith("data-ago>2026-01-31 12:00:00</time>")
    assert moment(None) == "–"


def test_the_times_in_a_text_are_shown_as_times_and_the_rest_is_escaped() -> None:
    text = "an event later than 2026-01-31T12:00:00.58Z, or <b>"
    time = '<time datetime="2026-01-31T12:00:00.58Z" >2026-01-31 12:00:00.58</time>'
    assert with_times(text) == f"an event later than {time}, or &lt;b&gt;"
    assert with_times("") == ""


def test_what_is_no_time_is_no_markup_either() -> None:
    assert moment('<b>"T') == '<time datetime="&lt;b&gt;&#34;T" >&lt;b&gt;&#34; </time>'


def test_names_with_numbers_are_in_their_natural_order() -> None:
    assert sorted(["hub-10", "hub-2", "Hub-1", "a"], key=natural) == ["a", "Hub-1", "hub-2", "hub-10"]
