// kafkajs, unmodified: produce with keys, headers and gzip; consume in a group of two; commit and go on; seek by time; admin.
const { CompressionTypes, Kafka, logLevel } = require("kafkajs");

const [address, connectionString, topic] = process.argv.slice(2);
const sasl = { mechanism: "plain", username: "$ConnectionString", password: connectionString };
const kafka = new Kafka({ brokers: [address], sasl, ssl: false, logLevel: logLevel.ERROR });

async function read(group, count, members = 1) {
  const rows = [];
  let enough;
  const done = new Promise((resolve) => (enough = resolve));
  const consumers = [];
  for (let n = 0; n < members; n++) {
    // It ends with a fetch, which a broker keeps for five seconds by default.
    const options = { sessionTimeout: 10000, heartbeatInterval: 300, maxWaitTimeInMs: 100 };
    const consumer = kafka.consumer({ groupId: group, ...options });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        const headers = Object.entries(message.headers).map(([name, value]) => [name, value.toString()]);
        const key = message.key && message.key.toString();
        rows.push([partition, Number(message.offset), key, message.value.toString(), headers]);
        const next = String(Number(message.offset) + 1);
        await consumer.commitOffsets([{ topic, partition, offset: next }]);
        if (rows.length === count) enough();
      },
    });
    consumers.push(consumer);
  }
  await done;
  for (const consumer of consumers) await consumer.disconnect();
  return rows.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
}

async function main() {
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  const messages = [0, 1].map((partition) => ({
    partition,
    key: `device ${partition}`,
    value: `body ${partition}`,
    headers: { colour: "red" },
  }));
  await producer.send({ topic, messages });
  await producer.send({ topic, messages, compression: CompressionTypes.GZIP });
  const first = await read("kafkajs", 4, 2);
  const later = Date.now() + 2;
  while (Date.now() <= later) await new Promise((resolve) => setTimeout(resolve, 1));
  await producer.send({ topic, messages: [{ partition: 0, value: "later" }] });
  const again = await read("kafkajs", 1);
  const admin = kafka.admin();
  await admin.connect();
  const byTime = await admin.fetchTopicOffsetsByTimestamp(topic, later);
  await admin.createTopics({ topics: [{ topic: `${topic}-js`, numPartitions: 2 }] });
  await admin.createPartitions({ topicPartitions: [{ topic: `${topic}-js`, count: 3 }] });
  const { topics } = await admin.fetchTopicMetadata({ topics: [`${topic}-js`] });
  await admin.deleteTopics({ topics: [`${topic}-js`] });
  const offsets = await admin.fetchOffsets({ groupId: "kafkajs", topics: [topic] });
  await admin.deleteGroups(["kafkajs"]);
  await admin.disconnect();
  await producer.disconnect();
  const committed = offsets[0].partitions.map((one) => one.offset);
  const found = byTime.sort((one, other) => one.partition - other.partition).map((one) => one.offset);
  console.log(JSON.stringify({ first, again, byTime: found, partitions: topics[0].partitions.length, committed }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
