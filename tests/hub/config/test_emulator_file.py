"""The official emulator's Config.json, unchanged and with the mistakes that people make."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.hub import ConfigError, EventHubConfig, NamespaceConfig, load_config, parse_config
from tidegate.hub.config import Tier
from tidegate.hub.config.emulator_file import strict_json

OFFICIAL = """{"UserConfig":{"NamespaceConfig":[{"Type":"EventHub","Name":"emulatorNs1","Entities":[{"Name":"eh1",
"PartitionCount":"2","ConsumerGroups":[{"Name":"cg1"}]}]}],"LoggingConfig":{"Type":"File"}}}"""


def document(*entities: Any, **namespace: Any) -> str:
    described = {"Type": "EventHub", "Name": "ns", "Entities": list(entities), **namespace}
    return json.dumps({"UserConfig": {"NamespaceConfig": [described], "LoggingConfig": {"Type": "File"}}})


def entity(**changes: Any) -> dict[str, Any]:
    return {"Name": "eh1", "PartitionCount": 2, "ConsumerGroups": [{"Name": "cg1"}], **changes}


def test_the_official_file(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text("\ufeff" + OFFICIAL, encoding="utf-8")
    config = load_config(path)
    assert config.name == "emulatorNs1"
    (hub,) = config.event_hubs
    assert (hub.name, hub.partition_count, hub.consumer_groups) == ("eh1", 2, ("$Default", "cg1"))
    assert hub.retention_ms is None


LENIENT = """
// the hubs of the shop
{
  "userConfig": { /* one namespace,
                     as the emulator wants it */
    "NAMESPACECONFIG": [
      {
        "type": "EventHub",
        "name": "emulatorNs1",
        "entities": [
          { "name": "orders", "partitionCount": "2", "consumerGroups": null, }, // no groups
          { "Name": "returns", "PartitionCount": 1, "ConsumerGroups": [ { "Name": "audit" }, ], },
        ],
      },
    ],
  },
}
"""


def test_what_the_emulator_s_reader_takes_is_taken() -> None:
    config = parse_config(LENIENT)
    assert [(hub.name, hub.partition_count, hub.consumer_groups) for hub in config.event_hubs] == [
        ("orders", 2, ("$Default",)),
        ("returns", 1, ("$Default", "audit")),
    ]
    assert parse_config(document(Entities=None)).event_hubs == ()


def test_a_mistake_behind_comments_keeps_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 12, column 31:"):
        parse_config(LENIENT.replace('"Name": "returns",', '"Name": "returns"'))


def test_more_than_ten_hubs_are_fine() -> None:
    hubs = [entity(Name=f"eh{number}") for number in range(200)]
    assert len(parse_config(document(*hubs)).event_hubs) == 200


def test_groups_may_be_left_out_and_default_may_be_named() -> None:
    assert parse_config(document(entity(ConsumerGroups=[]))).event_hubs[0].consumer_groups == ("$Default",)
    assert parse_config(document({"Name": "a", "PartitionCount": 1})).event_hubs[0].consumer_groups == ("$Default",)
    groups = [{"Name": "$default"}, {"Name": "cg1"}]
    assert parse_config(document(entity(ConsumerGroups=groups))).event_hubs[0].consumer_groups == ("$Default", "cg1")


@pytest.mark.parametrize("count", [1, 32, "1", " 32 "])
def test_partition_counts(count: int | str) -> None:
    assert parse_config(document(entity(PartitionCount=count))).event_hubs[0].partition_count == int(count)


def test_retention_is_ours_and_may_be_left_out() -> None:
    assert parse_config(document(entity())).event_hubs[0].retention_ms is None
    with_both = parse_config(document(entity(RetentionTimeInHours=24, RetentionSizeInBytes=10**9))).event_hubs[0]
    assert (with_both.retention_ms, with_both.retention_bytes) == (24 * 3_600_000, 10**9)


PLACE = "UserConfig.NamespaceConfig[0].Entities[0]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["Config.json, line 1, column 1", "not JSON"]),
        ('{"UserConfig": }', ["line 1, column 16"]),
        ("[]", ["got []", "expected"]),
        ("{}", ["UserConfig is missing"]),
        ('{"UserConfig": {}}', ["UserConfig.NamespaceConfig is missing"]),
        ('{"UserConfig": {"NamespaceConfig": []}}', ["UserConfig.NamespaceConfig", "got []", "exactly one"]),
        ('{"UserConfg": {}}', ["UserConfg: unknown key", "did you mean 'UserConfig'"]),
        ('{"UserConfig": {}, "userconfig": {}}', ["userconfig appears twice"]),
        ('{"UserConfig": /* {}', ["line 1, column 16", "not JSON"]),
        ('{"UserConfig": []}', ["UserConfig: got []", "expected an object"]),
        ('{"UserConfig": {"NamespaceConfig": {}}}', ["UserConfig.NamespaceConfig: got {}", "expected a list"]),
        (document(entity(PartitionCount=0)), [f"{PLACE}.PartitionCount: got 0", "greater than or equal to 1"]),
        (document(entity(PartitionCount=101)), [f"{PLACE}.PartitionCount: got 101", "less than or equal to 100"]),
        (document(entity(PartitionCount="two")), [f"{PLACE}.PartitionCount: got 'two'", "a valid integer"]),
        (document(entity(PartitionCount=2.5)), [f"{PLACE}.PartitionCount: got 2.5", "a valid integer"]),
        (document(entity(PartitionCount=True)), [f"{PLACE}.PartitionCount: got True", "a valid integer"]),
        (document(entity(PartitionCount=None)), [f"{PLACE}.PartitionCount: got None", "a valid integer"]),
        (document({"Name": "eh1"}), [f"{PLACE}.PartitionCount is missing"]),
        (document({"PartitionCount": 1}), [f"{PLACE}.Name is missing"]),
        (document({"Name": "a", "PartitionCnt": 1}), [f"{PLACE}.PartitionCnt: unknown key", "'PartitionCount'"]),
        (document({"Name": "a", "PartitionCount": 1, "partitioncount": 1}), ["partitioncount appears twice"]),
        (document(entity(Name="")), [f"{PLACE}.Name: got ''", "letters"]),
        (document(entity(Name="../up")), [f"{PLACE}.Name: got '../up'", "letters"]),
        (document(entity(Name="a/b")), [f"{PLACE}.Name"]),
        (document(entity(Name="x" * 257)), [f"{PLACE}.Name", "1 to 256"]),
        (document(entity(Name=7)), [f"{PLACE}.Name: got 7", "a text in quotes"]),
        (document(entity(ConsumerGroups=[{"Name": "g" * 51}])), [f"{PLACE}.ConsumerGroups[0].Name", "1 to 50"]),
        (document(entity(ConsumerGroups=["cg1"])), [f"{PLACE}.ConsumerGroups[0]: got 'cg1'"]),
        (document(entity(ConsumerGroups=[{"Name": f"g{n}"} for n in range(101)])), [PLACE, "at most 100", "not 101"]),
        (document(entity(ConsumerGroups=[{"Name": "a"}, {"Name": "A"}])), [PLACE, "consumer group 'A' appears twice"]),
        (document(entity(), entity(Name="EH1")), ["Entities", "event hub 'EH1' appears twice"]),
        (document(Type="ServiceBus"), ["UserConfig.NamespaceConfig[0].Type: got 'ServiceBus'", 'expected "EventHub"']),
        (document(Type="EventHubs"), ["UserConfig.NamespaceConfig[0].Type: got 'EventHubs'", 'expected "EventHub"']),
        (document(Name=""), ["UserConfig.NamespaceConfig[0].Name: got ''"]),
        (document(Name="../up"), ["UserConfig.NamespaceConfig[0].Name: got '../up'", "letters"]),
        (document(entity(RetentionTimeInHours=True)), [f"{PLACE}.RetentionTimeInHours: got True", "a number"]),
        (document(entity(RetentionTimeInHours=0.5)), [f"{PLACE}.RetentionTimeInHours: got 0.5", "equal to 1"]),
        (document(entity(RetentionTimeInHours=2161)), [f"{PLACE}.RetentionTimeInHours: got 2161", "equal to 2160"]),
        (document(entity(RetentionSizeInBytes=0)), [f"{PLACE}.RetentionSizeInBytes: got 0", "greater than 0"]),
        ("[" * 100_000, ["nested too deeply"]),
        ("[" * 700 + "]" * 700, ["expected an object"]),
        (document(entity(Name=json.loads("[" * 400 + "]" * 400))), [f"{PLACE}.Name: got [[[", "a text in quotes"]),
        ('{"UserConfig": ' + "1" * 5000 + "}", ["not JSON that can be read"]),
        (document(entity(PartitionCount=1e300)), [f"{PLACE}.PartitionCount: got 1e+300", "a valid integer"]),
        ('{"UserConfig": {"NamespaceConfig": NaN}}', ["NamespaceConfig: got nan", "expected a list"]),
    ],
)
def test_a_mistake_is_named_with_its_place_what_was_got_and_what_expected(text: Any, words: Any) -> None:
    with pytest.raises(ConfigError) as mistake:
        parse_config(text)
    for word in ["Config.json", *words]:
        assert word in str(mistake.value)


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"\xff\xfe{}", "is not UTF-8 (byte 0)"), (b"{}" + b" " * (16 << 20), "has more than 16 MiB")],
    ids=["UTF-16", "too large"],
)
def test_a_file_that_cannot_be_one_is_refused(tmp_path: Path, content: Any, word: str) -> None:
    path = tmp_path / "Config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as mistake:
        load_config(path)
    assert word in str(mistake.value)


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as mistake:
        parse_config(document(entity(Name="?"), entity(PartitionCount=199)))
    assert len(str(mistake.value).splitlines()) == 2


def test_a_key_nobody_knows_is_passed_over_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    parse_config(document(entity(Zebra=1)))
    assert f"unknown key {PLACE}.Zebra is ignored" in caplog.text


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "nothing.json")


def test_the_size_of_a_publication_goes_by_tier() -> None:
    sizes = {tier: NamespaceConfig(name="n", tier=tier).max_message_bytes for tier in Tier}
    assert sizes == {Tier.BASIC: 262_144, Tier.STANDARD: 1_048_576, Tier.PREMIUM: 1_048_576}


def test_a_hub_made_in_code_is_checked_too() -> None:
    assert EventHubConfig(name="a").consumer_groups == ("$Default",)
    with pytest.raises(ValueError, match="letters"):
        EventHubConfig(name="no spaces")
    with pytest.raises(ValueError, match="greater than 0"):
        EventHubConfig(name="a", retention_ms=0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["UserConfig", "NamespaceConfig", "Entities", "Name", "PartitionCount", "ConsumerGroups"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@given(json_values)
def test_any_json_is_a_configuration_or_a_mistake(value: Any) -> None:
    for text in (json.dumps(value), document(value), json.dumps({"UserConfig": value}), document(Entities=value)):
        with suppress(ConfigError):
            parse_config(text)


@given(st.text(max_size=100))
def test_any_text_is_a_configuration_or_a_mistake(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("// a\n[1]", [1]),
        ("[1] // a", [1]),
        ("/* a */ [1, /* b\n */ 2]", [1, 2]),
        ("[1, 2, ]", [1, 2]),
        ('{"a": 1,\n}', {"a": 1}),
        ('{"a": 1, // last\n}', {"a": 1}),
        ('["//", "/* */", ",]"]', ["//", "/* */", ",]"]),
        (r'["\"//", "\\", 1]', ['"//', "\\", 1]),
    ],
)
def test_comments_and_last_commas_are_left_out_and_texts_are_not(text: str, value: dict[str, int] | list[Any]) -> None:
    assert json.loads(strict_json(text)) == value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='/*\\",[]{} a', max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='/*\\",', max_size=4), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(json_values, st.sampled_from([None, 2]))
def test_json_is_left_as_it_is(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    assert strict_json(text) == text


@given(st.text(alphabet='/*\\",[]{}\n a', max_size=60))
def test_lines_and_columns_stay(text: str) -> None:
    plain = strict_json(text)
    assert [len(line) for line in plain.split("\n")] == [len(line) for line in text.split("\n")]


@pytest.mark.parametrize(
    "text",
    ["/*" * 300_000, '"' + r"\"" * 300_000, '"/*' * 300_000, "," * 300_000, ", " * 300_000, "[" * 300_000, '"\\'],
    ids=["comments", "quotes", "strings", "commas", "commas and spaces", "brackets", "cut off"],
)
def test_time_is_in_proportion_to_the_text(text: Any) -> None:
    """Each of these took minutes to hours while an end that never comes was searched from every beginning."""
    started_s = time.process_time()
    assert len(strict_json(text)) == len(text)
    assert time.process_time() - started_s < 20
