"""Who gets in: a table of attempts that are refused, each with a twin that passes."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hub.support import NOW_S, open_namespace, token
from tidegate.hub import EventHubConfig, HubError, Namespace
from tidegate.hub.access import Access, Grant, sign
from tidegate.hub.access_rules import EMULATOR_KEY, ROOT_RULE, AccessRule, Right, RuleTable, emulator_rule
from tidegate.hub.errors import ArgumentError, NotFound, PublisherRevoked, QuotaExceeded, Unauthorized

SEND_KEY, LISTEN_KEY, HUB_KEY, OTHER_KEY = "send-key", "listen-key", "hub-key", "other-key"


def rule(name: str, *rights: Right, key: str) -> AccessRule:
    return AccessRule(name, frozenset(rights), key, key + "-2")


@pytest.fixture
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Namespace]]:
    """Makes namespaces with a few rules and a revoked publisher."""
    with ExitStack() as opened:

        def make_one() -> Namespace:
            namespace = open_namespace(tmp_path_factory.mktemp("namespace"))
            opened.callback(namespace.close)
            namespace.management.set_access_rule(rule("sender", Right.SEND, key=SEND_KEY))
            namespace.management.set_access_rule(rule("listener", Right.LISTEN, key=LISTEN_KEY))
            namespace.management.set_access_rule(rule("hubrule", Right.SEND, Right.LISTEN, key=HUB_KEY), "tolls")
            namespace.management.set_access_rule(rule("hubrule", Right.SEND, Right.LISTEN, key=OTHER_KEY), "other")
            namespace.management.revoke_publisher("tolls", "bad-gate")
            namespace.management.create_event_hub(EventHubConfig(name="toll.gates"))
            return namespace

        yield make_one


@pytest.fixture
def namespace(make: Callable[[], Namespace]) -> Namespace:
    return make()


Attempt = Callable[[Namespace], Any]


def send(path: str, target: str, **options: Any) -> Attempt:
    """Put a token for `path` and attach a sender to `target`."""
    return lambda ns: ns.open_publisher(target, [ns.access.check_token(token(path, **options), NOW_S)], NOW_S)


def read(path: str, source: str, **options: Any) -> Attempt:
    """Put a token for `path` and attach a receiver to `source`."""

    def attempt(ns: Namespace) -> Any:
        grants = [ns.access.check_token(token(path, **options), NOW_S)]
        return ns.open_reader(source, grants, NOW_S, on_stolen=lambda _: None)

    return attempt


def put(audience: str, text: str) -> Attempt:
    return lambda ns: ns.put_token(audience, text, NOW_S)


def check(text: str) -> Attempt:
    return lambda ns: ns.access.check_token(text, NOW_S)


def key(name: str, value: str) -> Attempt:
    return lambda ns: ns.access.check_key(name, value)


def ask(path: str, hub: str, **options: Any) -> Attempt:
    """Put a token for `path` and ask for a hub's properties."""
    return lambda ns: ns.open_management(hub, [ns.access.check_token(token(path, **options), NOW_S)], NOW_S)


def raw(sr: str, se: str = str(NOW_S + 60), skn: str = ROOT_RULE, signing_key: str = EMULATOR_KEY) -> str:
    """A token signed over its parts exactly as they stand."""
    digest = hmac.new(signing_key.encode(), f"{sr}\n{se}".encode(), hashlib.sha256).digest()
    return f"SharedAccessSignature sr={sr}&sig={quote_plus(base64.b64encode(digest))}&se={se}&skn={skn}"


def rolled(which: str, used: str, times: int = 1) -> Attempt:
    def attempt(ns: Namespace) -> Any:
        for _ in range(times):
            ns.management.roll_key("sender", which)
        return ns.access.check_token(token("tolls", rule="sender", key=used), NOW_S)

    return attempt


def grant_after(change: Callable[[Namespace], Any]) -> Attempt:
    """A token put before a change, a link attached after it."""

    def attempt(ns: Namespace) -> Any:
        grants = [ns.access.check_token(token("tolls", rule="sender", key=SEND_KEY), NOW_S)]
        change(ns)
        return ns.open_publisher("tolls", grants, NOW_S)

    return attempt


def at(moment_s: int) -> Attempt:
    """A token that ends in 100 s, used at another time."""

    def attempt(ns: Namespace) -> Any:
        grants = [ns.access.check_token(token("tolls", expires_in_s=100), NOW_S)]
        return ns.open_publisher("tolls", grants, moment_s)

    return attempt


SB = "sb%3A%2F%2Flocalhost%2Ftolls"
GOOD = raw(SB)
CG = "tolls/ConsumerGroups/cg1/Partitions/0"
DEFAULT = "tolls/ConsumerGroups/$Default/Partitions/0"

# what is attempted, refused -> the twin that passes
TABLE: list[tuple[str, Attempt, Attempt]] = [
    # the signature
    ("wrong key", send("tolls", "tolls", key="wrong"), send("tolls", "tolls")),
    ("empty key", check(raw(SB, signing_key="")), check(GOOD)),
    ("key with a space", check(raw(SB, signing_key=EMULATOR_KEY + " ")), check(GOOD)),
    ("key in another case", check(raw(SB, signing_key=EMULATOR_KEY.lower())), check(GOOD)),
    ("key of another rule", send("tolls", "tolls", key=SEND_KEY), send("tolls", "tolls", rule="sender", key=SEND_KEY)),
    ("unknown rule", send("tolls", "tolls", rule="nobody"), send("tolls", "tolls", rule=ROOT_RULE)),
    ("empty rule", check(raw(SB, skn="")), check(raw(SB, skn=quote(ROOT_RULE)))),
    ("resource changed after signing", check(GOOD.replace("tolls", "other")), check(GOOD)),
    ("expiry changed after signing", check(GOOD.replace(f"se={NOW_S + 60}", f"se={NOW_S + 61}")), check(GOOD)),
    (
        "resource in another encoding than was signed",
        check(GOOD.replace("%3A", "%3a")),
        check(raw(SB.replace("%3A", "%3a"))),
    ),
    (
        "resource decoded after signing",
        check(GOOD.replace(SB, "sb://localhost/tolls")),
        check(raw("sb://localhost/tolls")),
    ),
    (
        "rule name in another case with a wrong key",
        check(raw(SB, skn=ROOT_RULE.lower(), signing_key="x")),
        check(raw(SB, skn=ROOT_RULE.lower())),
    ),
    ("signature cut", check(GOOD.replace("%3D&se", "&se")), check(GOOD)),
    ("signature empty", check(f"SharedAccessSignature sr={SB}&sig=&se={NOW_S + 60}&skn={ROOT_RULE}"), check(GOOD)),
    (
        "signature of the hash in hex",
        check(GOOD.split("&sig=")[0] + "&sig=" + "0" * 64 + f"&se={NOW_S + 60}&skn={ROOT_RULE}"),
        check(GOOD),
    ),
    # the form
    ("no prefix", check(GOOD.removeprefix("SharedAccessSignature ")), check(GOOD)),
    (
        "another scheme",
        check(GOOD.replace("SharedAccessSignature", "Bearer")),
        check(GOOD.replace("SharedAccessSignature", "sharedaccesssignature")),
    ),
    ("no expiry", check(GOOD.replace(f"&se={NOW_S + 60}", "")), check(GOOD)),
    ("two expiries", check(GOOD + f"&se={NOW_S + 999}"), check(GOOD)),
    ("two resources", check(GOOD + "&sr=sb%3A%2F%2Flocalhost%2Fother"), check(GOOD)),
    ("a resource that names no host", check(raw("tolls")), check(raw("localhost%2Ftolls"))),
    ("a path for a resource", check(raw("%2Ftolls")), check(raw("localhost:5672/tolls"))),
    ("two rules", check(GOOD + "&skn=sender"), check(GOOD)),
    ("a field more", check(GOOD + "&scope=all"), check(GOOD)),
    ("expiry that is no number", check(raw(SB, se="never")), check(raw(SB, se=str(NOW_S + 1)))),
    ("negative expiry", check(raw(SB, se="-1")), check(raw(SB, se=str(NOW_S + 1)))),
    ("fractional expiry", check(raw(SB, se=f"{NOW_S}.9")), check(raw(SB, se=str(NOW_S + 1)))),
    ("expiry in other digits", check(raw(SB, se="١٨٠٠٠٠٠٠٠٠")), check(raw(SB, se="1800000000"))),
    ("endless expiry", check(raw(SB, se="9" * 400)), check(raw(SB, se="9" * 12))),
    ("empty", check(""), check(GOOD)),
    ("far too long", check(GOOD + "&" + "x" * 5000), check(GOOD)),
    (
        "rule name encoded three times",
        check(raw(SB, skn="Root%252552ule")),
        check(raw(SB, skn=quote_plus(quote_plus(ROOT_RULE)))),
    ),
    # time
    ("expired", send("tolls", "tolls", expires_in_s=-1), send("tolls", "tolls", expires_in_s=1)),
    ("expires now", send("tolls", "tolls", expires_in_s=0), send("tolls", "tolls", expires_in_s=1)),
    ("expired since it was put", at(NOW_S + 100), at(NOW_S + 99)),
    # scope
    ("token of another hub", send("other", "tolls"), send("other", "other")),
    ("token of a hub whose name begins alike", send("toll", "tolls"), send("tolls", "tolls")),
    ("token of a hub whose name goes on", send("tolls2", "tolls"), send("TOLLS", "tolls")),
    (
        "token of one partition for the hub",
        send("tolls/Partitions/0", "tolls"),
        send("tolls/Partitions/0", "tolls/Partitions/0"),
    ),
    (
        "token of another partition",
        send("tolls/Partitions/1", "tolls/Partitions/0"),
        send("tolls", "tolls/Partitions/0"),
    ),
    (
        "token of partition 1 for 10",
        send("tolls/Partitions/1", "tolls/Partitions/10"),
        send("tolls/Partitions/1", "tolls/Partitions/1"),
    ),
    (
        "token of another consumer group",
        read("tolls/ConsumerGroups/cg1", DEFAULT),
        read("tolls/ConsumerGroups/cg1", CG),
    ),
    (
        "token of another partition in the group",
        read("tolls/ConsumerGroups/cg1/Partitions/1", CG),
        read("tolls/ConsumerGroups/cg1/Partitions/0", CG),
    ),
    (
        "token of a consumer group to publish",
        send("tolls/ConsumerGroups/cg1", "tolls"),
        read("tolls/ConsumerGroups/cg1", CG),
    ),
    (
        "token of a publisher for another",
        send("tolls/Publishers/gate-1", "tolls/Publishers/gate-2"),
        send("tolls/Publishers/gate-1", "tolls/Publishers/gate-1"),
    ),
    (
        "token of a publisher whose name begins alike",
        send("tolls/Publishers/gate-1", "tolls/Publishers/gate-10"),
        send("tolls", "tolls/Publishers/gate-10"),
    ),
    (
        "token of a publisher for the hub",
        send("tolls/Publishers/gate-1", "tolls"),
        send("tolls/Publishers/gate-1", "tolls/publishers/gate-1"),
    ),
    ("token of a publisher to read", read("tolls/Publishers/gate-1", CG), read("tolls", CG)),
    ("token of the management node to publish", send("tolls/$management", "tolls"), ask("tolls/$management", "tolls")),
    (
        "revoked publisher",
        send("tolls/Publishers/bad-gate", "tolls/Publishers/bad-gate"),
        send("tolls/Publishers/gate", "tolls/Publishers/gate"),
    ),
    (
        "revoked publisher in capitals",
        send("tolls", "tolls/Publishers/BAD-gate"),
        send("tolls", "tolls/Publishers/GATE"),
    ),
    # path tricks
    ("dots in the resource", check(raw("sb%3A%2F%2Flocalhost%2Fother%2F..%2Ftolls")), check(GOOD)),
    ("encoded dots in the resource", check(raw("sb%3A%2F%2Flocalhost%2Fother%2F%252e%252e%2Ftolls")), check(GOOD)),
    (
        "encoded slash in the resource",
        check(raw("sb%3A%2F%2Flocalhost%2Ftolls%252Fpartitions")),
        check(raw(SB + "%2Fpartitions")),
    ),
    ("double slash in the resource", check(raw("sb%3A%2F%2Flocalhost%2F%2Ftolls")), check(raw(SB + "%2F"))),
    ("query in the resource", check(raw(SB + "%3Fx%3D1")), check(GOOD)),
    ("backslash in the resource", check(raw("sb%3A%2F%2Flocalhost%2Ftolls%5C..")), check(GOOD)),
    ("NUL in the resource", check(raw(SB + "%00")), check(GOOD)),
    (
        "a resource encoded twice",
        check(raw(quote_plus("sb%3A%2F%2Fns.example.net%2Ftolls"))),
        check(raw("sb%3A%2F%2Fns.example.net%2Ftolls")),
    ),
    (
        "the slash behind the host encoded twice",
        check(raw("sb%3A%2F%2Flocalhost%252Ftolls")),
        check(raw("sb%3A%2F%2Flocalhost%2Ftolls")),
    ),
    ("a backslash behind the host", check(raw("sb%3A%2F%2Flocalhost%5Ctolls")), check(GOOD)),
    ("a space behind the host", check(raw("sb%3A%2F%2Flocalhost+tolls")), check(GOOD)),
    ("a URL in the path of the resource", check(raw("localhost%2Fother%2Fsb%3A%2F%2Fx%2Ftolls")), check(GOOD)),
    ("a resource without its scheme's name", check(raw("%3A%2F%2Flocalhost%2Ftolls")), check(GOOD)),
    ("a hub with a dot for a resource", check(raw("toll.gates")), check(raw("localhost%2Ftoll.gates"))),
    (
        "token of a publisher for one that compares alike",
        send("tolls/Publishers/k", "tolls/Publishers/\N{KELVIN SIGN}"),
        send("tolls/Publishers/k", "tolls/Publishers/K"),
    ),
    ("dots in the target", send("tolls", "tolls/../other"), send("tolls", "tolls")),
    ("encoded dots in the target", send("tolls", "tolls/%2e%2e/other"), send("tolls", "tolls/")),
    ("encoded slash in the target", send("tolls", "tolls%2FPartitions%2F0"), send("tolls", "tolls/Partitions/0")),
    ("host in place of a hub", send("tolls", "sb://tolls/other"), send("tolls", "sb://other/tolls")),
    # rights
    (
        "send with a listen rule",
        send("tolls", "tolls", rule="listener", key=LISTEN_KEY),
        send("tolls", "tolls", rule="sender", key=SEND_KEY),
    ),
    (
        "listen with a send rule",
        read("tolls", CG, rule="sender", key=SEND_KEY),
        read("tolls", CG, rule="listener", key=LISTEN_KEY),
    ),
    (
        "send to a partition with a listen rule",
        send("tolls", "tolls/Partitions/0", rule="listener", key=LISTEN_KEY),
        send("tolls", "tolls/Partitions/0", rule="sender", key=SEND_KEY),
    ),
    # rules of a hub
    (
        "rule of a hub at another hub",
        send("other", "other", rule="hubrule", key=HUB_KEY),
        send("tolls", "tolls", rule="hubrule", key=HUB_KEY),
    ),
    (
        "rule of a hub for the namespace",
        send("", "tolls", rule="hubrule", key=HUB_KEY),
        send("tolls", "tolls", rule="hubrule", key=HUB_KEY),
    ),
    (
        "same rule name, other hub's key",
        send("tolls", "tolls", rule="hubrule", key=OTHER_KEY),
        send("other", "other", rule="hubrule", key=OTHER_KEY),
    ),
    # keys that change
    ("replay after the primary key was rolled", rolled("primary", SEND_KEY), rolled("secondary", SEND_KEY)),
    (
        "replay after the secondary key was rolled",
        rolled("secondary", SEND_KEY + "-2"),
        rolled("primary", SEND_KEY + "-2"),
    ),
    (
        "link with a token put before its key was rolled",
        grant_after(lambda ns: ns.management.roll_key("sender", "primary")),
        grant_after(lambda ns: ns.management.roll_key("sender", "secondary")),
    ),
    (
        "link with a token put before its rule was deleted",
        grant_after(lambda ns: ns.management.delete_access_rule("sender")),
        grant_after(lambda ns: ns.management.delete_access_rule("listener")),
    ),
    (
        "link with a token put before its rule lost the right",
        grant_after(lambda ns: ns.management.set_access_rule(rule("sender", Right.LISTEN, key=SEND_KEY))),
        grant_after(lambda ns: ns.management.set_access_rule(rule("sender", Right.MANAGE, key=SEND_KEY))),
    ),
    # put-token
    ("put for another hub than signed for", put("sb://localhost/other", GOOD), put("sb://localhost/tolls", GOOD)),
    (
        "put for an unknown hub with the token of another",
        put("sb://localhost/nowhere", GOOD),
        put("sb://localhost/", GOOD),
    ),
    (
        "put for an unknown hub with its own token",
        put("sb://localhost/nowhere", raw("sb%3A%2F%2Flocalhost%2Fnowhere")),
        put("sb://localhost/tolls/ConsumerGroups/nobody", raw(SB)),
    ),
    (
        "put for the hub signed for a neighbour's publisher",
        put("sb://localhost/tolls/publishers/b", raw(SB + "%2Fpublishers%2Fa")),
        put("sb://localhost/tolls", raw(SB + "%2Fpublishers%2Fa")),
    ),
    # no token, SASL PLAIN, properties
    ("no token", lambda ns: ns.open_publisher("tolls", [], NOW_S), send("", "tolls")),
    ("plain with a wrong key", key(ROOT_RULE, "wrong"), key(ROOT_RULE, EMULATOR_KEY)),
    ("plain with a wrong name", key("nobody", EMULATOR_KEY), key("sender", SEND_KEY)),
    ("plain with the key of another rule", key("sender", LISTEN_KEY), key("sender", SEND_KEY + "-2")),
    ("plain with nothing", key("", ""), key("hubrule", OTHER_KEY)),
    ("properties of another hub", ask("other", "tolls"), ask("other", "other")),
    (
        "properties with a publisher's token",
        ask("tolls/Publishers/gate-1", "tolls"),
        ask("tolls/consumergroups/cg1", "tolls"),
    ),
    ("unknown hub", send("", "nowhere"), send("", "other")),
    ("unknown partition", send("tolls", "tolls/Partitions/4"), send("tolls", "tolls/Partitions/3")),
    (
        "unknown group",
        read("tolls", "tolls/ConsumerGroups/cg9/Partitions/0"),
        read("tolls", "tolls/ConsumerGroups/CG1/Partitions/0"),
    ),
]


def test_the_table_is_long_enough_and_its_names_differ() -> None:
    assert len(TABLE) >= 60
    assert len({name for name, _, _ in TABLE}) == len(TABLE)


@pytest.mark.parametrize(("refused", "passes"), [pytest.param(a, b, id=name) for name, a, b in TABLE])
def test_attempts(make: Callable[[], Namespace], refused: Any, passes: Any) -> None:
    with pytest.raises((Unauthorized, NotFound, ArgumentError, PublisherRevoked)) as refusal:
        refused(make())
    for secret in (EMULATOR_KEY, SEND_KEY, LISTEN_KEY, HUB_KEY, OTHER_KEY):
        assert secret not in str(refusal.value)
    passes(make())


def test_a_refusal_of_an_expired_token_has_both_times(namespace: Namespace) -> None:
    """The clock of either side may be wrong, and its user sees the refusal alone."""
    with pytest.raises(Unauthorized, match="valid until 1970-01-01T00:01:40Z, and the hub's clock has 1970-01-01T02:"):
        namespace.access.check_token(sign("sb://localhost/", ROOT_RULE, EMULATOR_KEY, 100), 7_300.5)


def test_a_wrong_key_and_an_unknown_rule_are_refused_alike(namespace: Namespace) -> None:
    answers = []
    for text in (raw(SB, signing_key="x"), raw(SB, skn="nobody"), "nonsense"):
        with pytest.raises(Unauthorized) as refusal:
            namespace.access.check_token(text, NOW_S)
        answers.append(str(refusal.value))
    assert len(set(answers)) == 1


@pytest.mark.parametrize("hub", ["tolls", "nowhere"])
def test_without_a_key_nobody_learns_which_hubs_there_are(namespace: Namespace, hub: str) -> None:
    resource = f"sb%3A%2F%2Flocalhost%2F{hub}"
    with pytest.raises(Unauthorized):
        namespace.put_token(f"sb://localhost/{hub}", raw(resource, signing_key="wrong"), NOW_S)


def test_a_grant_shows_no_secret(namespace: Namespace) -> None:
    granted = namespace.access.check_token(GOOD, NOW_S)
    assert EMULATOR_KEY not in repr(granted)
    assert hashlib.sha256(EMULATOR_KEY.encode()).hexdigest() not in repr(granted)
    assert EMULATOR_KEY not in repr(emulator_rule())


def test_of_several_grants_the_longest_lasting_counts(namespace: Namespace) -> None:
    grants = [namespace.access.check_token(token("tolls", expires_in_s=n), NOW_S) for n in (10, 300, 20)]
    assert namespace.open_publisher("tolls", grants, NOW_S).expires_at_s == NOW_S + 300
    grants.append(namespace.access.check_key(ROOT_RULE, EMULATOR_KEY))
    assert namespace.open_publisher("tolls", grants, NOW_S).expires_at_s is None


def test_a_link_lives_on_with_a_new_token(namespace: Namespace) -> None:
    def grant(seconds: int) -> Grant:
        return namespace.access.check_token(token("tolls", expires_in_s=seconds), NOW_S)

    publisher = namespace.open_publisher("tolls", [grant(10)], NOW_S)
    assert publisher.renew([grant(10), grant(500)], NOW_S) == NOW_S + 500
    with pytest.raises(Unauthorized):
        publisher.renew([], NOW_S)
    assert publisher.expires_at_s == NOW_S + 500
    reader = namespace.open_reader(CG, [grant(10)], NOW_S, on_stolen=lambda _: None)
    assert reader.renew([grant(700)], NOW_S) == NOW_S + 700


@pytest.mark.parametrize(
    ("path", "options", "hubs"),
    [
        ("", {}, {"tolls": "01", "other": "01"}),
        ("", {"rule": "listener", "key": LISTEN_KEY}, {"tolls": "01", "other": "01"}),
        ("Tolls", {"rule": "listener", "key": LISTEN_KEY}, {"tolls": "01"}),
        ("tolls", {"rule": "hubrule", "key": HUB_KEY}, {"tolls": "01"}),
        ("tolls/ConsumerGroups/cg1", {}, {"tolls": "01"}),
        ("tolls/ConsumerGroups/cg1/Partitions/1", {}, {"tolls": "1"}),
        ("tolls/$management", {}, {}),
        ("tolls/Publishers/p", {}, {}),
        ("tolls/Partitions/1", {}, {}),
        ("", {"rule": "sender", "key": SEND_KEY}, {}),
        ("", {"expires_in_s": 1}, {}),
    ],
)
def test_who_may_read_the_events_of_a_partition(
    namespace: Namespace, path: str, options: dict[str, Any], hubs: dict[str, str]
) -> None:
    access = namespace.access
    grants = [access.check_token(token(path, **options), NOW_S)]
    found = {
        hub: "".join(one for one in "01" if access.may_listen(grants, hub, one, NOW_S + 2))
        for hub in ("tolls", "other")
    }
    assert {hub: partitions for hub, partitions in found.items() if partitions} == hubs


def test_the_last_rule_that_may_manage_stays(namespace: Namespace) -> None:
    with pytest.raises(ArgumentError):
        namespace.management.delete_access_rule(ROOT_RULE)
    namespace.management.set_access_rule(rule("boss", Right.MANAGE, key="k"))
    namespace.management.delete_access_rule(ROOT_RULE)
    assert namespace.access.rule_table.root_rule.name == "boss"


def test_there_are_at_most_twelve_rules_at_a_level(namespace: Namespace) -> None:
    while len(namespace.access.rule_table.rules()) < 12:
        namespace.management.set_access_rule(
            rule(f"rule{len(namespace.access.rule_table.rules())}", Right.SEND, key="k")
        )
    with pytest.raises(QuotaExceeded):
        namespace.management.set_access_rule(rule("one more", Right.SEND, key="k"))
    assert len(namespace.access.rule_table.rules()) == 12


def test_new_keys_differ_and_are_long() -> None:
    one, other = AccessRule.create("a", [Right.SEND]), AccessRule.create("a", [Right.SEND])
    assert len({one.primary_key, one.secondary_key, other.primary_key, other.secondary_key}) == 4
    assert len(base64.b64decode(one.primary_key)) == 32


@given(st.text(max_size=120) | st.text(alphabet="SharedAcsignture &=%20se1", max_size=80))
def test_any_text_is_a_token_or_refused(text: Any) -> None:
    access = Access(RuleTable.of_namespace([emulator_rule()]))
    with pytest.raises(Unauthorized):
        access.check_token(text, NOW_S)
    with pytest.raises(Unauthorized):
        access.check_token("SharedAccessSignature " + text, NOW_S)


@given(st.text(max_size=40), st.integers(0, len(GOOD)))
def test_a_good_token_with_anything_put_into_it_is_refused_or_the_same(text: str, place: int) -> None:
    access = Access(RuleTable.of_namespace([emulator_rule()]))
    try:
        granted = access.check_token(GOOD[:place] + text + GOOD[place:], NOW_S)
    except HubError:
        return
    assert granted.scope == ("tolls",)
    assert granted.expires_at_s == NOW_S + 60


@given(st.text(alphabet="abc123-._~ é", min_size=1, max_size=20), st.text(min_size=1, max_size=30))
def test_what_is_signed_here_is_verified_here(name: str, secret: str) -> None:
    access = Access(RuleTable.of_namespace([AccessRule("r", frozenset({Right.SEND}), secret, "other")]))
    path = quote(name)
    text = sign(f"sb://localhost/hub/publishers/{path}", "r", secret, NOW_S + 1)
    if name.strip(".") == "" and len(name) < 3:
        return
    assert access.check_token(text, NOW_S).scope == ("hub", "publishers", name.lower())


@pytest.mark.parametrize(
    ("resource", "scope"),
    [
        ("your-namespace.servicebus.windows.net", ()),
        ("your-namespace.servicebus.windows.net%2FTolls", ("tolls",)),
        ("localhost:5443/tolls/publishers/p", ("tolls", "publishers", "p")),
        ("http://hub", ()),
    ],
)
def test_a_resource_may_begin_with_the_host_as_the_rest_reference_writes_it(
    tmp_path: Path, resource: str, scope: tuple[Any, ...]
) -> None:
    namespace = open_namespace(tmp_path)
    try:
        assert namespace.access.check_token(raw(resource), NOW_S).scope == scope
    finally:
        namespace.close()


@pytest.mark.parametrize(
    "resource",
    [
        *("http:tolls", "sb:", "sb:/", "http:80", "sb:5672/", "HTTP:443", "https:/tolls", "amqps:5671"),
        *("sb://", "sb:///", "sb:///tolls", "://localhost", "//localhost", "sb://:5672/", "sb://localhost:/"),
        *("sb://localhost:x/", "sb://localhost:0/", "sb://localhost:65536/", "localhost:", "localhost:99999"),
        *("sb://user@localhost/", "sb://user:password@localhost/", "user@localhost", "sb://localhost@other"),
        *("tolls:80", "TOLLS:80/", "tolls.", ".", "..", "-", "[::1", "sb://[::1/", "sb://[]/", "sb://loc alhost/"),
        *("sb://localhost#", "sb://localhost?x", "sb://localhost/?", "sb://localhost/#", "sb://local%68ost/"),
        *("sb://localhost//", "sb://localhost/./", "sb://localhost/..", "sb://lo\u017fthost/", "s b://localhost/"),
    ],
)
def test_a_malformed_resource_covers_nothing(namespace: Namespace, resource: str) -> None:
    with pytest.raises(Unauthorized):
        namespace.access.check_token(raw(quote_plus(resource)), NOW_S)


_PIECES = (
    "sb",
    "http",
    ":",
    "/",
    "//",
    "://",
    "@",
    ".",
    "..",
    "tolls",
    "TOLLS",
    "localhost",
    "80",
    "%2F",
    "%252F",
    "?",
    "#",
    "\\",
    "[::1]",
    " ",
)


@given(st.lists(st.sampled_from(_PIECES), max_size=7).map("".join))
def test_only_a_well_formed_url_covers_anything(resource: str) -> None:
    """An independent reading: what covers something is scheme, host and path, or host and path."""
    access = Access(RuleTable.of_namespace([emulator_rule()]), lambda name: name.lower() == "tolls")
    try:
        scope = access.check_token(raw(quote_plus(resource)), NOW_S).scope
    except Unauthorized:
        return
    whole = resource if "://" in resource else f"sb://{resource}"
    parts = urlsplit(whole)
    assert parts.hostname
    assert parts.username is None
    assert not parts.netloc.endswith(":")
    assert not {"?", "#"} & set(whole)
    if "://" not in resource:
        assert parts.hostname not in ("sb", "http", "tolls")
    assert list(scope) == [unquote(one).lower() for one in parts.path.split("/") if one]
    assert not {".", "..", ""} & set(scope)
