// Carries out what its standard input asks, one JSON line after the other, with @azure/event-hubs and kafkajs, and answers
// each with a line: the operations of tests/server/java/Driver.java that rolling restarts need, and those of Kafka.
const readline = require("node:readline");
const { EventHubConsumerClient, EventHubProducerClient, earliestEventPosition } = require("@azure/event-hubs");
const { Kafka, logLevel } = require("kafkajs");

const producers = new Map();
const workers = new Map();

function describe(error) {
  return { kind: error.name, text: String(error.message), condition: error.code ?? null, transient: error.retryable ?? null };
}

function options(asked) {
  return { retryOptions: { maxRetries: asked.retries ?? 3, retryDelayInMs: 500, timeoutInMs: 60000 } };
}

function kafka(asked) {
  const sasl = { mechanism: "plain", username: "$ConnectionString", password: asked.connection };
  return new Kafka({ brokers: [asked.servers], sasl, ssl: false, logLevel: logLevel.NOTHING });
}

async function producer(name, open) {
  if (!producers.has(name)) producers.set(name, await open());
  return producers.get(name);
}

const operations = {
  async publish(asked) {
    const client = await producer(asked.producer, () => new EventHubProducerClient(asked.connection, asked.hub, options(asked)));
    await client.sendBatch(asked.bodies.map((body) => ({ body })), { partitionId: asked.partition });
  },
  async process(asked) {
    const client = new EventHubConsumerClient("$Default", asked.connection, asked.hub, options(asked));
    const state = { bodies: [], errors: [] };
    const subscription = client.subscribe(
      {
        processEvents: async (events) => { state.bodies.push(...events.map((event) => event.body)); },
        processError: async (error) => { state.errors.push(describe(error)); },
      },
      { startPosition: earliestEventPosition },
    );
    workers.set(asked.name, { state, stop: async () => { await subscription.close(); await client.close(); } });
  },
  async produce(asked) {
    const client = await producer(asked.producer, async () => {
      const made = kafka(asked).producer({ idempotent: true });
      await made.connect();
      return made;
    });
    const messages = asked.bodies.map((value) => ({ value, partition: Number(asked.partition) }));
    await client.send({ topic: asked.hub, messages });
  },
  async consume(asked) {
    const consumer = kafka(asked).consumer({ groupId: asked.name, sessionTimeout: 30000, heartbeatInterval: 300 });
    const state = { bodies: [], errors: [] };
    consumer.on("consumer.crash", ({ payload }) => state.errors.push({ ...describe(payload.error), restarts: payload.restart }));
    await consumer.connect();
    await consumer.subscribe({ topic: asked.hub, fromBeginning: true });
    await consumer.run({ eachMessage: async ({ message }) => { state.bodies.push(message.value.toString()); } });
    workers.set(asked.name, { state, stop: () => consumer.disconnect() });
  },
  async processed(asked) { return workers.get(asked.name).state; },
  async stop_processing(asked) {
    await workers.get(asked.name).stop();
    workers.delete(asked.name);
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    let answer;
    try {
      answer = (await operations[asked.do](asked)) ?? {};
    } catch (error) {
      answer = { error: describe(error) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  process.exit(0);
}

main();
