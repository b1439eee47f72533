import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Prints the first committed record at or after each offset of partition 0, below an end: the offset, and
 * the offset, key and value of the record, or nothing if there is none.
 */
public final class EveryOffset {
    public static void main(String[] arguments) {
        TopicPartition place = new TopicPartition(arguments[1], 0);
        long end = Long.parseLong(arguments[2]);
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments[0],
                "isolation.level", "read_committed",
                "enable.auto.commit", false,
                "auto.offset.reset", "none",
                "max.poll.records", 1,
                "fetch.max.wait.ms", 10);
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(place));
            for (long offset = 0; offset < end; offset++) {
                consumer.seek(place, offset);
                ConsumerRecord<String, String> found = null;
                while (found == null && consumer.position(place) < end) {
                    Iterator<ConsumerRecord<String, String>> records = consumer.poll(Duration.ofSeconds(1)).iterator();
                    found = records.hasNext() ? records.next() : null;
                }
                String record = found == null ? "" : " " + found.offset() + " " + found.key() + " " + found.value();
                System.out.println(offset + record);
            }
        }
    }
}
