"""Every kind of output, compared with a loop over its own client library that writes the same rows.

    python -m benchmarks.outputs [--rows N] [--runs N] [KIND …]

Both sides write rows of five columns in portions of 10,000 to four partitions (folders, partition keys, parallel
requests), and wait after each portion until it is durable. The loop has its rows as dicts; the output has them in
columns, as a step of a job gives them to it, and also keeps its position. "ratio" is the median of the ratios of
neighbouring runs, and "processor time" the same of what this process used, which varies less on a busy machine. Files
are small, 2,500 rows each, and synced to disk on both sides. Servers are processes of their own on this machine:
Azurite, PostgreSQL, MariaDB, Apache Kafka, Redis, Tidegate's hub, ActiveMQ Artemis; those for webhooks and Cosmos DB
are threads here, so their figures are for both ends. Artemis has no client library for Python that comes as a wheel,
and Microsoft's for Service Bus needs tokens, so that line has no ratio.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import requests
from azure.eventhub import EventData, EventHubProducerClient
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from redis import Redis
from rich.console import Console
from rich.table import Table

from benchmarks._output_rows import PARTITIONS, PORTION, Loop, Rows, opened, portions
from benchmarks._outputs_at_rest import AT_REST
from benchmarks.hub_throughput import BUILD, HUB, HubProcess
from tests.artemis import artemis
from tests.cosmos_account import KEY, account
from tests.http_receiver import receiver
from tests.kafka import kafka
from tests.redis_server import redis_server
from tidegate.connectors.outputs import Output
from tidegate.connectors.outputs.messaging.cosmos_db import authorization


@contextmanager
def _kafka() -> Iterator[tuple[Output, Loop]]:
    with kafka() as address:
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("rows", PARTITIONS, 1)])["rows"].result(60)
        producer = Producer({"bootstrap.servers": address, "transactional.id": "loop"})
        producer.init_transactions()

        def loop(rows: Rows) -> None:
            producer.begin_transaction()
            for row in rows:
                producer.produce("rows", json.dumps(row).encode())
            producer.commit_transaction()

        yield opened("kafka", bootstrap_servers=address, topic="rows"), loop


@contextmanager
def _redis() -> Iterator[tuple[Output, Loop]]:
    with redis_server() as url:
        client = Redis.from_url(url)

        def loop(rows: Rows) -> None:
            with client.pipeline(transaction=True) as pipeline:
                for row in rows:
                    pipeline.xadd("loop", row)
                pipeline.execute()

        yield opened("redis", connection_string=url, stream="rows"), loop


@contextmanager
def _event_hub() -> Iterator[tuple[Output, Loop]]:
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as data:
        hub = HubProcess(data, partitions=PARTITIONS)
        text = (
            f"Endpoint=sb://127.0.0.1:{hub.port};SharedAccessKeyName=RootManageSharedAccessKey;"
            f"SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;EntityPath={HUB}"
        )
        try:
            with EventHubProducerClient.from_connection_string(text) as client:
                partitions = client.get_partition_ids()

                def loop(rows: Rows) -> None:
                    for place, partition in enumerate(partitions):
                        batch = client.create_batch(partition_id=partition)
                        for row in rows[place :: len(partitions)]:
                            event = EventData(json.dumps(row))
                            try:
                                batch.add(event)
                            except ValueError:
                                client.send_batch(batch)
                                batch = client.create_batch(partition_id=partition)
                                batch.add(event)
                        client.send_batch(batch)

                yield opened("eventhub", connection_string=text), loop
        finally:
            hub.stop()


@contextmanager
def _webhook() -> Iterator[tuple[Output, Loop]]:
    with receiver() as there, requests.Session() as session:

        def loop(rows: Rows) -> None:
            for first in range(0, len(rows), 100):
                session.post(there.url, json=rows[first : first + 100]).raise_for_status()

        yield opened("webhook", url=there.url, parallel_requests=PARTITIONS), loop


@contextmanager
def _service_bus() -> Iterator[tuple[Output, None]]:
    with artemis() as url:
        yield opened("servicebus", connection_string=url, queue="rows"), None


@contextmanager
def _cosmos_db() -> Iterator[tuple[Output, Loop]]:
    with account() as one, requests.Session() as session:
        link, key = "dbs/city/colls/totals", base64.b64decode(KEY)

        def loop(rows: Rows) -> None:
            for row in rows:
                date = formatdate(usegmt=True)
                headers = {
                    "Authorization": authorization(key, "POST", "docs", link, date),
                    "x-ms-date": date,
                    "x-ms-documentdb-is-upsert": "True",
                    "x-ms-documentdb-partitionkey": "[{}]",
                }
                document = {**row, "id": str(row["n"])}
                session.post(f"{one.there.url}/{link}/docs", json=document, headers=headers).raise_for_status()

        settings = {"connection_string": one.connection_string, "database": "city", "container": "totals"}
        yield opened("cosmosdb", document_id="n", parallel_requests=PARTITIONS, **settings), loop


KINDS: dict[str, Callable[[], Any]] = {
    **AT_REST,
    "cosmosdb": _cosmos_db,
    "eventhub": _event_hub,
    "kafka": _kafka,
    "redis": _redis,
    "servicebus": _service_bus,
    "webhook": _webhook,
}


def seconds(work: Callable[[Any], None], some: list[Any]) -> tuple[float, float]:
    """Return how long it takes over all portions, and how much of that is processor time of this process."""
    began, processor_began = time.perf_counter(), time.process_time()
    for portion in some:
        work(portion)
    return time.perf_counter() - began, time.process_time() - processor_began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    result = Table(title=f"{arguments.rows:,} rows in portions of {PORTION:,}; medians of {arguments.runs} runs")
    for column in ("output", "rows/s", "client loop rows/s", "ratio", "processor time"):
        result.add_column(column, justify="left" if column == "output" else "right")
    columns, dicts = portions(arguments.rows)
    for kind in arguments.kinds or KINDS:
        with KINDS[kind]() as (output, loop):

            def send(rows: Any, output: Output = output) -> None:
                output.write(rows)
                output.commit()

            seconds(send, columns[:1])
            runs = []
            for _ in range(arguments.runs):
                runs.append((seconds(send, columns), None if loop is None else seconds(loop, dicts)))
            rate = arguments.rows / statistics.median(ours[0] for ours, _ in runs)
            pairs = [(ours, theirs) for ours, theirs in runs if theirs is not None]
            peer = f"{arguments.rows / statistics.median(theirs[0] for _, theirs in pairs):,.0f}" if pairs else "–"
            ratios = [
                f"{statistics.median(theirs[clock] / ours[clock] for ours, theirs in pairs):.2f}" if pairs else "–"
                for clock in (0, 1)
            ]
            result.add_row(kind, f"{rate:,.0f}", peer, *ratios)
            output.close()
    Console().print(result)


if __name__ == "__main__":
    main()
