// Kafka's own client, unmodified: produce with every compression; consume in a group of two; commit and go on; seek by
// time; admin. The last line of its output is what it saw.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

public class RoundTrip {
    static Map<String, Object> base = new HashMap<>();
    static String topic;

    static Map<String, Object> with(Object... more) {
        Map<String, Object> settings = new HashMap<>(base);
        for (int n = 0; n < more.length; n += 2) settings.put((String) more[n], more[n + 1]);
        return settings;
    }

    static KafkaConsumer<String, String> consumer(String group) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
            with("group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", false,
                "session.timeout.ms", 10000, "heartbeat.interval.ms", 300),
            new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    static List<String> read(String group, int count, int members) {
        List<KafkaConsumer<String, String>> consumers = new ArrayList<>();
        for (int n = 0; n < members; n++) consumers.add(consumer(group));
        List<String> rows = new ArrayList<>();
        while (rows.size() < count)
            for (KafkaConsumer<String, String> consumer : consumers) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    String headers = StreamSupport.stream(record.headers().spliterator(), false)
                        .map(header -> header.key() + "=" + new String(header.value())).collect(Collectors.joining(","));
                    rows.add(record.partition() + " " + record.offset() + " " + record.key() + " " + record.value()
                        + " " + headers);
                }
                try {
                    consumer.commitSync();
                } catch (CommitFailedException | org.apache.kafka.common.errors.RebalanceInProgressException e) {
                    // the next poll joins again
                }
            }
        consumers.forEach(KafkaConsumer::close);
        Collections.sort(rows);
        return new ArrayList<>(new LinkedHashSet<>(rows));
    }

    public static void main(String[] arguments) throws Exception {
        base.put("bootstrap.servers", arguments[0]);
        base.put("security.protocol", "SASL_PLAINTEXT");
        base.put("sasl.mechanism", "PLAIN");
        base.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required "
            + "username=\"$ConnectionString\" password=\"" + arguments[1] + "\";");
        topic = arguments[2];
        List<Long> offsets = new ArrayList<>();
        for (String compression : List.of("none", "gzip", "snappy", "lz4", "zstd"))
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                    with("compression.type", compression, "linger.ms", 5), new StringSerializer(), new StringSerializer())) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int partition = 0; partition < 2; partition++) {
                    ProducerRecord<String, String> record =
                        new ProducerRecord<>(topic, partition, "key " + partition, compression);
                    record.headers().add("colour", "red".getBytes());
                    sent.add(producer.send(record));
                }
                for (Future<RecordMetadata> one : sent) offsets.add(one.get(30, TimeUnit.SECONDS).offset());
            }
        List<String> first = read("java", 10, 2);
        long later = System.currentTimeMillis() + 2;
        while (System.currentTimeMillis() <= later) Thread.sleep(1);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(base, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, 0, "key", "later")).get(30, TimeUnit.SECONDS);
        }
        List<String> again = read("java", 1, 1);
        TopicPartition place = new TopicPartition(topic, 0);
        long byTime;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(base, new StringDeserializer(), new StringDeserializer())) {
            byTime = consumer.offsetsForTimes(Map.of(place, later)).get(place).offset();
        }
        String made = topic + "-java";
        try (Admin admin = Admin.create(base)) {
            admin.createTopics(List.of(new NewTopic(made, 2, (short) 1))).all().get();
            admin.createPartitions(Map.of(made, NewPartitions.increaseTo(3))).all().get();
            int partitions = admin.describeTopics(List.of(made)).allTopicNames().get().get(made).partitions().size();
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, made);
            String time = admin.describeConfigs(List.of(resource)).all().get().get(resource)
                .get("message.timestamp.type").value();
            admin.deleteTopics(List.of(made)).all().get();
            String state = admin.describeConsumerGroups(List.of("java")).all().get().get("java").groupState().toString();
            long committed = admin.listConsumerGroupOffsets("java").partitionsToOffsetAndMetadata().get()
                .get(place).offset();
            admin.deleteConsumerGroups(List.of("java")).all().get();
            System.out.println("\n" + String.join("|", offsets.toString(), first.toString(), again.toString(),
                "" + byTime, "" + partitions, time, state, "" + committed));
        }
    }
}
