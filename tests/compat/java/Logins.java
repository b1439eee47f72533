import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sessions of the Java clients, each with credentials of its own. */
public final class Logins {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Map<String, Session> SESSIONS = new ConcurrentHashMap<>();

    private static final class Session {
        final Map<String, Object> settings;
        final KafkaProducer<String, String> producer;
        KafkaConsumer<String, String> consumer;

        Session(Map<String, Object> settings) {
            this.settings = settings;
            producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        }

        synchronized JsonNode poll(String topic, String group) {
            if (consumer == null) {
                Map<String, Object> reading = new HashMap<>(settings);
                reading.put("group.id", group);
                reading.put("auto.offset.reset", "earliest");
                consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
                consumer.subscribe(List.of(topic));
            }
            ArrayNode found = Lines.JSON.createArrayNode();
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                found.add(record.value());
            }
            return found;
        }

        JsonNode brokers() throws Exception {
            ArrayNode found = Lines.JSON.createArrayNode();
            try (Admin admin = Admin.create(settings)) {
                for (Node node : admin.describeCluster().nodes().get()) {
                    found.add(node.id());
                }
            }
            return found;
        }

        synchronized void close() {
            producer.close();
            if (consumer != null) {
                consumer.close();
            }
        }
    }

    public static void main(String[] arguments) throws IOException {
        Lines.serve(Logins::act);
    }

    private static JsonNode act(JsonNode request) throws Exception {
        String name = Lines.text(request, "session");
        if (Lines.text(request, "verb").equals("open")) {
            SESSIONS.put(name, new Session(new HashMap<>(Lines.settings(request))));
            return Lines.JSON.nullNode();
        }
        Session session = SESSIONS.get(name);
        switch (Lines.text(request, "verb")) {
            case "produce" -> session.producer.send(
                new ProducerRecord<>(Lines.text(request, "topic"), Lines.text(request, "value"))).get();
            case "poll" -> {
                return session.poll(Lines.text(request, "topic"), Lines.text(request, "group"));
            }
            case "brokers" -> {
                return session.brokers();
            }
            case "close" -> session.close();
            default -> throw new IllegalArgumentException(request.toString());
        }
        return Lines.JSON.nullNode();
    }
}
