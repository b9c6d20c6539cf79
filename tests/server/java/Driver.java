// Does with azure-messaging-eventhubs, unmodified, what the lines of its standard input ask for. Each line is a JSON object with
// the operation as "do"; the answer is a line with its result, or with what the client threw as "error".
// tests/server/compiled_client.py has the operations; the driver in Go has the same.

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.credential.AzureSasCredential;
import com.azure.messaging.eventhubs.CheckpointStore;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventDataBatch;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerAsyncClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.EventHubProperties;
import com.azure.messaging.eventhubs.EventProcessorClient;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.PartitionProperties;
import com.azure.messaging.eventhubs.models.Checkpoint;
import com.azure.messaging.eventhubs.models.CreateBatchOptions;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.PartitionEvent;
import com.azure.messaging.eventhubs.models.PartitionOwnership;
import com.azure.messaging.eventhubs.models.ReceiveOptions;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Date;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

public class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Reader> readers = new ConcurrentHashMap<>();
    private static final Map<String, Worker> workers = new ConcurrentHashMap<>();
    private static final Map<String, EventHubProducerClient> producers = new ConcurrentHashMap<>();
    private static final Map<String, Store> stores = new ConcurrentHashMap<>();
    private static final Map<String, AzureSasCredential> credentials = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = input.readLine()) != null; ) {
            Object answer;
            try {
                answer = carryOut(JSON.readTree(line));
            } catch (Throwable error) {
                answer = Map.of("error", describe(error));
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
        System.exit(0);
    }

    private static Object carryOut(JsonNode asked) throws Exception {
        switch (asked.get("do").asText()) {
            case "properties": return properties(asked);
            case "partition": return partition(asked);
            case "publish": return publish(asked);
            case "publish_types": return publishTypes(asked);
            case "publish_large": return publishLarge(asked);
            case "read": return readers.computeIfAbsent(asked.get("name").asText(), name -> new Reader(asked)).read(asked);
            case "stop_reading": readers.remove(asked.get("name").asText()).close(); return Map.of();
            case "process": workers.put(asked.get("name").asText(), new Worker(asked)); return Map.of();
            case "processed": return workers.get(asked.get("name").asText()).state();
            case "stop_processing": workers.remove(asked.get("name").asText()).stop(); return Map.of();
            case "put_token": credentials.get(asked.get("credential").asText()).update(asked.get("token").asText()); return Map.of();
            default: throw new IllegalArgumentException("no operation " + asked);
        }
    }

    private static Map<String, Object> describe(Throwable thrown) {
        Throwable error = thrown;
        while (!(error instanceof AmqpException) && error.getCause() != null) error = error.getCause();
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("kind", error.getClass().getSimpleName());
        said.put("text", String.valueOf(error.getMessage()));
        if (error instanceof AmqpException) {
            AmqpException amqp = (AmqpException) error;
            said.put("condition", amqp.getErrorCondition() == null ? null : amqp.getErrorCondition().getErrorCondition());
            said.put("transient", amqp.isTransient());
        }
        return said;
    }

    // --- clients

    private static EventHubClientBuilder builder(JsonNode asked) {
        int retries = asked.path("retries").asInt(0);
        EventHubClientBuilder builder = new EventHubClientBuilder()
            .consumerGroup(asked.path("group").asText("$Default"))
            .retryOptions(new AmqpRetryOptions().setMode(AmqpRetryMode.FIXED).setMaxRetries(retries).setDelay(Duration.ofMillis(100))
                .setTryTimeout(Duration.ofSeconds(60)));
        if (asked.has("endpoint")) builder.customEndpointAddress(asked.get("endpoint").asText());
        if (!asked.has("credential")) return builder.connectionString(asked.get("connection").asText(), asked.get("hub").asText());
        AzureSasCredential credential = credentials.computeIfAbsent(
            asked.get("credential").asText(), name -> new AzureSasCredential(asked.get("token").asText()));
        return builder.credential("localhost", asked.get("hub").asText(), credential);
    }

    private static EventHubProducerClient producer(JsonNode asked) {
        return producers.computeIfAbsent(asked.path("producer").asText("?"), name -> builder(asked).buildProducerClient());
    }

    /** Run with a producer of the name "producer", which stays open, or with one for this operation only. */
    private static <T> T withProducer(JsonNode asked, java.util.function.Function<EventHubProducerClient, T> action) {
        if (asked.has("producer")) return action.apply(producer(asked));
        try (EventHubProducerClient client = builder(asked).buildProducerClient()) {
            return action.apply(client);
        }
    }

    private static Object properties(JsonNode asked) {
        return withProducer(asked, client -> {
            EventHubProperties found = client.getEventHubProperties();
            List<String> partitions = new ArrayList<>();
            found.getPartitionIds().forEach(partitions::add);
            return Map.of("name", found.getName(), "partitions", partitions, "created_ms", found.getCreatedAt().toEpochMilli());
        });
    }

    private static Object partition(JsonNode asked) {
        return withProducer(asked, client -> {
            PartitionProperties found = client.getPartitionProperties(asked.get("partition").asText());
            return Map.of("first", found.getBeginningSequenceNumber(), "last", found.getLastEnqueuedSequenceNumber(),
                "offset", found.getLastEnqueuedOffset(), "empty", found.isEmpty(), "last_ms", found.getLastEnqueuedTime().toEpochMilli());
        });
    }

    // --- publishing

    private static CreateBatchOptions where(JsonNode asked) {
        CreateBatchOptions options = new CreateBatchOptions();
        if (asked.has("partition")) options.setPartitionId(asked.get("partition").asText());
        if (asked.has("key")) options.setPartitionKey(asked.get("key").asText());
        return options;
    }

    private static Object publish(JsonNode asked) {
        return withProducer(asked, client -> {
            EventDataBatch batch = client.createBatch(where(asked));
            for (JsonNode body : asked.get("bodies")) batch.tryAdd(new EventData(body.asText()));
            client.send(batch);
            return Map.of();
        });
    }

    /** One event with a property of each type that the client can send. */
    private static Object publishTypes(JsonNode asked) {
        EventData event = new EventData(new byte[] {0, (byte) 0xff, 'x'});
        event.setMessageId("m-1").setCorrelationId("c-1").setContentType("application/json");
        Map<String, Object> properties = event.getProperties();
        properties.put("text", "é");
        properties.put("bool", true);
        properties.put("byte", (byte) -7);
        properties.put("short", (short) -700);
        properties.put("int", -70_000);
        properties.put("long", -7_000_000_000L);
        properties.put("float", 1.5f);
        properties.put("double", -2.25);
        properties.put("char", 'é');
        properties.put("uuid", UUID.fromString("00112233-4455-6677-8899-aabbccddeeff"));
        properties.put("timestamp", new Date(1_700_000_000_123L));
        return withProducer(asked, client -> {
            EventDataBatch batch = client.createBatch(where(asked));
            if (!batch.tryAdd(event)) throw new IllegalStateException("the event was not added");
            client.send(batch);
            return Map.of();
        });
    }

    /** A batch that is as full as the client allows, and an event that is larger than a batch. */
    private static Object publishLarge(JsonNode asked) {
        return withProducer(asked, client -> {
            EventDataBatch batch = client.createBatch(where(asked));
            int size = asked.get("size").asInt();
            while (batch.tryAdd(new EventData("x".repeat(size)))) { }
            client.send(batch);
            Map<String, Object> refusal = Map.of();
            try {
                client.createBatch(where(asked)).tryAdd(new EventData("x".repeat(batch.getMaxSizeInBytes())));
                client.send(List.of(new EventData("x".repeat(batch.getMaxSizeInBytes() + 1))));
            } catch (RuntimeException error) {
                refusal = describe(error);
            }
            return Map.of("events", batch.getCount(), "bytes", batch.getSizeInBytes(), "most_bytes", batch.getMaxSizeInBytes(), "refusal", refusal);
        });
    }

    // --- receiving

    private static EventPosition position(JsonNode asked) {
        JsonNode value = asked.get("value");
        switch (asked.path("position").asText("earliest")) {
            case "latest": return EventPosition.latest();
            case "offset": return EventPosition.fromOffsetString(value.asText());
            case "sequence": return EventPosition.fromSequenceNumber(value.asLong(), asked.path("inclusive").asBoolean(false));
            case "time": return EventPosition.fromEnqueuedTime(Instant.ofEpochMilli(value.asLong()));
            default: return EventPosition.earliest();
        }
    }

    /** An open link of a reader; what comes on it waits here. */
    private static class Reader {
        private final EventHubConsumerAsyncClient client;
        private final Disposable subscription;
        private final BlockingQueue<Object> come = new LinkedBlockingQueue<>();

        Reader(JsonNode asked) {
            client = builder(asked).buildAsyncConsumerClient();
            ReceiveOptions options = new ReceiveOptions();
            if (asked.has("level")) options.setOwnerLevel(asked.get("level").asLong());
            subscription = client.receiveFromPartition(asked.get("partition").asText(), position(asked), options)
                .subscribe(event -> come.add(seen(event)), come::add, () -> come.add(new IllegalStateException("the client ended the stream")));
        }

        /** Wait for so many events, or for an error. */
        Object read(JsonNode asked) throws InterruptedException {
            List<Object> events = new ArrayList<>();
            long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos((long) (asked.get("within_s").asDouble() * 1000));
            while (events.size() < asked.get("count").asInt()) {
                Object next = come.poll(Math.max(0, until - System.nanoTime()), TimeUnit.NANOSECONDS);
                if (next == null) break;
                if (next instanceof Throwable) return Map.of("events", events, "error", describe((Throwable) next));
                events.add(next);
            }
            return Map.of("events", events);
        }

        void close() {
            subscription.dispose();
            client.close();
        }
    }

    private static Map<String, Object> seen(PartitionEvent received) {
        EventData event = received.getData();
        Map<String, Object> properties = new TreeMap<>();
        event.getProperties().forEach((name, value) -> properties.put(name, value == null
            ? List.of("null", "") : List.of(value.getClass().getSimpleName(), text(value))));
        Map<String, Object> said = new LinkedHashMap<>();
        byte[] body = event.getBody();
        said.put("body", body.length > 100 ? "" : new String(body, java.nio.charset.StandardCharsets.ISO_8859_1));
        said.put("size", body.length);
        said.put("sequence_number", event.getSequenceNumber());
        said.put("offset", event.getOffsetString());
        said.put("enqueued_ms", event.getEnqueuedTime().toEpochMilli());
        said.put("key", event.getPartitionKey());
        said.put("message_id", event.getMessageId());
        said.put("correlation_id", event.getCorrelationId());
        said.put("content_type", event.getContentType());
        said.put("properties", properties);
        return said;
    }

    private static String text(Object value) {
        if (value instanceof Date) return String.valueOf(((Date) value).getTime());
        if (value instanceof byte[]) return HexFormat.of().formatHex((byte[]) value);
        return String.valueOf(value);
    }

    // --- processors

    private static class Worker {
        private final EventProcessorClient client;
        private final Map<String, Boolean> owned = new ConcurrentHashMap<>();
        private final List<String> bodies = java.util.Collections.synchronizedList(new ArrayList<>());
        private final List<Object> errors = java.util.Collections.synchronizedList(new ArrayList<>());

        Worker(JsonNode asked) {
            client = new EventProcessorClientBuilder()
                .connectionString(asked.get("connection").asText(), asked.get("hub").asText())
                .consumerGroup("$Default")
                .checkpointStore(stores.computeIfAbsent(asked.get("store").asText(), name -> new Store()))
                .loadBalancingUpdateInterval(Duration.ofMillis(500))
                .partitionOwnershipExpirationInterval(Duration.ofSeconds(3))
                .initialPartitionEventPosition(partition -> EventPosition.earliest())
                .processPartitionInitialization(context -> owned.put(context.getPartitionContext().getPartitionId(), true))
                .processPartitionClose(context -> owned.remove(context.getPartitionContext().getPartitionId()))
                .processEvent(context -> {
                    bodies.add(context.getEventData().getBodyAsString());
                    context.updateCheckpoint();
                })
                .processError(context -> errors.add(describe(context.getThrowable())))
                .buildEventProcessorClient();
            client.start();
        }

        Object state() {
            return Map.of("partitions", new TreeSet<>(owned.keySet()), "bodies", new ArrayList<>(bodies), "errors", new ArrayList<>(errors));
        }

        void stop() {
            client.stop();
        }
    }

    /** A checkpoint store that the processors of this process share. */
    private static class Store implements CheckpointStore {
        private final Map<String, PartitionOwnership> ownerships = new ConcurrentHashMap<>();
        private final Map<String, Checkpoint> checkpoints = new ConcurrentHashMap<>();

        @Override
        public Flux<PartitionOwnership> listOwnership(String namespace, String hub, String group) {
            return Flux.defer(() -> Flux.fromIterable(List.copyOf(ownerships.values())));
        }

        @Override
        public Flux<PartitionOwnership> claimOwnership(List<PartitionOwnership> asked) {
            return Flux.defer(() -> Flux.fromIterable(claim(asked)));
        }

        private synchronized List<PartitionOwnership> claim(List<PartitionOwnership> asked) {
            List<PartitionOwnership> claimed = new ArrayList<>();
            for (PartitionOwnership one : asked) {
                PartitionOwnership held = ownerships.get(one.getPartitionId());
                if (held != null && !held.getETag().equals(one.getETag())) continue;
                one.setETag(UUID.randomUUID().toString()).setLastModifiedTime(System.currentTimeMillis());
                ownerships.put(one.getPartitionId(), one);
                claimed.add(one);
            }
            return claimed;
        }

        @Override
        public Flux<Checkpoint> listCheckpoints(String namespace, String hub, String group) {
            return Flux.defer(() -> Flux.fromIterable(List.copyOf(checkpoints.values())));
        }

        @Override
        public Mono<Void> updateCheckpoint(Checkpoint checkpoint) {
            return Mono.fromRunnable(() -> checkpoints.put(checkpoint.getPartitionId(), checkpoint));
        }
    }
}
