// Publishes and reads with rhea, a client of plain AMQP 1.0; prints one JSON line with what it saw.
// Usage: node rhea_round_trip.js tcp|tls|websocket PORT KEY HUB

const fs = require("fs");
const rhea = require("rhea");
const WebSocket = require("ws");

const [transport, port, password, hub] = process.argv.slice(2);
const partition = (group = "$Default") => `${hub}/ConsumerGroups/${group}/Partitions/0`;

function connect() {
  const options = { username: "RootManageSharedAccessKey", password, reconnect: false };
  const trust = transport === "tcp" ? {} : { ca: [fs.readFileSync(process.env.NODE_EXTRA_CA_CERTS)] };
  if (transport === "websocket") {
    const details = rhea.websocket_connect(WebSocket);
    options.connection_details = details(`wss://localhost:${port}/$servicebus/websocket`, ["AMQPWSB10"], trust);
  } else {
    Object.assign(options, { host: "localhost", port, ...trust });
    if (transport === "tls") options.transport = "tls";
  }
  return rhea.create_container().connect(options);
}

// Calls `start` with a connection and two callbacks for how it ends; done when the hub has seen the connection close.
function conversation(start) {
  const connection = connect();
  const over = new Promise((resolve) => {
    connection.on("connection_close", resolve);
    connection.on("disconnected", resolve);
  });
  return new Promise((resolve, reject) => {
    connection.on("disconnected", (context) => reject(context.error || new Error("disconnected")));
    connection.on("connection_error", (context) => reject(connection.error || context.error));
    start(connection, resolve, reject);
  }).finally(() => {
    connection.close();
    return over;
  });
}

// The outcomes of messages, in their order.
function publish(target, messages, options = {}) {
  return conversation((connection, resolve, reject) => {
    const outcomes = [];
    const deliveries = [];
    let count = 0;
    const note = (outcome, delivery) => {
      outcomes[deliveries.indexOf(delivery)] = outcome;
      count += 1;
      if (count === messages.length) resolve(outcomes);
    };
    const sender = connection.open_sender({ target, ...options });
    sender.on("accepted", ({ delivery }) => note("accepted", delivery));
    sender.on("rejected", ({ delivery }) => note(delivery.remote_state.error.condition, delivery));
    sender.on("sender_error", () => reject(sender.error));
    sender.once("sendable", () => messages.forEach((message) => deliveries.push(sender.send(message))));
  });
}

// The first `count` events, each given to `settle`; nobody but the caller settles them.
function receive(count, { source = partition(), settle = (delivery) => delivery.accept(), ...options } = {}) {
  return conversation((connection, resolve, reject) => {
    const events = [];
    const receiver = connection.open_receiver({ source, autoaccept: false, credit_window: 0, ...options });
    receiver.add_credit(Math.min(2, count));
    receiver.on("receiver_error", () => reject(receiver.error));
    receiver.on("message", ({ message, delivery }) => {
      if (events.length === count) return;
      events.push({ body: message.body, annotations: message.message_annotations, settled: delivery.remote_settled });
      if (!delivery.remote_settled) settle(delivery);
      if (events.length === count) resolve(events);
      else receiver.add_credit(1);
    });
  });
}

const from = (selector) => ({
  address: partition(),
  filter: { "apache.org:selector-filter:string": rhea.types.wrap_described(selector, 0x468c00000004) },
});

// The reply comes on a node that the hub makes for the asker.
function manage(request) {
  return conversation((connection, resolve, reject) => {
    const receiver = connection.open_receiver({ source: { dynamic: true } });
    receiver.on("receiver_error", () => reject(receiver.error));
    receiver.on("message", ({ message }) => resolve([message.correlation_id, message.body]));
    receiver.once("receiver_open", () => {
      const sender = connection.open_sender("$management");
      sender.once("sendable", () => sender.send({ ...request, reply_to: receiver.source.address }));
    });
  });
}

// How many of `credit` events come before the hub has given the rest of the credit back.
function drain(credit, selector) {
  return conversation((connection, resolve, reject) => {
    let count = 0;
    const receiver = connection.open_receiver({ source: from(selector), credit_window: 0 });
    receiver.on("receiver_error", () => reject(receiver.error));
    receiver.on("message", () => { count += 1; });
    receiver.on("receiver_drained", () => resolve([count, receiver.credit]));
    receiver.once("receiver_open", () => {
      receiver.add_credit(credit);
      receiver.drain_credit();
    });
  });
}

const refusal = (promise) => promise.then(() => null, (error) => error.condition);
const numbers = (events) => events.map((event) => event.annotations["x-opt-sequence-number"]);

async function main() {
  const seen = {};
  const messages = [...Array(20).keys()].map((number) => ({ body: { number } }));
  seen.outcomes = [...new Set(await publish(`${hub}/Partitions/0`, messages))];
  seen.tooLarge = await publish(`${hub}/Partitions/1`, [{ body: "x".repeat(900000) }, { body: "x".repeat(1100000) }]);
  seen.settledBySecond = await publish(`${hub}/Partitions/1`, [{ body: "s" }], { rcv_settle_mode: 1 });

  seen.bodies = (await receive(20)).map((event) => event.body.number);
  seen.settled = {};
  for (const [name, options] of Object.entries({ open: {}, unsettled: { snd_settle_mode: 0 },
    settled: { snd_settle_mode: 1 }, second: { rcv_settle_mode: 1 } })) {
    seen.settled[name] = (await receive(3, options)).map((event) => event.settled);
  }
  seen.afterOutcome = {};
  for (const outcome of ["accept", "release", "reject", "modified"]) {
    seen.afterOutcome[outcome] = numbers(await receive(6, { settle: (delivery) => delivery[outcome]() }));
  }
  seen.never = numbers(await receive(6, { settle: () => {} }));
  seen.after = numbers(await receive(2, { source: from("amqp.annotation.x-opt-sequence-number > '5'") }));
  seen.since = numbers(await receive(2, { source: from("amqp.annotation.x-opt-sequence-number >= '5'") }));
  seen.drained = await drain(100, "amqp.annotation.x-opt-sequence-number > '14'");
  seen.drainedAtEnd = await drain(100, "amqp.annotation.x-opt-offset > '@latest'");

  seen.keyed = await publish(hub, [{ body: "k", message_annotations: { "x-opt-partition-key": "7" } }]);
  seen.publisher = await publish(`${hub}/Publishers/one`, [{ body: "p" }]);

  const read = { operation: "READ", type: "com.microsoft:eventhub", name: hub };
  const [correlation, properties] = await manage({ correlation_id: "c", message_id: "m", application_properties: read });
  seen.management = [correlation, properties.partition_ids];

  seen.refused = {
    hub: await refusal(publish("nope", [{ body: 1 }])),
    partition: await refusal(receive(1, { source: `${hub}/ConsumerGroups/$Default/Partitions/9` })),
    filter: await refusal(receive(1, { source: from("colour = 'red'") })),
  };
  console.log(JSON.stringify(seen));
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
