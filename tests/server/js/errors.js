// Makes mistakes with @azure/event-hubs and prints one JSON line with the code of the error each of them got.
// Usage: node errors.js CONNECTION_STRING HUB
// With `conditions` as the only argument: reads [[condition, description], …] and prints the class the client gives each.

const { EventHubProducerClient, EventHubConsumerClient, earliestEventPosition } = require("@azure/event-hubs");
const { translate } = require("@azure/core-amqp");
const fs = require("fs");

const common = { retryOptions: { maxRetries: 0, timeoutInMs: 60000 } };

async function codeOf(action) {
  try {
    await action();
  } catch (error) {
    return error.code ?? error.name;
  }
  return "none";
}

function received(connectionString, hub, group, partition) {
  const consumer = new EventHubConsumerClient(group, connectionString, hub, common);
  return new Promise((resolve, reject) => {
    const finish = async (error) => {
      await subscription.close();
      await consumer.close();
      if (error) reject(error); else resolve();
    };
    const subscription = consumer.subscribe(partition, {
      processEvents: async () => finish(),
      processError: async (error) => finish(error),
    }, { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 5 });
  });
}

async function withProducer(connectionString, hub, action) {
  const producer = new EventHubProducerClient(connectionString, hub, common);
  try {
    await action(producer);
  } finally {
    await producer.close();
  }
}

async function main() {
  const [connectionString, hub] = process.argv.slice(2);
  if (connectionString === "conditions") {
    const pairs = JSON.parse(fs.readFileSync(0, "utf8"));
    return pairs.map(([condition, description]) => translate({ condition, description, name: "AmqpError" }).code ?? null);
  }
  const wrongKey = connectionString.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=wrong");
  const send = (options) => (producer) => producer.sendBatch([{ body: "x" }], options);
  const cases = {
    hubProperties: () => withProducer(connectionString, "nowhere", (p) => p.getEventHubProperties()),
    hubSend: () => withProducer(connectionString, "nowhere", send()),
    hubReceive: () => received(connectionString, "nowhere", "$Default", "0"),
    groupReceive: () => received(connectionString, hub, "nobody", "0"),
    partitionProperties: () => withProducer(connectionString, hub, (p) => p.getPartitionProperties("99")),
    partitionSend: () => withProducer(connectionString, hub, send({ partitionId: "99" })),
    partitionReceive: () => received(connectionString, hub, "$Default", "99"),
    keySend: () => withProducer(wrongKey, hub, send()),
    keyAndHubSend: () => withProducer(wrongKey, "nowhere", send()),
  };
  const codes = {};
  for (const [name, action] of Object.entries(cases)) codes[name] = await codeOf(action);
  return codes;
}

main().then((result) => { console.log(JSON.stringify(result)); process.exit(0); },
  (error) => { console.error(error); process.exit(1); });
