import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.AutoOffsetReset;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Counts words of a topic with a store that has a changelog, behind a repartition topic, until its input ends. */
public class CountWords {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], connection = arguments[1], from = arguments[2], to = arguments[3];
        Properties settings = new Properties();
        settings.putAll(Map.of(
            StreamsConfig.APPLICATION_ID_CONFIG, "words-of-" + from,
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
            StreamsConfig.STATE_DIR_CONFIG, arguments[4],
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200,
            StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2,
            StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0,
            "security.protocol", "SASL_PLAINTEXT",
            "sasl.mechanism", "PLAIN"));
        settings.put("sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"$ConnectionString\" password=\""
                + connection + "\";");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        // Whatever a test has sent is younger. As the policy of all topics (auto.offset.reset), a repartition topic that
        // is still empty would be asked again only after request.timeout.ms, which is half a minute.
        AutoOffsetReset younger = AutoOffsetReset.byDuration(Duration.ofHours(1));
        builder.stream(from, Consumed.with(Serdes.String(), Serdes.String()).withOffsetResetPolicy(younger))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.with(Serdes.String(), Serdes.Long()))
            .toStream()
            .mapValues(count -> count.toString())
            .to(to, Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch stopped = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            System.out.println("state " + now);
            if (now == KafkaStreams.State.ERROR) {
                stopped.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        Thread reading = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (Exception error) {
                error.printStackTrace();
            }
            stopped.countDown();
        });
        reading.setDaemon(true);
        reading.start();
        stopped.await();
        streams.close(Duration.ofSeconds(20));
        System.exit(0);
    }
}
