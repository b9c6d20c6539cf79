// Publishes with @azure/event-hubs and reads back what it published; prints one JSON line with what it saw.
// Usage: node round_trip.js CONNECTION_STRING HUB [websocket]

const { EventHubProducerClient, EventHubConsumerClient, EventHubBufferedProducerClient, earliestEventPosition } =
  require("@azure/event-hubs");

const WebSocket = require("ws");

const [connectionString, hub, transport] = process.argv.slice(2);
const common = { retryOptions: { maxRetries: 0, timeoutInMs: 90000 } };
if (transport === "websocket") common.webSocketOptions = { webSocket: WebSocket };

async function publish(seen) {
  const producer = new EventHubProducerClient(connectionString, hub, common);
  const properties = await producer.getEventHubProperties();
  seen.name = properties.name;
  seen.partitionIds = properties.partitionIds;
  const empty = await producer.getPartitionProperties("0");
  seen.emptyBefore = empty.isEmpty;
  const batch = await producer.createBatch({ partitionId: "0" });
  for (let number = 0; number < 20; number += 1) {
    if (!batch.tryAdd({ body: { number }, properties: { colour: "red" } })) throw new Error("the batch is full too soon");
  }
  await producer.sendBatch(batch);
  await producer.sendBatch([{ body: "keyed" }], { partitionKey: "7" });
  seen.lastSequenceNumber = (await producer.getPartitionProperties("0")).lastEnqueuedSequenceNumber;
  await producer.close();
}

async function publishIdempotently(seen) {
  const producer = new EventHubBufferedProducerClient(connectionString, hub, {
    ...common,
    enableIdempotentRetries: true,
    maxWaitTimeInMs: 200,
    onSendEventsErrorHandler: async (context) => { seen.bufferedError = String(context.error); },
  });
  for (let number = 0; number < 10; number += 1) {
    await producer.enqueueEvent({ body: `buffered ${number}` }, { partitionId: "1" });
  }
  await producer.flush();
  await producer.close();
}

function receive(count, partitionId, options) {
  const consumer = new EventHubConsumerClient("$Default", connectionString, hub, common);
  const events = [];
  return new Promise((resolve, reject) => {
    const finish = async (error) => {
      clearTimeout(timer);
      await subscription.close();
      await consumer.close();
      if (error) reject(error); else resolve(events);
    };
    const timer = setTimeout(() => finish(new Error(`only ${events.length} of ${count} events came`)), 90000);
    const subscription = consumer.subscribe(partitionId, {
      processEvents: async (batch) => {
        events.push(...batch);
        if (events.length === count) await finish();
      },
      processError: async (error) => finish(error),
    }, { startPosition: earliestEventPosition, maxBatchSize: 10, maxWaitTimeInSeconds: 1, ...options });
  });
}

async function main() {
  const seen = {};
  await publish(seen);
  const events = await receive(20, "0", {});
  seen.numbers = events.map((event) => event.body.number);
  seen.colours = [...new Set(events.map((event) => event.properties.colour))];
  seen.sequenceNumbers = events.map((event) => event.sequenceNumber);
  const tail = await receive(5, "0", { startPosition: { offset: events[14].offset, isInclusive: false } });
  seen.tail = tail.map((event) => event.body.number);
  seen.keyed = (await receive(1, "1", {})).map((event) => [event.body, event.partitionKey]);
  await publishIdempotently(seen);
  seen.buffered = (await receive(11, "1", {})).slice(1).map((event) => event.body);
  console.log(JSON.stringify(seen));
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
