"""`tidegate store`: the cluster of Kafka in which gateways keep a namespace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tidegate.cli.management import NamespaceClient, ServiceConnection
from tidegate.cli.output import output_option, show
from tidegate.client import ConnectionString, HubClient
from tidegate.hub.access_rules import ROOT_RULE
from tidegate.hub.capture.journal import JournalDamaged
from tidegate.hub.moving import CaptureBehind, CopiedHub, shared_content
from tidegate.hub.snapshot import NamespaceState, read_state
from tidegate.store import (
    CheckReport,
    ClientSettings,
    CopyError,
    SettingsError,
    SharedContent,
    SourceHub,
    SourcePartition,
    StoreCopy,
    check_store,
    read_settings,
)

_KAFKA_URL = "kafka://"


def store_settings(url: str, config: Path | None) -> ClientSettings:
    """Return how to reach the cluster that --store names. Raises click.UsageError."""
    if not url.startswith(_KAFKA_URL):
        raise click.UsageError(f"--store {url!r} is not known: expected kafka://HOST:PORT[,HOST:PORT…]")
    try:
        return read_settings(url.removeprefix(_KAFKA_URL).rstrip("/"), config)
    except SettingsError as error:
        raise click.UsageError(f"--store: {error}") from None


@click.group()
def store() -> None:
    """Examine the cluster of Kafka in which gateways keep a namespace, or move one there.

    \b
    Example:
      tidegate store check --store kafka://kafka-1:9092,kafka-2:9092
      tidegate store copy --data data --store kafka://kafka-1:9092,kafka-2:9092
    """


_url_option = click.option(
    "--store", "url", metavar="URL", required=True, help="The cluster: kafka://HOST:PORT[,HOST:PORT…], as in `up`."
)
_config_option = click.option(
    "--store-config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster's TLS and SASL settings: a file of properties under Kafka's names, such as security.protocol.",
)


@store.command()
@_url_option
@_config_option
@click.option("--namespace", metavar="NAME", help="Only this namespace; without it, all that the cluster has.")
@click.option(
    "--clocks/--no-clocks",
    default=True,
    show_default=True,
    help="Compare the brokers' clocks, for which a topic is created and deleted.",
)
@output_option
def check(url: str, store_config: Path | None, namespace: str | None, clocks: bool, output: str) -> int:
    """Check brokers, their versions and clocks, and the topics of namespaces with their settings and replicas.

    Nothing is changed: the topic by which clocks are compared is deleted again.
    The exit code is 1 if something breaks a promise of the hub, and 0 if there are only warnings.

    \b
    Example:
      tidegate store check --store kafka://kafka-1:9092,kafka-2:9092
      tidegate store check --store kafka://kafka-1:9093 --store-config store.properties --namespace orders -o json
    """
    report = asyncio.run(check_store(store_settings(url, store_config), namespace, probe_clocks=clocks))
    if output == "json":
        click.echo(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        _show(report)
    return 0 if report.is_sound else 1


def _show(report: CheckReport) -> None:
    click.echo(f"Cluster {report.cluster}")
    show([_broker(one) for one in report.as_json()["brokers"]], "table")
    for namespace, gateways in report.gateways.items():
        click.echo(f"Namespace {namespace}: {gateways} gateway{'' if gateways == 1 else 's'}")
    if report.topics:
        show([_topic(one) for one in report.as_json()["topics"]], "table")
    for finding in report.findings:
        click.echo(f"{finding.severity}: {finding.what}")
    if not report.findings:
        click.echo("Nothing is wrong.")


def _broker(broker: dict[str, Any]) -> dict[str, Any]:
    clock_ms = broker.pop("clock_ms")
    version = broker.pop("kafka")
    return {
        **broker,
        "kafka": "unknown" if version is None else f"{version} or newer",
        "clock": "unknown" if clock_ms is None else f"{clock_ms / 1000:+.3f} s",
    }


def _topic(topic: dict[str, Any]) -> dict[str, Any]:
    few, offline = topic.pop("under_replicated"), topic.pop("offline")
    event_hub = topic.pop("event_hub")
    return {
        **topic,
        "eventHub": event_hub or "",
        "underReplicated": ", ".join(map(str, few)),
        "offline": ", ".join(map(str, offline)),
    }


@store.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    required=True,
    help="The data directory of a hub that runs on this machine.",
)
@_url_option
@_config_option
@click.option(
    "--finish",
    is_flag=True,
    help="Compare both sides when everything is copied, and let gateways serve the namespace. Publishers must have "
    "stopped.",
)
@click.option(
    "--checkpoints",
    metavar="PLACE",
    help="With --finish: translate the checkpoints of the namespace's processors, in a container of Blob storage "
    "(az://checkpoints), a database (postgresql://…) or an SQLite file.",
)
def copy(data: Path, url: str, store_config: Path | None, finish: bool, checkpoints: str | None) -> None:
    """Copy the events of a running hub to a cluster, with their times, so that gateways can take over.

    Publishers can keep publishing meanwhile. A copy that was interrupted continues where it was, and one that is
    run again copies what came since. When little is left, stop publishers and readers, and run it with --finish.

    \b
    Example:
      tidegate store copy --data data --store kafka://kafka-1:9092,kafka-2:9092
      tidegate store copy --data data --store kafka://kafka-1:9092 --finish --checkpoints az://checkpoints
    """
    if checkpoints is not None and not finish:
        raise click.UsageError("--checkpoints needs --finish: processors must have stopped")
    state = read_state(data)
    if state is None:
        raise click.UsageError(f"--data {data}: there is no namespace in it")
    source = _Source(data, state)
    target = StoreCopy(store_settings(url, store_config), state.name, data)
    asyncio.run(_copy(source, target, finish=finish, checkpoints=checkpoints))
    if not finish:
        click.echo("Run it again for what comes in the meantime; with --finish once publishers have stopped.")
        return
    click.echo("Stop the hub, and start gateways with --store; do not start the hub over its data directory again.")


class _Source:
    """The running hub, and what its data directory says of it."""

    def __init__(self, data: Path, state: NamespaceState) -> None:
        """Raises ManagementError if it does not run."""
        keys = NamespaceClient(ServiceConnection(data).open).act("authorizationRules", ROOT_RULE, "listKeys")
        self._data = data
        self._state = state
        self._connection_string = str(keys["primaryConnectionString"])
        self.hubs = [
            SourceHub(hub.config.name, hub.directory, hub.config.retention_ms, hub.config.retention_bytes)
            for hub in state.event_hubs
        ]
        self.firsts: dict[str, list[int]] = {}

    def partitions(self, hub: SourceHub) -> list[SourcePartition]:
        """Return what is durable now. Raises ClientError."""
        client = HubClient(ConnectionString.parse(self._connection_string, hub.name))
        try:
            found = client.partitions_properties(client.partition_ids())
        finally:
            client.close()
        return [
            SourcePartition(Path(one.log_directory or ""), one.begin, one.end)
            for _, one in sorted(found.items(), key=lambda item: int(item[0]))
        ]

    def content(self, ends: Mapping[str, Sequence[int]]) -> SharedContent:
        """Return what else belongs to the namespace. Raises CopyError."""
        hubs = [CopiedHub(hub, self.firsts[hub.config.name], ends[hub.config.name]) for hub in self._state.event_hubs]
        try:
            return shared_content(self._data, self._state, hubs)
        except (CaptureBehind, JournalDamaged) as error:
            raise CopyError(str(error)) from error

    def translate(self, location: str) -> int:
        """Translate checkpoints to the numbers of the cluster, and return how many. Raises CheckpointError."""
        shifts = {
            (hub.name.lower(), str(partition)): first
            for hub in self.hubs
            for partition, first in enumerate(self.firsts[hub.name])
        }
        # It needs Microsoft's client, which the hub does without.
        from tidegate.cli.lag import open_checkpoints

        checkpoints = open_checkpoints(location)
        try:
            return checkpoints.shift(shifts)
        finally:
            checkpoints.close()


async def _copy(source: _Source, target: StoreCopy, *, finish: bool, checkpoints: str | None) -> None:
    await target.open()
    try:
        for hub in source.hubs:
            partitions = source.partitions(hub)
            copied = await target.copy(hub, partitions)
            click.echo(f"{hub.name}: {copied} events copied")
        if not finish:
            return
        ends: dict[str, list[int]] = {}
        for hub in source.hubs:
            partitions = source.partitions(hub)
            await target.copy(hub, partitions)
            ends[hub.name] = [one.end for one in partitions]
            for one in await target.verify(hub, partitions):
                click.echo(f"{hub.name}/{one.partition}: {one.events} events, checksum {one.checksum:08x}, equal")
            if source.partitions(hub) != partitions:
                raise CopyError(f"{hub.name} grows while it is compared: stop its publishers, and run --finish again")
            source.firsts[hub.name] = target.firsts(hub)
        content = source.content(ends)
        if checkpoints is not None:  # before gateways can serve the namespace, so that it can be repeated
            click.echo(f"{source.translate(checkpoints)} checkpoints translated")
        await target.finish(source.hubs, content)
        entries, captured = sum(map(len, content.entries.values())), len(content.documents)
        click.echo(
            f"{len(content.groups)} groups, {entries} entries of the schema registry and the progress of capture in "
            f"{captured} partition{'' if captured == 1 else 's'} copied, equal"
        )
    finally:
        await target.close()
