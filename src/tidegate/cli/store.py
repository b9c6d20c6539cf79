"""`tidegate store`: the cluster of Kafka in which gateways keep a namespace."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from tidegate.cli.output import output_option, show
from tidegate.store import ClientSettings, Report, SettingsError, check_store, read_settings

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
    """Examine the cluster of Kafka in which gateways keep a namespace.

    \b
    Example:
      tidegate store check --store kafka://kafka-1:9092,kafka-2:9092
    """


@store.command()
@click.option(
    "--store", "url", metavar="URL", required=True, help="The cluster: kafka://HOST:PORT[,HOST:PORT…], as in `up`."
)
@click.option(
    "--store-config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster's TLS and SASL settings: a file of properties under Kafka's names, such as security.protocol.",
)
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

    Nothing is changed. The exit code is 1 if something breaks a promise of the hub, and 0 if there are only warnings.

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


def _show(report: Report) -> None:
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
