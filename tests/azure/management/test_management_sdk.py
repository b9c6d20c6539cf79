"""Azure's management clients as published, given a base URL and a CA file: Python and JavaScript."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.eventhub import EventData, EventHubProducerClient
from azure.identity import ClientSecretCredential
from azure.mgmt.eventhub import EventHubManagementClient
from azure.mgmt.streamanalytics import StreamAnalyticsManagementClient, models

from tests import programs
from tests.azure.management.conftest import KEY, SECRETS, Api
from tests.patience import PATIENCE_S, eventually
from tests.source import ROOT
from tidegate.azure.management import PrincipalRole, Principals
from tidegate.server import Server

GROUP, NAMESPACE = "any-group", "emulatorNs1"
SCRIPTS = ROOT / "tests" / "server" / "js"


def credential_of(api: Api, name: str, secret: str, tenant: str) -> ClientSecretCredential:
    return ClientSecretCredential(
        tenant,
        name,
        secret,
        authority=api.base_url,
        disable_instance_discovery=True,
        connection_verify=api.ca_file,
    )


def client_of(api: Api, name: str, secret: str, tenant: str = "any-tenant") -> EventHubManagementClient:
    return EventHubManagementClient(
        credential_of(api, name, secret, tenant),
        "any-subscription",
        base_url=api.base_url,
        credential_scopes=[f"{api.base_url}/.default"],
        connection_verify=api.ca_file,
    )


@pytest.fixture
def event_hubs(api: Api) -> Iterator[EventHubManagementClient]:
    with client_of(api, "the-owner", SECRETS[PrincipalRole.OWNER]) as client:
        yield client


def test_event_hubs_from_python(event_hubs: EventHubManagementClient) -> None:
    assert [one.name for one in event_hubs.namespaces.list()] == [NAMESPACE]
    namespace = event_hubs.namespaces.get(GROUP, NAMESPACE)
    poller = event_hubs.namespaces.begin_create_or_update(GROUP, NAMESPACE, {"location": "local", "tags": {"by": "py"}})
    assert poller.result().tags == {"by": "py"}
    assert namespace.provisioning_state == "Succeeded"
    assert not event_hubs.namespaces.check_name_availability({"name": NAMESPACE}).name_available
    settings = {"properties": {"partitionCount": 2, "messageRetentionInDays": 1}}
    hub = event_hubs.event_hubs.create_or_update(GROUP, NAMESPACE, "from-python", settings)
    assert (hub.partition_ids, hub.status) == (["0", "1"], "Active")
    hub.message_retention_in_days = None
    hub.retention_description = {"cleanupPolicy": "Delete", "retentionTimeInHours": 72}
    assert event_hubs.event_hubs.create_or_update(GROUP, NAMESPACE, "from-python", hub).message_retention_in_days == 3
    assert "from-python" in [one.name for one in event_hubs.event_hubs.list_by_namespace(GROUP, NAMESPACE)]
    groups = event_hubs.consumer_groups
    groups.create_or_update(GROUP, NAMESPACE, "from-python", "readers", {"properties": {"userMetadata": "x"}})
    assert groups.get(GROUP, NAMESPACE, "from-python", "readers").user_metadata == "x"
    assert len(list(groups.list_by_event_hub(GROUP, NAMESPACE, "from-python"))) == 2
    rule = {"properties": {"rights": ["Listen"]}}
    event_hubs.event_hubs.create_or_update_authorization_rule(GROUP, NAMESPACE, "from-python", "reader", rule)
    keys = event_hubs.event_hubs.list_keys(GROUP, NAMESPACE, "from-python", "reader")
    renewed = event_hubs.event_hubs.regenerate_keys(
        GROUP, NAMESPACE, "from-python", "reader", {"keyType": "SecondaryKey"}
    )
    assert (renewed.primary_key == keys.primary_key, renewed.secondary_key == keys.secondary_key) == (True, False)
    event_hubs.event_hubs.delete(GROUP, NAMESPACE, "from-python")
    with pytest.raises(ResourceNotFoundError, match="from-python"):
        event_hubs.event_hubs.get(GROUP, NAMESPACE, "from-python")


def test_roles_and_secrets_from_python(api: Api) -> None:
    with client_of(api, "the-reader", SECRETS[PrincipalRole.READER], "adfs") as reader:
        assert reader.namespaces.get(GROUP, NAMESPACE).name == NAMESPACE
        with pytest.raises(HttpResponseError) as refused:
            reader.event_hubs.create_or_update(GROUP, NAMESPACE, "x", {})
        assert refused.value.status_code == 403
        assert refused.value.error.code == "AuthorizationFailed"
    with (
        client_of(api, "the-reader", "not the secret at all") as stranger,
        pytest.raises(ClientAuthenticationError, match="AADSTS7000215"),
    ):
        stranger.namespaces.get(GROUP, NAMESPACE)


@pytest.fixture(scope="module")
def node() -> str:
    """Node, with the clients installed beside the scripts (`make test` does it)."""
    return programs.node(SCRIPTS, "@azure/arm-eventhub")


def run_script(node: str, api: Api, script: str) -> Any:
    result = subprocess.run(
        [node, script, api.base_url, "the-owner", SECRETS[PrincipalRole.OWNER]],
        cwd=SCRIPTS,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        env={**os.environ, "NODE_EXTRA_CA_CERTS": api.ca_file},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_event_hubs_from_javascript(node: str, api: Api) -> None:
    assert run_script(node, api, "arm_event_hubs.js") == {
        "namespace": "Active",
        "available": False,
        "tags": {"by": "js"},
        "hub": ["from-js", ["0", "1", "2"], 2, True],
        "hubs": True,
        "group": ["readers", "x"],
        "groups": ["$Default", "readers"],
        "rights": ["Send"],
        "hasHub": True,
        "renewed": True,
        "gone": [404, "ResourceNotFound"],
    }


# -- Stream Analytics, whose jobs run in processes


def hub_source(name: str) -> dict[str, str]:
    return {
        "service_bus_namespace": NAMESPACE,
        "event_hub_name": name,
        "shared_access_policy_name": "RootManageSharedAccessKey",
        "shared_access_policy_key": KEY,
    }


@pytest.fixture
def streaming(running_server: Server) -> Iterator[StreamAnalyticsManagementClient]:
    api = Api(running_server)
    Principals(running_server.data_dir).create("python", PrincipalRole.CONTRIBUTOR, "the-secret-of-python")
    with StreamAnalyticsManagementClient(
        credential_of(api, "python", "the-secret-of-python", "adfs"),
        "any-subscription",
        base_url=api.base_url,
        credential_scopes=[f"{api.base_url}/.default"],
        connection_verify=api.ca_file,
    ) as client:
        yield client


def test_a_job_from_python_reads_one_hub_and_writes_another(
    running_server: Server, streaming: StreamAnalyticsManagementClient
) -> None:
    job = models.StreamingJob(
        location="local",
        sku=models.Sku(name="Standard"),
        events_late_arrival_max_delay_in_seconds=5,
        compatibility_level="1.2",
    )
    made = streaming.streaming_jobs.begin_create_or_replace(GROUP, "from-python", job).result()
    assert (made.job_state, made.provisioning_state) == ("Created", "Succeeded")
    datasource = models.EventHubStreamInputDataSource(**hub_source("events"))
    properties = models.StreamInputProperties(datasource=datasource, serialization=models.JsonSerialization())
    kept = streaming.inputs.create_or_replace(GROUP, "from-python", "events", models.Input(properties=properties))
    assert kept.properties.datasource.shared_access_policy_key is None
    streaming.inputs.update(GROUP, "from-python", "events", kept, if_match=kept.properties.etag)
    assert streaming.inputs.begin_test(GROUP, "from-python", "events").result().status == "TestSucceeded"
    output = models.Output(
        datasource=models.EventHubOutputDataSource(**hub_source("results")), serialization=models.JsonSerialization()
    )
    streaming.outputs.create_or_replace(GROUP, "from-python", "results", output)
    assert streaming.outputs.begin_test(GROUP, "from-python", "results").result().status == "TestSucceeded"
    query = models.Transformation(query="SELECT * INTO results FROM events", streaming_units=1)
    streaming.transformations.create_or_replace(GROUP, "from-python", "main", query)
    expanded = streaming.streaming_jobs.get(GROUP, "from-python", expand="inputs,outputs,transformation,functions")
    assert [one.name for one in expanded.inputs] == ["events"]
    assert expanded.transformation.query == query.query
    start = models.StartStreamingJobParameters(output_start_mode="JobStartTime")
    streaming.streaming_jobs.begin_start(GROUP, "from-python", start).result(PATIENCE_S)
    assert streaming.streaming_jobs.get(GROUP, "from-python").job_state == "Running"
    connection = running_server.connection_string()
    with EventHubProducerClient.from_connection_string(connection, eventhub_name="events") as producer:
        producer.send_batch([EventData('{"n": 1}')])
    results = running_server.namespace.event_hub("results").partitions[0]
    eventually(lambda: results.properties().last_enqueued_sequence_number >= 0)
    streaming.streaming_jobs.begin_stop(GROUP, "from-python").result(PATIENCE_S)
    stopped = streaming.streaming_jobs.get(GROUP, "from-python")
    assert (stopped.job_state, stopped.output_start_mode) == ("Stopped", "JobStartTime")
    assert stopped.last_output_event_time is not None
    assert [one.name for one in streaming.streaming_jobs.list()] == ["from-python"]
    assert [one.name for one in streaming.streaming_jobs.list_by_resource_group(GROUP)] == ["from-python"]
    assert streaming.subscriptions.list_quotas("local").value[0].current_count == 1
    streaming.streaming_jobs.begin_delete(GROUP, "from-python").result()
    assert not list(streaming.streaming_jobs.list())


def test_a_job_from_javascript(node: str, running_server: Server) -> None:
    api = Api(running_server)
    Principals(running_server.data_dir).create("the-owner", PrincipalRole.OWNER, SECRETS[PrincipalRole.OWNER])
    assert run_script(node, api, "arm_stream_analytics.js") == {
        "job": ["from-js", "Created", {"by": "js"}, True],
        "key": True,
        "tested": "TestSucceeded",
        "parts": [["events"], ["results"], []],
        "running": "Running",
        "stopped": ["Stopped", 1, 1, True],
        "listed": True,
        "quotas": 1,
        "gone": [404, "ResourceNotFound"],
    }
