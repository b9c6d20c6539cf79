// @platformatic/kafka, unmodified: produce with keys, headers and compression; consume in a group; commit and go on; admin.
const { Admin, Consumer, MessagesStreamModes, Producer, ProduceAcks, stringDeserializers, stringSerializers } = require("@platformatic/kafka");

const [address, connectionString, topic] = process.argv.slice(2);
const sasl = { mechanism: "PLAIN", username: "$ConnectionString", password: connectionString };
const base = { clientId: "platformatic", bootstrapBrokers: [address], sasl };

async function read(groupId, count) {
  const consumer = new Consumer({ ...base, groupId, deserializers: stringDeserializers });
  const options = { autocommit: false, topics: [topic], mode: MessagesStreamModes.COMMITTED, fallbackMode: "earliest" };
  const stream = await consumer.consume({ ...options, sessionTimeout: 10000, heartbeatInterval: 500 });
  const rows = [];
  for await (const message of stream) {
    rows.push([message.partition, Number(message.offset), message.key ?? null, message.value, [...message.headers]]);
    await message.commit();
    if (rows.length === count) break;
  }
  await consumer.close(true);
  return rows.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
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
  const first = await read("platformatic", 4);
  await producer.send({ messages: [{ topic, partition: 0, value: "later" }] });
  const again = await read("platformatic", 1);
  await producer.close();
  console.log(JSON.stringify({ first, again, partitions }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
