"""Every identity against every action of docs/reference/access.md, and a contributor who collects all keys it can."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.azure.management.conftest import GROUP, NAMESPACE, SECRETS, Api
from tests.portal.conftest import Client
from tests.service.launchers import FakeLauncher
from tests.source import ROOT
from tidegate.azure.management import ArmSettings, PrincipalRole, Principals, arm_routes
from tidegate.hub import EventHubConfig, NamespaceConfig
from tidegate.hub.access import sign
from tidegate.hub.access_rules import ROOT_RULE, AccessRule, Right
from tidegate.hub.errors import Unauthorized
from tidegate.portal import portal
from tidegate.server import BackgroundServer, Server
from tidegate.service import Jobs

ROOT_KEY = "cm9vdC1rZXktb2YtdGhpcy10ZXN0"
HUB = f"{NAMESPACE}/eventhubs/eh1"
RULES: Mapping[str, tuple[str, tuple[Right, ...]]] = {
    "Manage": ("", (Right.MANAGE,)),
    "Listen and Send": ("", (Right.LISTEN, Right.SEND)),
    "Listen": ("", (Right.LISTEN,)),
    "Send": ("", (Right.SEND,)),
    "Manage, of one hub": ("eh1", (Right.MANAGE,)),
}
QUERY = {"transformation": {"name": "t", "properties": {"query": "SELECT * INTO o FROM i"}}}
CAPTURE = {"enabled": True, "encoding": "Avro", "destination": {"name": "Tidegate.Folder", "properties": {}}}


def table() -> dict[str, dict[str, bool]]:
    """Return what the page says: actions by name, and whether each identity may take them."""
    text = (ROOT / "docs/reference/access.md").read_text()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line[:1] == "|"]
    names = rows[0][1:]
    return {row[0]: {name: cell == "yes" for name, cell in zip(names, row[1:], strict=True)} for row in rows[2:]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("identities") / "data"
    principals = Principals(data)
    for role, secret in SECRETS.items():
        principals.create(f"the-{role.value}", role, secret)
    launcher = FakeLauncher()
    hubs = tuple(EventHubConfig(name=name, partition_count=1) for name in ("eh1", "eh2"))
    with (
        Jobs(data / "service", launcher=lambda: launcher) as jobs,
        BackgroundServer(
            NamespaceConfig(name="emulatorNs1", event_hubs=hubs),
            data,
            None,
            [portal(jobs), arm_routes(ArmSettings(data, jobs))],
            http_port=0,
            https_port=0,
        ) as running,
    ):
        management = running.server.namespace.management
        management.set_access_rule(AccessRule(ROOT_RULE, frozenset(Right), ROOT_KEY, ROOT_KEY))
        for name, (level, rights) in RULES.items():
            management.create_access_rule(AccessRule.create(rule_name(name), rights), level)
        yield running.server


def rule_name(identity: str) -> str:
    return ROOT_RULE if identity == "root key" else identity.replace(" ", "-").replace(",", "")


class Identity:
    """Somebody who tries each action on the surface that it is of."""

    def __init__(self, server: Server, name: str, number: int, folder: Path) -> None:
        self.server = server
        self.number = number
        self.folder = folder
        self.key = ""
        self.rule = ""
        self.away = Client(server.http_port, host="hub.example:5300")
        if name in {role.value for role in PrincipalRole}:
            answer = Api(server).log_in(f"the-{name}", SECRETS[PrincipalRole(name)])
            self.api = Api(server, answer.json["access_token"])
            return
        level = RULES.get(name, ("", ()))[0]
        self.rule = rule_name(name)
        self.key = server.namespace.access.rule_table.rule(self.rule, level).primary_key
        self.api = Api(server, self.key)
        self.away.sign_in(self.key, self.rule)

    def manages(self, method: str, path: str, body: Any = None) -> bool:
        status = self.api.call(method, path, body).status
        assert status in (200, 201, 202, 401, 403), status
        return status < 300

    def visits(self, path: str, body: Any = None) -> bool:
        answer = self.away.page(path) if body is None else self.away.post(path, body)
        assert answer.status in (200, 303, 401, 403), (answer.status, answer.text)
        return answer.status == 200

    def connects(self, is_own: bool) -> bool:
        answer = self.away.post("/eventhubs/eh1/connection-string")
        if answer.status != 200:
            return False
        return (f"SharedAccessKey={self.key};" in answer.data["connectionString"]) == is_own

    def publishes(self, hub: str) -> bool:
        token = sign(f"sb://hub.example/{hub}", self.rule, self.key, int(time.time()) + 60)
        return (
            Client(self.server.http_port).request("POST", f"/{hub}/messages", b"x", Authorization=token).status == 201
        )

    def reads(self) -> bool:
        access, path = self.server.namespace.access, ("eh1", "consumergroups", "$default", "partitions", "0")
        try:
            access.authorize([access.check_key(self.rule, self.key)], Right.LISTEN, path, time.time())
        except Unauthorized:
            return False
        return True

    def folder_capture(self) -> dict[str, Any]:
        place = {"folder": str(self.folder / str(self.number)), "archiveNameFormat": None}
        return {**CAPTURE, "destination": {"name": "Tidegate.Folder", "properties": place}}


def may_rule(method: str, suffix: str, body: Any) -> Callable[[Identity], bool]:
    return lambda who: who.manages(method, f"{NAMESPACE}/authorizationRules/{suffix}", body)


RIGHTS = {"properties": {"rights": ["Manage", "Listen", "Send"]}}
JOBS = f"{GROUP}/providers/Microsoft.StreamAnalytics/streamingjobs"
FILE = {"query": "SELECT * INTO o FROM i", "inputs": {}, "outputs": {}}
ACTIONS: Mapping[str, Callable[[Identity], bool]] = {
    "read resources through the management API": lambda who: who.manages("GET", HUB),
    "create an event hub through the management API": lambda who: who.manages(
        "PUT", f"{NAMESPACE}/eventhubs/api-{who.number}", {"properties": {"partitionCount": 1}}
    ),
    "capture to another folder through the management API": lambda who: who.manages(
        "PUT", f"{NAMESPACE}/eventhubs/eh2", {"properties": {"captureDescription": who.folder_capture()}}
    ),
    "create a rule with the right Manage": may_rule("PUT", "Made", RIGHTS),
    "list the keys of such a rule": may_rule("POST", "Made/listKeys", None),
    "regenerate a key of such a rule": may_rule("POST", "Made/regenerateKeys", {"keyType": "PrimaryKey"}),
    "list the keys of the root rule": may_rule("POST", f"{ROOT_RULE}/listKeys", None),
    "regenerate a key of the root rule": may_rule(
        "POST", f"{ROOT_RULE.upper()}/regenerateKeys", {"keyType": "SecondaryKey", "key": ROOT_KEY}
    ),
    "change the rights of the root rule": may_rule("PUT", ROOT_RULE.lower(), RIGHTS),
    "create a job in Azure's terms": lambda who: who.manages("PUT", f"{JOBS}/azure-{who.number}", {"properties": {}}),
    "create a job of a job file": lambda who: who.manages(
        "PUT", f"{JOBS}/file-{who.number}", {"properties": {"jobFile": FILE}}
    ),
    "see the portal's pages": lambda who: who.visits("/eventhubs/eh1"),
    "send events in the portal": lambda who: who.visits("/eventhubs/eh1/send", {"body": "x"}),
    "create an event hub in the portal": lambda who: who.visits(
        "/eventhubs", {"name": f"page-{who.number}", "partitionCount": 1}
    ),
    "capture to another folder in the portal": lambda who: who.visits(
        "/eventhubs/eh2/update", {"capture": {"destination": str(who.folder / f"page-{who.number}")}}
    ),
    "create a job in the portal": lambda who: who.visits(
        "/jobs",
        {"name": f"page-{who.number}", "inputHub": "eh1", "outputPath": "/tmp/x.jsonl", "query": FILE["query"]},
    ),
    "see the key of one's own rule in the portal": lambda who: who.connects(True),
    "see the keys of another rule in the portal": lambda who: who.visits("/namespace/policies/Made/keys", {}),
    "see the keys of the root rule in the portal": lambda who: who.visits(f"/namespace/policies/{ROOT_RULE}/keys", {}),
    "get a connection string with another key than one's own on a hub's page": lambda who: who.connects(False),
    "publish events": lambda who: who.publishes("eh1"),
    "read events": lambda who: who.reads(),
    "publish events to another event hub": lambda who: who.publishes("eh2"),
}


@pytest.mark.slow
def test_every_identity_may_do_what_the_page_says_and_nothing_else(server: Server, tmp_path: Path) -> None:
    said = table()
    assert list(said) == list(ACTIONS)
    identities = list(next(iter(said.values())))
    assert set(identities) == {role.value for role in PrincipalRole} | set(RULES) | {"root key"}
    Api(server, ROOT_KEY).ok("PUT", f"{NAMESPACE}/authorizationRules/Made", RIGHTS)
    for number, name in enumerate(identities):
        who = Identity(server, name, number, tmp_path)
        assert {action: act(who) for action, act in ACTIONS.items()} == {
            action: row[name] for action, row in said.items()
        }, name


LIST_KEYS = (
    "[listKeys(resourceId('Microsoft.EventHub/namespaces/authorizationRules', 'emulatorNs1', '{}'), '2024-01-01')]"
)


def deployed(name: str, value: str, resources: list[Any] | None = None) -> dict[str, Any]:
    return {
        "properties": {
            "mode": "Incremental",
            "template": {
                "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
                "contentVersion": "1.0.0.0",
                "resources": resources or [],
                "outputs": {name: {"type": "object", "value": value}},
            },
        }
    }


def everything_a_contributor_sees(api: Api) -> Iterator[str]:
    """Yield all answers on the way of a contributor who collects keys by every path that gives any."""
    rules = (*(rule_name(name) for name in RULES), "Made", "Mine", ROOT_RULE, ROOT_RULE.upper())
    for level in (NAMESPACE, HUB):
        for rule in rules:
            path = f"{level}/authorizationRules/{rule}"
            yield api.call("PUT", path, RIGHTS).content.decode()
            yield api.call("POST", f"{path}/listKeys").content.decode()
            chosen = {"keyType": "PrimaryKey", "key": "Y2hvc2VuLWtleQ=="}
            yield api.call("POST", f"{path}/regenerateKeys", chosen).content.decode()
        yield api.call("GET", f"{level}/authorizationRules").content.decode()
    deployments = f"{GROUP}/providers/Microsoft.Resources/deployments"
    for name in (ROOT_RULE, "Mine"):
        yield api.call("PUT", f"{deployments}/stolen", deployed("keys", LIST_KEYS.format(name))).content.decode()
        yield api.call("GET", f"{deployments}/stolen").content.decode()
    refers = "[reference(resourceId('Microsoft.Resources/deployments', 'outer')).outputs]"
    yield api.call("PUT", f"{deployments}/refers", deployed("keys", refers)).content.decode()
    for path in (deployments, f"{deployments}/outer", f"{deployments}/inner", f"{deployments}/refers"):
        yield api.call("GET", path).content.decode()
    local = {"serviceBusNamespace": "emulatorNs1", "eventHubName": "eh1", "sharedAccessPolicyName": ROOT_RULE}
    source = {"type": "Microsoft.ServiceBus/EventHub", "properties": local}
    serialization = {"type": "Json", "properties": {"encoding": "UTF8"}}
    part = {"name": "i", "properties": {"type": "Stream", "datasource": source, "serialization": serialization}}
    yield api.call("PUT", f"{JOBS}/mine", {"properties": {"inputs": [part], **QUERY}}).content.decode()
    for expanded in ("jobFile", "inputs,outputs,functions,transformation", "queryVersions"):
        for job in ("mine", "of-owner"):
            yield api.call("GET", f"{JOBS}/{job}?$expand={expanded}").content.decode()
    yield api.call("GET", f"{JOBS}/mine/inputs/i").content.decode()


@pytest.mark.slow
def test_a_contributor_never_becomes_an_owner_by_any_number_of_steps(server: Server) -> None:
    owner = Api(server, ROOT_KEY)
    nested = {
        "type": "Microsoft.Resources/deployments",
        "apiVersion": "2021-04-01",
        "name": "inner",
        **deployed("keys", LIST_KEYS.format(ROOT_RULE)),
    }
    outer = deployed("keys", "[reference('inner').outputs]", [nested])
    deployments = f"{GROUP}/providers/Microsoft.Resources/deployments"
    owner.ok("PUT", f"{deployments}/outer", outer)
    assert ROOT_KEY in str(owner.ok("GET", f"{deployments}/outer"))
    control = server.connection_string(hub="eh1")
    file = {**FILE, "inputs": {"i": {"type": "eventhub", "connection_string": control}}}
    owner.ok("PUT", f"{JOBS}/of-owner", {"properties": {"jobFile": file}})

    contributor = Identity(server, "contributor", 0, Path())
    seen = list(everything_a_contributor_sees(contributor.api))
    table_ = server.namespace.access.rule_table
    assert any(table_.rule("Mine").primary_key in one for one in seen)
    keys = [(rule.name, key) for level in ("", "eh1") for rule in table_.rules(level) for key in rule.keys]
    for name, key in keys:
        if key == ROOT_KEY:
            continue
        visitor = Client(server.http_port, host="hub.example:5300")
        visitor.sign_in(key, name)
        for path in ("/.json", "/eventhubs/eh1", "/jobs/of-owner.json", "/jobs/mine.json", "/new-job"):
            seen.append(visitor.page(path).text)
        seen.append(visitor.post("/eventhubs/eh1/connection-string").text)
        assert visitor.post("/jobs/of-owner/inputs/i", {"settings": {"type": "recorded", "path": "/x"}}).status != 200
        seen.append(visitor.post("/jobs", {"name": "stolen", "inputHub": "eh1", "outputHub": "eh2"}).text)
        assert Api(server, key).call("GET", HUB).status == 401
        assert Api(server).log_in(ROOT_RULE, key).status == 401
        assert Api(server).log_in(name, key).status == 401
    assert ROOT_KEY not in "".join(seen)


def test_a_signature_shows_no_key(server: Server) -> None:
    visitor = Client(server.http_port, host="hub.example:5300")
    visitor.headers["Authorization"] = sign("http://hub.example", ROOT_RULE, ROOT_KEY, int(time.time()) + 60)
    assert visitor.request("GET", "/.json").status == 200
    refused = visitor.request("POST", "/eventhubs/eh1/connection-string", b"{}")
    assert refused.status == 403
    assert "sign in with one" in refused.data["error"]["detail"]


def test_a_root_rule_that_may_not_manage_is_no_owner(server: Server) -> None:
    management = server.namespace.management
    management.update_access_rule(ROOT_RULE, [Right.LISTEN])
    try:
        assert Api(server, ROOT_KEY).call("GET", HUB).status == 401
        visitor = Client(server.http_port, host="hub.example:5300")
        visitor.sign_in(ROOT_KEY, ROOT_RULE)
        assert "· reader" in visitor.page("/").text
    finally:
        management.update_access_rule(ROOT_RULE, list(Right))
