"""`tidegate up`: the hub in the foreground."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tidegate.azure.management import ArmSettings, ManagementApi
from tidegate.cli.capture_options import capture_description, capture_options
from tidegate.cli.processes import allow_open_files, on_stop_signals
from tidegate.cli.store import store_settings
from tidegate.hub.access_rules import EMULATOR_KEY
from tidegate.hub.config import MAX_THROUGHPUT_UNITS, ConfigError, EventHubConfig, NamespaceConfig, Tier, load_config
from tidegate.log_format import log_to_standard_error
from tidegate.outbound import AddressPolicy
from tidegate.portal import portal as serve_portal
from tidegate.server import Server, ServerSettings
from tidegate.server.server import tune_gc
from tidegate.service import Jobs, JobsCollector, ServiceSettings, SharedSparkSettings
from tidegate.store import ClientSettings
from tidegate.workers.pool import WorkerPool, unshareable, without_ports

READY = "Emulator Service is Successfully Up!"
"""What the official emulator prints, so that scripts that wait for it need no change."""

OPEN_FILES = 1 << 16
"""A connection is one, and so is a partition's last segment."""

SERVICE_FOLDER = "service"
"""Where the data directory has the jobs."""

EMULATOR_HTTP_PORT = 5300
EMULATOR_KAFKA_PORT = 9092

_ADVERTISED = re.compile(r"[\w.-]+(?::[0-9]{1,5})?", re.ASCII)

DEFAULT_CONFIG = NamespaceConfig(
    name="tidegate", event_hubs=(EventHubConfig(name="eh1", partition_count=4),), is_initial=True
)


@click.command()
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The hubs to serve: the official emulator's Config.json as it is. Without it: the hubs that there are "
    "already, or else one, eh1, of 4 partitions.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Where events are stored; created if missing.",
)
@click.option(
    "--store",
    metavar="URL",
    help="Keep events and definitions in a cluster of Kafka, kafka://HOST:PORT[,HOST:PORT…], instead of --data; any "
    "number of hubs can serve one namespace then, as gateways.",
)
@click.option(
    "--store-config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster's TLS and SASL settings: a file of properties under Kafka's names, such as security.protocol.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--amqp-port", type=click.IntRange(0, 65535), default=5672, show_default=True, help="AMQP; 0 = any free.")
@click.option("--amqps-port", type=click.IntRange(0, 65535), help="AMQP over TLS (Azure's own is 5671); 0 = any free.")
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    help="The portal, GET /health, /metrics, publishing, web sockets and the management API, without TLS; 0 = any "
    f"free. Without this option and --https-port: {EMULATOR_HTTP_PORT}, the emulator's own, or any free port.",
)
@click.option("--portal/--no-portal", default=True, show_default=True, help="Serve web pages on the HTTP ports.")
@click.option("--https-port", type=click.IntRange(0, 65535), help="The same with TLS; 0 = any free.")
@click.option(
    "--kafka-port",
    type=click.IntRange(0, 65535),
    help="Kafka's protocol; 0 = any free. Without this option and --kafka-tls-port: "
    f"{EMULATOR_KAFKA_PORT}, the emulator's own, or any free port.",
)
@click.option("--kafka-tls-port", type=click.IntRange(0, 65535), help="The same with TLS (Azure's own is 9093).")
@click.option(
    "--kafka-advertised",
    metavar="HOST[:PORT]",
    help="Where Kafka's clients find this hub, such as behind a port mapping; without it, where they connected to.",
)
@click.option(
    "--listen",
    metavar="URL",
    multiple=True,
    help="Accept AMQP connections here too, such as amqp://[::1]:5673; may be repeated.",
)
@click.option(
    "--cert-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Certificate chain (PEM) for the TLS ports; without it, one signed by a development CA in the data directory.",
)
@click.option("--key-file", type=click.Path(dir_okay=False, path_type=Path), help="Its private key (PEM).")
@capture_options
@click.option(
    "--tier",
    type=click.Choice([tier.value for tier in Tier]),
    default=Tier.STANDARD.value,
    show_default=True,
    help="How large a publication may be: 256 KB in basic, 1 MB in standard and premium.",
)
@click.option(
    "--throughput-units",
    metavar="UNITS",
    type=click.IntRange(1, MAX_THROUGHPUT_UNITS),
    help="Take in 1 MB or 1,000 events and give out 2 MB or 4,096 events a second and unit; without it, no limit.",
)
@click.option(
    "--auto-inflate-to",
    metavar="UNITS",
    type=click.IntRange(1, MAX_THROUGHPUT_UNITS),
    help="Add throughput units under load, up to this many.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log lines for people, or JSON objects.",
)
@click.option(
    "--traces",
    metavar="URL",
    help="Send OpenTelemetry traces of the steps of jobs to this collector (OTLP over HTTP), such as "
    "http://127.0.0.1:4318; needs the extra tracing.",
)
@click.option(
    "--spark-memory",
    type=click.IntRange(min=256),
    default=1024,
    show_default=True,
    metavar="MIB",
    help="Java heap of the Spark that jobs share; it starts when a job needs it.",
)
@click.option(
    "--allow-address",
    metavar="ADDRESS",
    multiple=True,
    help="Let jobs, and tests of the management API, connect to a loopback or link-local address, such as "
    "127.0.0.1:10000, [::1] or 127.0.0.0/8; may be repeated. Without it they reach none there but this hub.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that serve clients, to use more cores; this one keeps the data directory, the portal and jobs.",
)
@click.option(
    "--drain",
    metavar="SECONDS",
    type=click.FloatRange(0, 3600),
    default=0.0,
    show_default=True,
    help="How long to keep serving after a signal to stop, while GET /ready answers 503, so that a balancer sends new "
    "clients elsewhere first.",
)
@click.option("--verbose", is_flag=True, help="Log closed connections too, not only refusals and failures.")
def up(
    config: Path | None,
    data: Path,
    store: str | None,
    store_config: Path | None,
    host: str,
    amqp_port: int,
    amqps_port: int | None,
    http_port: int | None,
    portal: bool,
    https_port: int | None,
    kafka_port: int | None,
    kafka_tls_port: int | None,
    kafka_advertised: str | None,
    listen: tuple[str, ...],
    cert_file: Path | None,
    key_file: Path | None,
    tier: str,
    throughput_units: int | None,
    auto_inflate_to: int | None,
    log_format: str,
    traces: str | None,
    spark_memory: int,
    allow_address: tuple[str, ...],
    workers: int,
    drain: float,
    verbose: bool,
    **capture: Any,
) -> None:
    """Start the hub in the foreground; Ctrl-C or SIGTERM stops it.

    \b
    Example:
      tidegate up --config Config.json --data data --amqp-port 5672
    """
    if (cert_file is None) != (key_file is None):
        raise click.UsageError("--cert-file and --key-file are given together or not at all")
    if cert_file is not None and amqps_port is None and https_port is None and kafka_tls_port is None:
        raise click.UsageError("--cert-file is for a TLS port: add --amqps-port, --https-port or --kafka-tls-port")
    if kafka_advertised is not None and not _ADVERTISED.fullmatch(kafka_advertised):
        raise click.UsageError(f"--kafka-advertised: expected HOST or HOST:PORT, got {kafka_advertised!r}")
    replaceable = set()
    if http_port is None and https_port is None:  # `tidegate hub` finds it by the data directory
        http_port = EMULATOR_HTTP_PORT
        replaceable.add(http_port)
    if kafka_port is None and kafka_tls_port is None:
        kafka_port = EMULATOR_KAFKA_PORT
        replaceable.add(kafka_port)
    if auto_inflate_to is not None and auto_inflate_to < (throughput_units or MAX_THROUGHPUT_UNITS + 1):
        raise click.UsageError("--auto-inflate-to needs --throughput-units, and not fewer units than those")
    try:
        addresses = AddressPolicy.guarded(allow_address)
    except ValueError as error:
        raise click.UsageError(f"--allow-address: {error}") from None
    log_to_standard_error(log_format, logging.INFO if verbose else logging.WARNING)
    limits = {"tier": Tier(tier), "throughput_units": throughput_units, "auto_inflate_to": auto_inflate_to}
    _check_workers(workers, listen)
    settings = ServerSettings(
        host=host,
        amqp_port=amqp_port,
        amqps_port=amqps_port,
        http_port=http_port,
        https_port=https_port,
        kafka_port=kafka_port,
        kafka_tls_port=kafka_tls_port,
        kafka_advertised=kafka_advertised,
        replaceable_ports=frozenset(replaceable - {amqp_port, amqps_port}),
        listen=listen,
        cert_file=cert_file,
        key_file=key_file,
        capture=capture_description(**capture),
        store=_store(store, store_config),
        drain_s=drain,
    )
    allow_open_files(OPEN_FILES)
    if store is not None and workers > 1:
        raise click.UsageError("--workers is for the data directory; with --store, start more gateways")
    spark = SharedSparkSettings(memory_bytes=spark_memory << 20)
    jobs = Jobs(data / SERVICE_FOLDER, ServiceSettings(spark=spark, traces=traces))
    management = ManagementApi(ArmSettings(data, jobs))
    further = [*([serve_portal(jobs, management)] if portal else []), management.routes()]
    own = settings
    if workers > 1:
        own = without_ports(settings)
    server = Server(_config(config).model_copy(update=limits), data, own, further)
    pool = None
    if workers > 1:
        pool = WorkerPool(server, replace(settings, drain_s=0), workers, is_verbose=verbose, log_format=log_format)
    server.metrics.collectors.append(JobsCollector(jobs))
    asyncio.run(_serve(server, pool, jobs, addresses, has_portal=portal))


def _check_workers(workers: int, listen: tuple[str, ...]) -> None:
    """Raise UsageError if several processes cannot share what is to be listened on."""
    if workers == 1:
        return
    if not hasattr(socket, "SO_REUSEPORT"):
        raise click.UsageError("--workers needs a system on which processes can share a port; Windows has none")
    url = unshareable(listen)
    if url is not None:
        raise click.UsageError(f"--listen {url}: with --workers, name the port that they share")


def _store(url: str | None, config: Path | None) -> ClientSettings | None:
    """Return how to reach the cluster that --store names."""
    if url is None:
        if config is not None:
            raise click.UsageError("--store-config is for a cluster of Kafka: add --store kafka://HOST:PORT")
        return None
    return store_settings(url, config)


def _config(path: Path | None) -> NamespaceConfig:
    if path is None:
        return DEFAULT_CONFIG
    try:
        return load_config(path)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


async def _serve(
    server: Server, pool: WorkerPool | None, jobs: Jobs, addresses: AddressPolicy, *, has_portal: bool
) -> None:
    """Serve until a signal: the jobs start after the hub that they read, and stop before it."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    on_stop_signals(loop, stop.set)
    if pool is not None:
        pool.reserve_ports()
    await server.start()
    if pool is not None:
        try:
            await pool.start()
        except BaseException:
            await server.stop()
            raise
    addresses.beside(*server.own_ports).install()
    tune_gc()
    try:
        await loop.run_in_executor(None, jobs.open)
        server.namespace.storage.on_check(jobs.note_storage)
        try:
            pages = [f"Portal: {server.web_url().replace('//localhost:', '//127.0.0.1:')}/"] if has_portal else []
            for line in [*_described(jobs), *pages, *describe(server)]:
                click.echo(line)
            await stop.wait()
            await server.drain()
        finally:
            await loop.run_in_executor(None, jobs.close)
    finally:
        if pool is not None:
            await pool.stop()
        await server.stop()


def _described(jobs: Jobs) -> list[str]:
    """Return a line about the jobs, if there are any."""
    summaries = jobs.summaries()
    shown = ", ".join(f"{job.name} ({job.state.value})" for job in summaries)
    return [f"Jobs: {shown}"] if summaries else []


def describe(server: Server) -> list[str]:
    """What a person needs to know about a server that has come up; the ready line is the last."""
    hubs = [f"{hub.name} ({len(hub.partitions)} partitions)" for hub in server.namespace.event_hubs.values()]
    lines = [f"Event hubs: {', '.join(hubs)}", f"Data: {server.data_dir.absolute()}"]
    if server.settings.store is not None:
        lines.append(f"Store: Kafka at {', '.join(f'{host}:{port}' for host, port in server.settings.store.bootstrap)}")
    if server.settings.capture is not None:
        lines.append(f"Capture: {server.settings.capture.destination}")
    host = server.settings.host
    for name, port in (
        ("AMQP", server.amqp_port),
        ("AMQP over TLS", server.amqps_port),
        ("HTTP", server.http_port),
        ("HTTPS", server.https_port),
        ("Kafka", server.kafka_port),
        ("Kafka over TLS", server.kafka_tls_port),
    ):
        if port is not None:
            lines.append(f"{name}: {host}:{port}")
    lines += [f"AMQP: {url}" for url in server.further_urls]
    if server.certificate is not None and server.certificate.authority_file is not None:
        lines.append(f"Development CA that TLS clients have to trust: {server.certificate.authority_file.absolute()}")
    if server.namespace.access.rule_table.root_rule.primary_key == EMULATOR_KEY:
        lines.append(f"Connection string: {server.connection_string()}")
    else:  # what is printed ends up in logs
        lines.append(f"Connection string: tidegate connection-string --data {server.data_dir} shows it")
    lines.append(READY)
    return lines
