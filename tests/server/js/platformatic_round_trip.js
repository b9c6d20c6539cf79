// @platformatic/kafka, unmodified: produce with keys, headers and compression; consume in a group of two; commit and go on; seek by time; admin.
const { Admin, Consumer, MessagesStreamModes, Producer, ProduceAcks, stringDeserializers, stringSerializers } = require("@platformatic/kafka");

const [address, connectionString, topic] = process.argv.slice(2);
const sasl = { mechanism: "PLAIN", username: "$ConnectionString", password: connectionString };
const base = { clientId: "platformatic", bootstrapBrokers: [address], sasl };

async function read(groupId, count, members = 1) {
  const consumers = [];
  const rows = new Map();
  let enough;
  const done = new Promise((resolve) => (enough = resolve));
  for (let n = 0; n < members; n++) {
    const consumer = new Consumer({ ...base, groupId, deserializers: stringDeserializers });
    const options = { autocommit: false, topics: [topic], mode: MessagesStreamModes.COMMITTED, fallbackMode: "earliest" };
    const stream = await consumer.consume({ ...options, sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTime: 100 });
    stream.on("data", async (message) => {
      await message.commit();
      const row = [message.partition, Number(message.offset), message.key ?? null, message.value, [...message.headers]];
      rows.set(row.slice(0, 2).join(), row);
      if (rows.size === count) enough();
    });
    consumers.push(consumer);
  }
  await done;
  for (const consumer of consumers) await consumer.close(true);
  return [...rows.values()].sort((one, other) => one[0] - other[0] || one[1] - other[1]);
}

async function main() {
  const producer = new Producer({ ...base, serializers: stringSerializers, idempotent: true, acks: ProduceAcks.ALL });
  const messages = [0, 1].map((partition) => ({
    topic,
    partition,
    key: `device ${partition}`,
    value: `body ${partition}`,
    headers: { colour: "red" },
  }));
  for (const compression of ["none", "gzip", "zstd"]) {
    if (compression === "zstd" && !require("node:zlib").zstdCompressSync) continue;
    await producer.send({ messages, compression });
  }
  const admin = new Admin(base);
  await admin.createTopics({ topics: [`${topic}-pf`], partitions: 2, replicas: 1 });
  const metadata = await admin.metadata({ topics: [`${topic}-pf`] });
  const partitions = metadata.topics.get(`${topic}-pf`).partitionsCount;
  await admin.deleteTopics({ topics: [`${topic}-pf`] });
  await admin.close();
  const first = await read("platformatic", 4, 2);
  const later = Date.now() + 2;
  while (Date.now() <= later) await new Promise((resolve) => setTimeout(resolve, 1));
  await producer.send({ messages: [{ topic, partition: 0, value: "later" }] });
  const reader = new Consumer({ ...base, groupId: "unused" });
  const byTime = (await reader.listOffsets({ topics: [topic], timestamp: BigInt(later) })).get(topic).map(String);
  await reader.close();
  const again = await read("platformatic", 1);
  await producer.close();
  console.log(JSON.stringify({ first, again, byTime, partitions }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
